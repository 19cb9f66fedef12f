//! Which extents to let go: those that free enough for what has to be written.
//!
//! An extent of which a file reaches only a part comes free when that part is written anew
//! ([`layout::HeldExtent`](crate::layout::HeldExtent)). That frees its unreachable bytes, net: what
//! is still reached takes as many bytes elsewhere. It pays where it frees at least
//! [`PlanOptions::reclaim_ratio`] bytes for each byte written. The default of 0.25 takes an extent of
//! which a fifth is unreachable; a database in which a third of the blocks were overwritten has 0.5.
//!
//! Nothing would come free, or something would be lost, where:
//! - others refer to the extent (a snapshot, a reflink): it stays allocated for them;
//! - a part of it was never written: what rewrites data does not move that;
//! - a compressed part is shorter than [`LEAST_COMPRESSED`]: so little data may not compress, upon
//!   which Btrfs stops compressing the whole file (`compress_file_range`, fs/btrfs/inode.c, v6.18).
//!
//! All parts of an extent move, or none: they name it ([`Chunk::lets_go`]), and
//! [`limit`](super::limit()) takes them together. A chunk's gain is in bytes that come free.

use units::{Bytes, FileOffset};

use super::{Chunk, Decision, Edges, FileFacts};
use crate::{
    SkipReason,
    layout::{ExtentFlags, HeldExtent, Layout},
};

/// The least number of bytes that come free for each byte written, where none is given.
pub const RECLAIM_RATIO: f64 = 0.25;

/// The shortest compressed part that is written anew.
pub const LEAST_COMPRESSED: Bytes = Bytes::kib(32);

/// Decide about every extent that the file reaches only in part: a chunk for each part, in the
/// order of the file.
#[must_use]
pub fn reclaim_file(ratio: f64, file: &FileFacts<'_>, held: &[HeldExtent]) -> Vec<Chunk> {
    let end = FileOffset(file.end());
    let mut chunks = Vec::new();
    for extent in held {
        let decision = match stays(extent, file.layout, end, ratio) {
            Some(reason) => Decision::Skip(reason),
            None => Decision::Migrate,
        };
        let mut gain = extent.unreached().get() as f64;
        for part in extent.parts.iter().filter(|part| part.end() <= end) {
            chunks.push(Chunk {
                range: *part,
                reads: 0,
                writes: 0,
                dolf: 1,
                dopf: 0.0,
                iodp: 0.0,
                decision,
                cost: part.len,
                gain: std::mem::take(&mut gain),
                // A part is a fragment before and after.
                edges: Edges {
                    excess: 0,
                    cuts_start: false,
                    cuts_end: false,
                },
                lets_go: Some(extent.extent),
                shared: None,
            });
        }
    }
    chunks.sort_unstable_by_key(|chunk| chunk.range);
    chunks
}

/// The reason for which an extent is not let go, by all that is known when planning.
fn stays(held: &HeldExtent, layout: &Layout, end: FileOffset, ratio: f64) -> Option<SkipReason> {
    let is_placed = |part: &units::FileRange| {
        let placed: Bytes = layout
            .clipped(*part)
            .filter(|extent| !extent.flags.contains(ExtentFlags::UNPLACED))
            .map(|extent| extent.len)
            .sum();
        placed == part.len
    };
    match keeps_extent(held, end, ratio) {
        Some(SkipReason::Unwritten) => Some(SkipReason::Unwritten),
        _ if held.is_shared(layout) => Some(SkipReason::HeldByOthers),
        Some(SkipReason::OutOfRange) => Some(SkipReason::OutOfRange),
        _ if !held.parts.iter().all(is_placed) => Some(SkipReason::Changed),
        reason => reason,
    }
}

/// The reason for which an extent is not let go, as far as its references tell. The executor asks again, of the
/// extent as it is by then.
#[must_use]
pub fn keeps_extent(held: &HeldExtent, end: FileOffset, ratio: f64) -> Option<SkipReason> {
    let encoded = held.flags.contains(ExtentFlags::ENCODED);
    if held.flags.contains(ExtentFlags::UNWRITTEN) {
        Some(SkipReason::Unwritten)
    } else if held.referring() > held.reached {
        Some(SkipReason::HeldByOthers)
    } else if held.parts.iter().any(|part| part.end() > end) {
        Some(SkipReason::OutOfRange)
    } else if encoded && held.parts.iter().any(|part| part.len < LEAST_COMPRESSED) {
        Some(SkipReason::Compressed)
    } else if !frees_enough(held, ratio) {
        Some(SkipReason::FreesLittle)
    } else {
        None
    }
}

/// Whether an extent frees at least `ratio` bytes for each byte written, and one at all.
fn frees_enough(held: &HeldExtent, ratio: f64) -> bool {
    let freed = held.unreached();
    !freed.is_zero() && freed.get() as f64 >= held.referring().get() as f64 * ratio
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use units::{FileRange, PhysOffset};

    use super::{super::*, *};
    use crate::layout::{Extent, ExtentRef, HeldExtents};

    const BLOCK: u64 = 4096;

    fn blocks(start: u64, len: u64) -> FileRange {
        FileRange::new(start * BLOCK, len * BLOCK)
    }

    /// A reference to an extent of 100 blocks.
    fn reference(extent: u64, file: u64, from: u64, len: u64, flags: ExtentFlags) -> ExtentRef {
        ExtentRef {
            range: blocks(file, len),
            extent: PhysOffset(extent),
            allocated: Bytes(100 * BLOCK),
            data_len: Bytes(100 * BLOCK),
            from: Bytes(from * BLOCK),
            flags,
        }
    }

    fn planned(references: &[ExtentRef], flags: ExtentFlags, ratio: f64) -> Vec<Chunk> {
        let mut held = HeldExtents::default();
        references.iter().for_each(|one| held.add(*one));
        let extents = references.iter().map(|one| Extent {
            file: one.range.start,
            phys: one.extent + one.from,
            len: one.range.len,
            flags: flags | one.flags,
        });
        let layout = Layout::new(extents.collect());
        let end = layout.extents().last().map_or(0, |last| last.file_end().0);
        let facts = FileFacts {
            size: Bytes(end),
            block_size: Bytes(BLOCK),
            layout: &layout,
            accesses: None,
        };
        reclaim_file(ratio, &facts, &held.partly_reached())
    }

    fn decisions(chunks: &[Chunk]) -> Vec<Option<SkipReason>> {
        let reason = |chunk: &Chunk| match chunk.decision {
            Decision::Migrate => None,
            Decision::Skip(reason) => Some(reason),
        };
        chunks.iter().map(reason).collect()
    }

    const NONE: ExtentFlags = ExtentFlags::empty();

    #[test]
    fn what_frees_enough_is_written_anew() {
        let cut_off = planned(&[reference(7, 0, 0, 1, NONE)], NONE, RECLAIM_RATIO);
        assert_eq!(
            (cut_off[0].cost, cut_off[0].gain),
            (Bytes(BLOCK), 99.0 * BLOCK as f64)
        );
        assert!(cut_off[0].migrates() && cut_off[0].lets_go == Some(PhysOffset(7)));
        for (reached, ratio, moves) in [
            (80, 0.25, true),
            (81, 0.25, false),
            (50, 1.0, true),
            (51, 1.0, false),
            (99, 0.0, true),
        ] {
            let chunks = planned(&[reference(7, 0, 0, reached, NONE)], NONE, ratio);
            let reason = (!moves).then_some(SkipReason::FreesLittle);
            assert_eq!(decisions(&chunks), [reason], "{reached} blocks, {ratio}");
        }
    }

    #[test]
    fn what_would_not_come_free_stays() {
        let one = [reference(7, 0, 0, 1, NONE)];
        let shared = planned(&one, ExtentFlags::SHARED, RECLAIM_RATIO);
        assert_eq!(decisions(&shared), [Some(SkipReason::HeldByOthers)]);
        let delayed = planned(&one, ExtentFlags::UNPLACED, RECLAIM_RATIO);
        assert_eq!(decisions(&delayed), [Some(SkipReason::Changed)]);
        // One part that was never written keeps all of it.
        let unwritten = [
            reference(7, 0, 0, 1, NONE),
            reference(7, 9, 9, 1, ExtentFlags::UNWRITTEN),
        ];
        let unwritten = planned(&unwritten, NONE, RECLAIM_RATIO);
        assert_eq!(decisions(&unwritten), [Some(SkipReason::Unwritten); 2]);
        let small = planned(
            &[reference(7, 0, 0, 7, ExtentFlags::ENCODED)],
            NONE,
            RECLAIM_RATIO,
        );
        assert_eq!(decisions(&small), [Some(SkipReason::Compressed)]);
        let large = planned(
            &[reference(7, 0, 0, 8, ExtentFlags::ENCODED)],
            NONE,
            RECLAIM_RATIO,
        );
        assert_eq!(decisions(&large), [None]);
    }

    fn plan_of(chunks: Vec<Chunk>) -> FilePlan {
        FilePlan {
            path: "/a".into(),
            root_len: Some(1),
            dev: 1,
            inode: 257,
            born: None,
            size: Bytes::gib(1),
            block_size: Bytes(BLOCK),
            fs: "btrfs".into(),
            engine: Some("btrfs-defrag-range".into()),
            extents_before: 1,
            named: None,
            skip: None,
            chunks,
        }
    }

    proptest! {
        /// Parts of three extents by turns, with any budget.
        #[test]
        fn an_extent_moves_as_a_whole_or_not_at_all(
            parts in prop::collection::vec((0u64..3, 1u64..9), 1..24),
            budget in 0u64..120,
        ) {
            let (mut file, mut from) = (0, [0; 3]);
            let mut references = Vec::new();
            for (extent, len) in parts {
                let at = &mut from[extent as usize];
                if *at + len > 100 {
                    continue;
                }
                references.push(reference(extent + 1, file, *at, len, NONE));
                *at += len;
                file += len;
            }
            let chunks = planned(&references, NONE, 0.0);
            prop_assert!(chunks.windows(2).all(|pair| pair[0].range.end() <= pair[1].range.start));
            let free: f64 = from.iter().filter(|at| **at > 0).map(|at| ((100 - at) * BLOCK) as f64).sum();
            let mut files = [plan_of(chunks)];
            prop_assert_eq!(files[0].gain(), free);
            let options = PlanOptions {
                budget: Some(Bytes(budget * BLOCK)),
                reclaim_ratio: Some(0.0),
                ..PlanOptions::default()
            };
            let limited = limit(&mut files, &options);
            prop_assert!(limited.cost <= Bytes(budget * BLOCK));
            let mut best_left = 0.0_f64;
            let mut worst_taken = f64::INFINITY;
            for extent in 1..=3 {
                let of: Vec<_> = files[0].chunks.iter().filter(|c| c.lets_go == Some(PhysOffset(extent))).collect();
                let moving = of.iter().filter(|chunk| chunk.migrates()).count();
                prop_assert!(moving == 0 || moving == of.len());
                if let Some(first) = of.first() {
                    let cost: Bytes = of.iter().map(|chunk| chunk.cost).sum();
                    let ratio = of.iter().map(|chunk| chunk.gain).sum::<f64>() / cost.get() as f64;
                    match first.migrates() {
                        true => worst_taken = worst_taken.min(ratio),
                        // One that fits once a better one is taken is no loss.
                        false if cost + limited.cost <= Bytes(budget * BLOCK) => best_left = best_left.max(ratio),
                        false => {}
                    }
                }
            }
            prop_assert!(best_left == 0.0, "{best_left} would have fitted, {worst_taken}");
        }
    }
}
