//! The extents that a file holds and reaches only in part, from its subvolume's tree. FIEMAP tells
//! what a file reaches, and not of what that is a part.
//!
//! The tree has what is written back. It is asked for one file; which files need not be asked for,
//! since they reach all of their extents, [`TreeInodes`](super::inodes::TreeInodes) tells of many at
//! once.

use std::{io, os::fd::AsFd};

use indef_core::layout::{ExtentFlags, ExtentRef, HeldExtent, HeldExtents};
use linux_abi::btrfs::{FileExtent, file_extents};
use units::{Bytes, FileRange, PhysOffset};

/// The extents that the file reaches only in part.
pub(crate) fn partly_reached(file: impl AsFd, inode: u64) -> io::Result<Vec<HeldExtent>> {
    let mut held = HeldExtents::default();
    file_extents(file, inode, |extent| {
        if let Some(reference) = reference(&extent) {
            held.add(reference);
        }
    })?;
    Ok(held.partly_reached())
}

fn reference(extent: &FileExtent) -> Option<ExtentRef> {
    let backing = extent.backing?;
    let mut flags = ExtentFlags::empty();
    flags.set(ExtentFlags::UNWRITTEN, !backing.is_written);
    flags.set(ExtentFlags::ENCODED, backing.is_encoded);
    Some(ExtentRef {
        range: FileRange::new(extent.offset, extent.len),
        extent: PhysOffset(backing.address),
        allocated: Bytes(backing.allocated),
        data_len: Bytes(backing.data_len),
        from: Bytes(backing.from),
        flags,
    })
}
