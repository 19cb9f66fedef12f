//! Is there room in one piece?
//!
//! Btrfs looks for a free extent as long as what is written in one go, then makes a new block group
//! if the device has unallocated space, and only then takes two halves, and so on (`cow_file_range`
//! and `find_free_extent` in fs/btrfs, v6.18). So the result is good if any free extent is long
//! enough, and what matters is the longest one: root can read it in the free space tree, as of the
//! last commit. Without root only the amount is known, and what a first, small batch becomes.

use std::fs::File;

use linux_abi::btrfs::{data_block_groups, free_extents, unallocated};
use units::Bytes;

use crate::{Space, Target};

/// Free space that must remain: the tree needs blocks of its own while data moves.
const RESERVE: Bytes = Bytes::mib(16);
/// Free extents that are looked at before giving up: a look must not cost more than a move.
const LOOK_AT: usize = 20_000;

/// What is known of the free space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// In one piece, or most probably so.
    Enough,
    /// Only the amount is known, and it is not plenty: begin with little.
    Perhaps,
    /// Only in pieces of at most this length.
    Pieces(Bytes),
    /// Too little.
    Short,
}

/// Whether `wanted` bytes find room in one piece.
pub(super) fn room(target: &Target, wanted: Bytes) -> Room {
    let Ok(space) = Space::of(&target.file) else {
        return Room::Perhaps;
    };
    if space.free < wanted.saturating_add(RESERVE) {
        return Room::Short;
    }
    let group = wanted.saturating_add(RESERVE);
    if unallocated(&target.file).is_ok_and(|bytes| bytes >= group.get()) {
        return Room::Enough;
    }
    match longest(&target.file, wanted) {
        Some(longest) if longest >= wanted => Room::Enough,
        Some(longest) => Room::Pieces(longest),
        None => Room::Perhaps,
    }
}

/// The longest free extent among data block groups, or the first that is long enough; `None` where
/// it cannot be known.
fn longest(file: &File, wanted: Bytes) -> Option<Bytes> {
    let groups = data_block_groups(file).ok()?;
    let (mut longest, mut looked_at) = (0, 0);
    for (start, len) in groups {
        free_extents(file, start, len, |_, free| {
            longest = longest.max(free);
            looked_at += 1;
            longest < wanted.get() && looked_at < LOOK_AT
        })
        .ok()?;
        if looked_at >= LOOK_AT {
            return (longest >= wanted.get()).then_some(Bytes(longest));
        }
        if longest >= wanted.get() {
            break;
        }
    }
    Some(Bytes(longest))
}
