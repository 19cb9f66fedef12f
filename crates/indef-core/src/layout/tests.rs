//! Tests of layouts, DoLF, DoPF, DoF and requests; and the layouts that other tests use.

use proptest::prelude::*;
use units::{Bytes, FileOffset, FileRange, PhysOffset};

use super::*;

const BLOCK: u64 = 4096;

/// An extent, in blocks.
fn extent(file: u64, phys: u64, len: u64, flags: ExtentFlags) -> Extent {
    Extent {
        file: FileOffset(file * BLOCK),
        phys: PhysOffset(phys * BLOCK),
        len: Bytes(len * BLOCK),
        flags,
    }
}

/// A layout of plain extents: (file block, device block, blocks).
pub(crate) fn layout(extents: &[(u64, u64, u64)]) -> Layout {
    let plain = |&(file, phys, len)| extent(file, phys, len, ExtentFlags::empty());
    Layout::new(extents.iter().map(plain).collect())
}

/// A range in blocks.
pub(crate) fn blocks(start: u64, len: u64) -> FileRange {
    FileRange::new(start * BLOCK, len * BLOCK)
}

/// Any layout of a small file: holes, runs that touch, scattered pieces, the given flags.
pub(crate) fn any_layout(flags: &'static [ExtentFlags]) -> impl Strategy<Value = Layout> {
    let part = (0u64..3, 1u64..40, any::<bool>(), 0u64..4000, 0..flags.len());
    prop::collection::vec(part, 0..40).prop_map(move |parts| {
        let (mut file, mut phys) = (0, 0);
        let mut extents = Vec::new();
        for (gap, len, continues, place, flag) in parts {
            // Odd places never coincide with the end of another extent.
            phys = if continues { phys } else { 10_000 + place };
            file += if gap == 2 { 5 } else { 0 };
            extents.push(extent(file, phys, len, flags[flag]));
            file += len;
            phys += len;
        }
        Layout::new(extents)
    })
}

/// No flags: data at its reported place.
pub(crate) const PLAIN: &[ExtentFlags] = &[ExtentFlags::empty()];

const ANY_FLAGS: &[ExtentFlags] = &[
    ExtentFlags::empty(),
    ExtentFlags::UNWRITTEN,
    ExtentFlags::ENCODED,
    ExtentFlags::UNPLACED,
    ExtentFlags::SHARED,
];

fn measured(layout: &Layout, range: FileRange, geometry: &str) -> Fragmentation {
    layout.measure(range, &geometry.parse().unwrap(), Bytes::kib(256))
}

/// InDeF §III-B, figure 9, gives DoLF 6 and DoPF 2.5 on four chips, and its layout only as a picture.
/// This one has both values: 12 blocks, so M/L = 3, in six fragments:
///
/// ```text
/// device blocks    chips
///  0  1  2  3      0 1 2 3
///  8  9 10         0 1 2
/// 16 17            0 1
/// 24               0
/// 32               0
/// 41                 1
///             N =  5 4 2 1
/// ```
///
/// ((5−3)² + (4−3)² + (2−3)² + (1−3)²) / 4 = (4 + 1 + 1 + 4) / 4 = 2.5.
#[test]
fn the_worked_example_of_indef() {
    let example = layout(&[
        (0, 0, 4),
        (4, 8, 3),
        (7, 16, 2),
        (9, 24, 1),
        (10, 32, 1),
        (11, 41, 1),
    ]);
    let fragmentation = measured(&example, blocks(0, 12), "zoned:chips=4");
    assert_eq!((fragmentation.dolf, fragmentation.dopf), (6, 2.5));
    assert_eq!(crate::priority::iodp(4.0, 1.0, &fragmentation, 1), 26.5);
}

#[test]
fn file_b_of_indef_differs_by_chips_only() {
    // §IV-A: 256 KiB in pieces of 16 KiB, which the four blocks of a piece reach in turn.
    let on_chips = |chips: u64| {
        let place = |i| i * 32 + (i * 4) % chips;
        let pieces: Vec<_> = (0..16).map(|i| (i * 4, place(i), 4)).collect();
        measured(&layout(&pieces), blocks(0, 64), "zoned:chips=16")
    };
    let (four, eight, all) = (on_chips(4), on_chips(8), on_chips(16));
    assert_eq!([four.dolf, eight.dolf, all.dolf], [16; 3]);
    // 64 blocks on c of 16 chips: (c·(64/c − 4)² + (16 − c)·4²) / 16.
    assert_eq!([four.dopf, eight.dopf, all.dopf], [48.0, 16.0, 0.0]);
}

#[test]
fn requests_are_split_by_fragments_and_by_size() {
    // 300 KiB, a hole, 256 KiB, 4 KiB elsewhere.
    let scattered = layout(&[(0, 100, 75), (80, 500, 64), (144, 900, 1)]);
    let fragmentation = measured(&scattered, blocks(0, 145), "unknown");
    assert_eq!((fragmentation.dolf, fragmentation.requests), (3, 4));
    assert_eq!(fragmentation.dopf, 0.0);
    assert_eq!(
        measured(&scattered, blocks(75, 5), "unknown"),
        Fragmentation::default()
    );
    assert_eq!(measured(&scattered, blocks(10, 4), "unknown").requests, 1);
}

#[test]
fn unwritten_and_inline_bytes_reach_no_device() {
    let layout = Layout::new(vec![
        extent(0, 10, 4, ExtentFlags::empty()),
        extent(4, 14, 4, ExtentFlags::UNWRITTEN),
        extent(8, 50, 4, ExtentFlags::UNWRITTEN),
        extent(20, 0, 1, ExtentFlags::INLINE),
    ]);
    let fragmentation = measured(&layout, blocks(0, 30), "zoned:chips=4");
    assert_eq!((fragmentation.dolf, fragmentation.requests), (1, 1));
    assert_eq!(layout.fragments(), 3);
    assert_eq!(layout.ideal_fragments(), 2);
}

#[test]
fn full_compressed_extents_are_as_good_as_it_gets() {
    let encoded = |file, phys, len| extent(file, phys, len, ExtentFlags::ENCODED);
    let full = Layout::new(vec![
        encoded(0, 100, 32),
        encoded(32, 900, 32),
        encoded(64, 500, 7),
    ]);
    assert_eq!(measured(&full, blocks(0, 71), "zoned:chips=4").dolf, 1);
    assert_eq!(measured(&full, blocks(0, 71), "zoned:chips=4").dopf, 0.0);
    assert_eq!((full.fragments(), full.ideal_fragments()), (3, 3));
    assert_eq!(full.dof(), 1.0);
    let short = Layout::new((0..32).map(|i| encoded(i, 100 + i * 7, 1)).collect());
    assert_eq!(measured(&short, blocks(0, 32), "unknown").dolf, 32);
    assert_eq!(short.ideal_fragments(), 1);
}

#[test]
fn dof_compares_with_the_fewest_possible_fragments() {
    assert_eq!(Layout::default().dof(), 1.0);
    assert_eq!(Layout::default().ideal_fragments(), 0);
    assert_eq!(layout(&[(0, 9, 8)]).dof(), 1.0);
    // A hole divides a file without making it fragmented.
    assert_eq!(layout(&[(0, 9, 8), (100, 50, 8)]).dof(), 1.0);
    assert_eq!(layout(&[(0, 9, 8), (8, 50, 8), (100, 70, 8)]).dof(), 1.5);
}

#[test]
fn a_place_inside_a_fragment_is_cut() {
    let mixed = Layout::new(vec![
        extent(2, 10, 4, ExtentFlags::empty()),
        extent(6, 14, 4, ExtentFlags::UNWRITTEN),
        extent(10, 90, 4, ExtentFlags::empty()),
    ]);
    let cut: Vec<u64> = (0..20)
        .filter(|place| mixed.count(blocks(*place, 1)).cuts_start)
        .collect();
    assert_eq!(cut, [3, 4, 5, 6, 7, 8, 9, 11, 12, 13]);
}

#[test]
fn extents_are_ordered_joined_and_freed_of_overlap() {
    let plain = |file, phys, len| extent(file, phys, len, ExtentFlags::empty());
    let untidy = Layout::new(vec![
        plain(8, 18, 4),
        plain(2, 50, 0),
        plain(0, 10, 4),
        plain(4, 14, 6),
        plain(20, 99, 2),
        plain(20, 70, 3),
        extent(12, 22, 1, ExtentFlags::UNWRITTEN),
    ]);
    let unwritten = extent(12, 22, 1, ExtentFlags::UNWRITTEN);
    assert_eq!(
        untidy.extents(),
        [plain(0, 10, 12), unwritten, plain(20, 70, 3)]
    );
    // The unwritten block touches: it belongs to the first fragment.
    assert_eq!(
        (untidy.fragments(), untidy.allocated()),
        (2, Bytes(16 * BLOCK))
    );
}

proptest! {
    #[test]
    fn any_extents_become_ordered_and_disjoint(parts in prop::collection::vec((0u64..60, 0u64..60, 0u64..9), 0..20)) {
        let build = |&(file, phys, len)| extent(file, phys, len, ExtentFlags::empty());
        let layout = Layout::new(parts.iter().map(build).collect());
        prop_assert!(layout.extents().windows(2).all(|w| w[0].file_end() <= w[1].file));
        prop_assert!(layout.extents().iter().all(|e| !e.len.is_zero()));
        for extent in layout.extents() {
            let first = extent.file.0 / BLOCK;
            for block in first..extent.file_end().0 / BLOCK {
                let from = |&(file, phys, len): &(u64, u64, u64)| {
                    file <= block && block < file + len && phys + (block - file) == extent.phys.0 / BLOCK + block - first
                };
                prop_assert!(parts.iter().any(from), "block {block}");
            }
        }
    }

    #[test]
    fn replacing_a_range_by_itself_changes_nothing(layout in any_layout(PLAIN), start in 0u64..900, len in 0u64..900) {
        prop_assert_eq!(layout.replaced(blocks(start, len), &layout), layout);
    }

    #[test]
    fn every_degree_is_within_its_bounds(layout in any_layout(ANY_FLAGS), start in 0u64..900, len in 0u64..900) {
        let range = blocks(start, len);
        let scan = layout.scan(range, &Geometry::Unknown, Bytes::kib(64));
        prop_assert_eq!(scan.count, layout.count(range));
        prop_assert_eq!(scan.count.fragments, layout.fragments_in(range));
        prop_assert!(scan.count.pieces <= scan.count.fragments);
        prop_assert!(scan.ideal_dolf <= scan.dolf && scan.dolf <= scan.count.fragments);
        prop_assert!(scan.dolf <= scan.requests);
        prop_assert!(scan.placed <= scan.written && scan.written <= range.len);
        prop_assert!(layout.dof() >= 1.0);
    }

    #[test]
    fn dolf_is_what_looking_at_each_block_gives(layout in any_layout(PLAIN), start in 0u64..900, len in 0u64..900) {
        let range = blocks(start, len);
        let place = |block: u64| {
            let at = FileOffset(block * BLOCK);
            layout.clipped(FileRange { start: at, len: Bytes(BLOCK) }).next().map(|e| e.phys.0)
        };
        let starts = (start..start + len).filter(|&block| {
            let before = (block > start).then(|| place(block - 1)).flatten();
            place(block).is_some_and(|here| before != Some(here.wrapping_sub(BLOCK)))
        });
        prop_assert_eq!(layout.measure(range, &Geometry::Unknown, Bytes::kib(256)).dolf, starts.count() as u64);
    }
}
