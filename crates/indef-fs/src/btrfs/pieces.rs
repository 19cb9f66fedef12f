//! Selects the parts of a range that can be moved and for which it pays. Pure.

use indef_core::{
    SkipReason,
    layout::{Extent, ExtentFlags, Layout},
};
use units::{Bytes, FileRange};

use super::compression::{CompressionWay, MAX_COMPRESSED};

/// The length that the kernel rewrites in one go (`CLUSTER_SIZE`, fs/btrfs/defrag.c, v6.18). A sync
/// of the file system, a snapshot or a shortage of space for metadata writes everything dirty back,
/// and there may be one of these between any two clusters of ours. So a piece is only certain not
/// to end with more fragments than it had if it has as many as it has clusters.
pub(super) const CLUSTER: Bytes = Bytes::kib(256);

/// A part of a file without holes that is rewritten in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RewritePiece {
    pub(super) range: FileRange,
    /// Fragments when it was found.
    pub(super) fragments: u64,
    /// Compressed, all of it.
    pub(super) encoded: bool,
    pub(super) way: CompressionWay,
}

impl RewritePiece {
    /// Average length of its fragments.
    pub(super) fn average(&self) -> Bytes {
        Bytes(self.range.len.get() / self.fragments.max(1))
    }
}

/// The parts of a range that shall be moved, and why others shall not.
#[derive(Debug, Default)]
pub(super) struct Movable {
    pub(super) pieces: Vec<RewritePiece>,
    pub(super) reasons: Vec<SkipReason>,
    /// Fragments that a piece must win.
    at_least: u64,
}

/// Cut `range` at holes and at extents that must stay. `window` means that it is a part of a larger
/// one, of which each part has to pay for itself. `layout` covers one block more on either side: an
/// extent that continues there would be cut in two, which costs a fragment that the piece must win
/// back, or the file would end with more fragments than it had.
pub(super) fn movable(
    layout: &Layout,
    range: FileRange,
    allow_unshare: bool,
    window: bool,
) -> Movable {
    let mut found = Movable {
        at_least: u64::from(window),
        ..Movable::default()
    };
    cut(layout, range, allow_unshare, &mut found, finish);
    found
}

/// The same where each part is to be moved that can be, for the extents that come free.
pub(super) fn reclaimable(layout: &Layout, range: FileRange) -> Movable {
    let mut found = Movable::default();
    cut(layout, range, false, &mut found, |layout, run, found| {
        found.pieces.extend(piece(layout, run));
        run.clear();
    });
    found
}

fn cut(
    layout: &Layout,
    range: FileRange,
    allow_unshare: bool,
    found: &mut Movable,
    finish: impl Fn(&Layout, &mut Vec<Extent>, &mut Movable),
) {
    let mut run: Vec<Extent> = Vec::new();
    for extent in layout.clipped(range) {
        let stays = must_stay(&extent, allow_unshare);
        let continues = run.last().is_some_and(|last| {
            last.file_end() == extent.file && encoded(last) == encoded(&extent)
        });
        if stays.is_some() || !continues {
            finish(layout, &mut run, found);
        }
        match stays {
            Some(reason) => found.reasons.push(reason),
            None => run.push(extent),
        }
    }
    finish(layout, &mut run, found);
}

/// The piece of a run.
fn piece(layout: &Layout, run: &[Extent]) -> Option<RewritePiece> {
    let (first, last) = (run.first()?, run.last()?);
    let range = FileRange::between(first.file, last.file_end());
    Some(RewritePiece {
        range,
        fragments: layout.fragments_in(range),
        encoded: encoded(first),
        way: CompressionWay::Plain,
    })
}

/// Whether all of `range` may (still) be moved as `encoded` or plain data.
pub(super) fn still_movable(
    layout: &Layout,
    range: FileRange,
    encoded_piece: bool,
    allow_unshare: bool,
) -> Result<(), SkipReason> {
    let mut next = range.start;
    for extent in layout.clipped(range) {
        if let Some(reason) = must_stay(&extent, allow_unshare) {
            return Err(reason);
        }
        if extent.file != next || encoded(&extent) != encoded_piece {
            return Err(SkipReason::Changed);
        }
        next = extent.file_end();
    }
    if next == range.end() {
        Ok(())
    } else {
        Err(SkipReason::Changed)
    }
}

fn must_stay(extent: &Extent, allow_unshare: bool) -> Option<SkipReason> {
    let has = |flag| extent.flags.contains(flag);
    if has(ExtentFlags::INLINE) {
        Some(SkipReason::Inline)
    } else if has(ExtentFlags::UNWRITTEN) {
        Some(SkipReason::Unwritten)
    } else if has(ExtentFlags::UNPLACED) {
        // Being written right now: writeback gives it a place anyway.
        Some(SkipReason::Changed)
    } else if has(ExtentFlags::SHARED) && !allow_unshare {
        Some(SkipReason::Shared)
    } else {
        None
    }
}

fn encoded(extent: &Extent) -> bool {
    extent.flags.contains(ExtentFlags::ENCODED)
}

fn finish(layout: &Layout, run: &mut Vec<Extent>, found: &mut Movable) {
    let Some(piece) = piece(layout, run) else {
        return;
    };
    let range = piece.range;
    let count = layout.count(range);
    let wanted = -(found.at_least as i64);
    if piece.encoded && count.change_to(range.len.div_ceil(MAX_COMPRESSED)) >= 0 {
        found.reasons.push(SkipReason::Compressed);
    } else if count.fragments < 2 {
        found.reasons.push(SkipReason::Contiguous);
    } else if count.change_to(range.len.div_ceil(CLUSTER)) > wanted {
        found.reasons.push(SkipReason::NoGain);
    } else {
        found.pieces.push(piece);
    }
    run.clear();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_layout::{self, NONE};

    /// Extents of blocks: file, place, length, flags.
    fn layout(extents: &[(u64, u64, u64, ExtentFlags)]) -> Layout {
        let block = 4096;
        let extents = extents.iter();
        let bytes = extents
            .map(|&(file, phys, len, flags)| (file * block, phys * block, len * block, flags));
        test_layout::layout(&bytes.collect::<Vec<_>>())
    }

    fn blocks(start: u64, len: u64) -> FileRange {
        FileRange::new(start * 4096, len * 4096)
    }

    #[test]
    fn holes_unwritten_and_shared_parts_are_left_out() {
        let map = layout(&[
            (0, 100, 1, NONE),
            (1, 200, 1, NONE),
            (3, 300, 1, NONE),
            (4, 400, 1, NONE),
            (5, 500, 1, ExtentFlags::UNWRITTEN),
            (6, 600, 1, NONE),
            (7, 700, 1, ExtentFlags::SHARED),
            (8, 800, 1, NONE),
            (9, 900, 1, NONE),
        ]);
        let ranges = |allow| {
            let found = movable(&map, blocks(0, 10), allow, false);
            let ranges: Vec<_> = found.pieces.iter().map(|p| p.range).collect();
            (ranges, found.reasons)
        };
        let (pieces, reasons) = ranges(false);
        assert_eq!(pieces, [blocks(0, 2), blocks(3, 2), blocks(8, 2)]);
        assert!(reasons.contains(&SkipReason::Shared) && reasons.contains(&SkipReason::Unwritten));
        assert_eq!(ranges(true).0, [blocks(0, 2), blocks(3, 2), blocks(6, 4)]);
    }

    #[test]
    fn compressed_and_plain_parts_are_pieces_of_their_own() {
        let map = layout(&[
            (0, 100, 1, NONE),
            (1, 200, 1, NONE),
            (2, 300, 16, ExtentFlags::ENCODED),
            (18, 500, 16, ExtentFlags::ENCODED),
        ]);
        let found = movable(&map, blocks(0, 34), false, false);
        let pieces: Vec<_> = found.pieces.iter().map(|p| (p.range, p.encoded)).collect();
        assert_eq!(pieces, [(blocks(0, 2), false), (blocks(2, 32), true)]);
        // As long as they can be already.
        let map = layout(&[
            (0, 300, 32, ExtentFlags::ENCODED),
            (32, 500, 32, ExtentFlags::ENCODED),
        ]);
        let found = movable(&map, blocks(0, 64), false, false);
        assert_eq!(found.reasons, [SkipReason::Compressed]);
    }

    #[test]
    fn a_range_that_would_cut_as_much_as_it_joins_stays() {
        // Two extents, the range is the end of one and the beginning of the other.
        let map = layout(&[(0, 100, 48, NONE), (48, 300, 48, NONE)]);
        let found = movable(&map, blocks(32, 32), false, false);
        assert!(found.pieces.is_empty(), "{found:?}");
        assert_eq!(found.reasons, [SkipReason::NoGain]);
        // With one cut less it is as good as before for the file, and better for the range.
        let found = movable(&map, blocks(32, 64), false, false);
        assert_eq!(found.pieces.len(), 1);
    }

    #[test]
    fn what_a_sync_could_cut_into_more_pieces_stays() {
        // 64 blocks are a cluster.
        let map = layout(&[
            (0, 1000, 96, NONE),
            (96, 3000, 96, NONE),
            (192, 5000, 64, NONE),
        ]);
        let found = movable(&map, blocks(0, 256), false, false);
        assert_eq!(found.reasons, [SkipReason::NoGain]);
        let map = layout(&[
            (0, 1000, 96, NONE),
            (96, 3000, 32, NONE),
            (128, 5000, 64, NONE),
            (192, 7000, 64, NONE),
        ]);
        assert_eq!(movable(&map, blocks(0, 256), false, false).pieces.len(), 1);
    }

    #[test]
    fn to_give_space_back_contiguous_parts_move_and_shared_ones_stay() {
        let map = layout(&[
            (0, 100, 300, NONE),
            (300, 900, 1, ExtentFlags::SHARED),
            (301, 1000, 1, NONE),
            (302, 1200, 8, ExtentFlags::ENCODED),
            (310, 1300, 1, ExtentFlags::UNWRITTEN),
        ]);
        let found = reclaimable(&map, blocks(0, 400));
        let pieces: Vec<_> = found.pieces.iter().map(|p| (p.range, p.encoded)).collect();
        let wanted = [
            (blocks(0, 300), false),
            (blocks(301, 1), false),
            (blocks(302, 8), true),
        ];
        assert_eq!(pieces, wanted);
        assert_eq!(found.reasons, [SkipReason::Shared, SkipReason::Unwritten]);
        assert!(
            movable(&map, blocks(0, 300), false, false)
                .pieces
                .is_empty()
        );
    }

    #[test]
    fn what_changed_meanwhile_is_seen() {
        let map = layout(&[(0, 100, 1, NONE), (1, 200, 1, ExtentFlags::SHARED)]);
        let check = |range, allow| still_movable(&map, range, false, allow);
        assert_eq!(check(blocks(0, 2), false), Err(SkipReason::Shared));
        assert_eq!(check(blocks(0, 2), true), Ok(()));
        assert_eq!(check(blocks(0, 3), true), Err(SkipReason::Changed));
        assert_eq!(
            still_movable(&map, blocks(0, 1), true, false),
            Err(SkipReason::Changed)
        );
    }
}
