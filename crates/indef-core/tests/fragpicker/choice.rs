//! FragPicker's published check for fragmented ranges, compared with ours.
//!
//! Written anew from the description (SOSP 2021, §4.2.1) and from the behaviour of its scripts
//! (`FragPicker_IP.py`): they go through the lines of `filefrag -v` and the ranges side by side.
//! Each place where that goes wrong has a switch; with all of them off, the same ranges are chosen
//! as by our policy of that name, on any layout.

use indef_core::{
    SkipReason,
    access::AccessRange,
    layout::{Extent, ExtentFlags, Layout},
    plan::{Decision, FileFacts, PlanOptions, Policy, plan_file},
};
use proptest::prelude::*;
use units::{Bytes, FileOffset, FileRange, PhysOffset};

const BLOCK: u64 = 4096;

/// The faults of the published check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    /// The place of an extent in the file is computed from the lengths of the extents before it, so
    /// after a hole every extent is looked for in a wrong place.
    OffsetsFromLengths,
    /// Two extents that touch on the device are two fragments.
    TouchingIsApart,
    /// A hole in a range makes it fragmented, though no move can close it.
    HoleIsApart,
    /// A range that was widened beyond the end of the file is never inside its last extent.
    EndNotCut,
}

use Defect::{EndNotCut, HoleIsApart, OffsetsFromLengths, TouchingIsApart};

const ALL: [Defect; 4] = [OffsetsFromLengths, TouchingIsApart, HoleIsApart, EndNotCut];

/// The ranges that it would move, by the extents that the kernel reports; `size` is the file's.
fn published(
    extents: &[Extent],
    size: u64,
    ranges: &[FileRange],
    defects: &[Defect],
) -> Vec<FileRange> {
    let has = |defect| defects.contains(&defect);
    let mut lengths = 0;
    // Start and end in the file, and the number of the stretch without a hole.
    let mut pieces: Vec<(u64, u64)> = Vec::new();
    let mut stretches: Vec<usize> = Vec::new();
    let mut before: Option<&Extent> = None;
    for extent in extents {
        let true_start = extent.file.0;
        let start = if has(OffsetsFromLengths) {
            lengths
        } else {
            true_start
        };
        let end = start + extent.len.0;
        lengths += extent.len.0;
        let adjacent = before.is_some_and(|b| b.file_end() == extent.file);
        let touching = adjacent
            && before.is_some_and(|b| b.phys.0 + b.len.0 == extent.phys.0)
            && !has(TouchingIsApart);
        match pieces.last_mut() {
            Some(last) if touching => last.1 = end,
            _ => {
                let stretch = stretches
                    .last()
                    .map_or(0, |last| last + usize::from(!adjacent));
                pieces.push((start, end));
                stretches.push(stretch);
            }
        }
        before = Some(extent);
    }
    let is_fragmented = |range: &FileRange| {
        let from = range.start.0;
        let to = match has(EndNotCut) {
            true => range.end().0,
            false => range.end().0.min(size),
        };
        let met: Vec<usize> = (0..pieces.len())
            .filter(|i| pieces[*i].0 < to && pieces[*i].1 > from)
            .collect();
        let (Some(first), Some(last)) = (met.first(), met.last()) else {
            return false;
        };
        let whole = |i: usize| pieces[i].0 <= from && pieces[i].1 >= to;
        if has(HoleIsApart) || (has(EndNotCut) && to > size) {
            return !(met.len() == 1 && whole(*first));
        }
        // More pieces than stretches: some of them could be joined.
        met.len() > stretches[*last] - stretches[*first] + 1
    };
    ranges.iter().copied().filter(is_fragmented).collect()
}

/// The ranges that our policy would move, or would if that did not leave more fragments (which the
/// published one does not check).
fn ours(extents: &[Extent], size: u64, ranges: &[FileRange]) -> Vec<FileRange> {
    let accesses: Vec<AccessRange> = ranges
        .iter()
        .map(|range| AccessRange {
            range: *range,
            reads: 1,
            ..AccessRange::default()
        })
        .collect();
    let options = PlanOptions {
        policy: Policy::Fragpicker,
        ..PlanOptions::default()
    };
    let facts = FileFacts {
        size: Bytes(size),
        block_size: Bytes(BLOCK),
        layout: &Layout::new(extents.to_vec()),
        accesses: Some(&accesses),
    };
    plan_file(&options, &facts)
        .iter()
        .filter(|chunk| {
            matches!(
                chunk.decision,
                Decision::Migrate | Decision::Skip(SkipReason::NoGain)
            )
        })
        .map(|chunk| chunk.range)
        .collect()
}

/// The ranges, cut as planning cuts them.
fn cut(ranges: &[FileRange], size: u64) -> Vec<FileRange> {
    let end = FileOffset(size);
    let cut = |range: &FileRange| FileRange::between(range.start.min(end), range.end().min(end));
    ranges
        .iter()
        .map(cut)
        .filter(|range| !range.is_empty())
        .collect()
}

/// Extents from holes before them, lengths and jumps on the device, in blocks.
fn extents(parts: &[(u64, u64, bool)]) -> (Vec<Extent>, u64) {
    let (mut file, mut phys) = (0, 1000);
    let mut extents = Vec::new();
    for (hole, len, jumps) in parts {
        file += hole;
        phys += if *jumps || *hole > 0 { 77 } else { 0 };
        extents.push(Extent {
            file: FileOffset(file * BLOCK),
            phys: PhysOffset(phys * BLOCK),
            len: Bytes(len * BLOCK),
            flags: ExtentFlags::empty(),
        });
        file += len;
        phys += len;
    }
    (extents, file * BLOCK)
}

fn blocks(start: u64, len: u64) -> FileRange {
    FileRange::new(start * BLOCK, len * BLOCK)
}

#[test]
fn each_defect_shows_where_its_name_says() {
    let ranges = [
        blocks(0, 32),
        blocks(32, 32),
        blocks(64, 32),
        blocks(96, 32),
    ];
    let chosen = |parts: &[(u64, u64, bool)], defects: &[Defect]| {
        let (extents, size) = extents(parts);
        (
            published(&extents, size, &ranges, defects),
            ours(&extents, size, &ranges),
        )
    };
    // Two extents of 32 blocks after a hole of 16, and one of two halves.
    let shifted = [(0, 16, false), (16, 32, true), (0, 32, true), (0, 32, true)];
    let (wrong, right) = chosen(&shifted, &[OffsetsFromLengths]);
    assert_eq!(right, []);
    assert_ne!(wrong, right);
    // One long run, which the file system keeps in several records.
    let records = [(0, 16, false), (0, 40, false), (0, 72, false)];
    let (wrong, right) = chosen(&records, &[TouchingIsApart]);
    assert_eq!((wrong.len(), right.len()), (2, 0));
    let sparse = [(0, 8, false), (8, 16, false), (0, 96, true)];
    let (wrong, right) = chosen(&sparse, &[HoleIsApart]);
    assert_eq!((wrong, right), (vec![ranges[0]], vec![]));
    // Read-ahead reached past the end of a contiguous file.
    let (wrong, right) = chosen(&[(0, 120, false)], &[EndNotCut]);
    assert_eq!((wrong, right), (vec![ranges[3]], vec![]));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn without_its_defects_it_chooses_what_we_choose(
        parts in prop::collection::vec((prop_oneof![Just(0u64), 0u64..4], 1u64..40, any::<bool>()), 1..20),
        gaps in prop::collection::vec((0u64..9, 1u64..=64), 1..20),
    ) {
        let (extents, size) = extents(&parts);
        let mut at = 0;
        let ranges: Vec<FileRange> = gaps
            .iter()
            .map(|(gap, len)| {
                at += gap + len;
                blocks(at - len, *len)
            })
            .collect();
        let chosen = cut(&published(&extents, size, &ranges, &[]), size);
        prop_assert_eq!(&chosen, &ours(&extents, size, &ranges));
        // Each different choice is caused by one of the defects alone, or by several together.
        let wrong = cut(&published(&extents, size, &ranges, &ALL), size);
        let plain = parts.iter().all(|(hole, _, jumps)| *hole == 0 && *jumps);
        if plain && at * BLOCK <= size {
            prop_assert_eq!(wrong, chosen);
        }
    }
}
