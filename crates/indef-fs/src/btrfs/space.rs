//! Is there room in long pieces?
//!
//! Btrfs looks for a free extent as long as the data that is written in one go, then makes a new
//! block group if the device has unallocated space, and only then takes two halves, and so on
//! (`cow_file_range` and `find_free_extent` in fs/btrfs, v6.18). So what matters is how much is
//! free in pieces that are several times as long as the fragments to be moved. Root can read that
//! in the free space tree, as of the last commit; space that is freed by moving is not free before
//! the next one. Without root only the amount is known, and the outcome of a first, small batch.

use std::fs::File;

use linux_abi::btrfs::{data_block_groups, free_extents, unallocated};
use units::Bytes;

use crate::{Space, Target};

/// Free space that must remain: the tree needs blocks of its own while data moves.
pub(super) const RESERVE: Bytes = Bytes::mib(16);
/// The same where space is given back: a full file system is where that is wanted most.
pub(super) const LEAST_RESERVE: Bytes = Bytes::mib(1);
/// Free extents that are looked at before giving up: a look must not cost more than a move.
const LOOK_AT: usize = 100_000;

/// Whether there is room, as far as is known of the free space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// In long pieces.
    Enough,
    /// Only the amount is known: begin with little, and look.
    Perhaps,
    /// Too little, or in too small pieces.
    Short,
}

/// Whether `wanted` bytes find places of at least `length`, with `reserve` left over.
pub(super) fn room(target: &Target, wanted: Bytes, length: Bytes, reserve: Bytes) -> Room {
    if !amount(target, wanted, reserve) {
        return Room::Short;
    }
    let group = wanted.saturating_add(reserve);
    if unallocated(&target.file).is_ok_and(|bytes| bytes >= group.get()) {
        return Room::Enough;
    }
    let half_more = Bytes(wanted.get().saturating_add(wanted.get() / 2));
    match in_long_pieces(&target.file, length, half_more) {
        Some(true) => Room::Enough,
        Some(false) => Room::Short,
        // A place for many small fragments is found sooner than one for a few large ones.
        None if length < Bytes::mib(4) => Room::Perhaps,
        None => Room::Short,
    }
}

/// Whether there are `wanted` bytes at all, and `reserve`.
pub(super) fn amount(target: &Target, wanted: Bytes, reserve: Bytes) -> bool {
    Space::of(&target.file).is_ok_and(|space| space.free >= wanted.saturating_add(reserve))
}

/// Whether free extents of at least `length` have `wanted` bytes in all; `None` where it cannot be
/// known.
fn in_long_pieces(file: &File, length: Bytes, wanted: Bytes) -> Option<bool> {
    let (mut found, mut looked_at) = (0_u64, 0);
    for (start, len) in data_block_groups(file).ok()? {
        free_extents(file, start, len, |_, free| {
            if free >= length.get() {
                found = found.saturating_add(free);
            }
            looked_at += 1;
            found < wanted.get() && looked_at < LOOK_AT
        })
        .ok()?;
        if found >= wanted.get() || looked_at >= LOOK_AT {
            break;
        }
    }
    Some(found >= wanted.get())
}
