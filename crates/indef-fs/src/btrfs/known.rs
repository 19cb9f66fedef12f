//! Have the kernel know where the end of a file lies, before it is asked to rewrite it.
//!
//! DEFRAG_RANGE looks for the extent at the beginning of each cluster: in the memory of the inode, and if it is not
//! known there, in the tree. There it finds the item at that offset or, between two offsets, the one before; but only
//! if the item behind is of the same file (`defrag_get_extent`, fs/btrfs/defrag.c). Behind the last extent of a file
//! lies an item of another inode, so of that extent it rewrites the first cluster alone, and says nothing (seen on
//! 6.18; each further call rewrites one cluster more).
//!
//! Who reads a page from the device makes its extent known, so this takes pages that are cached when the extent is
//! not known any more: after a balance, which gives data another place, until the pages go.

use std::io;

use rustix::{fs::OFlags, io::pread};
use units::FileRange;

use crate::{Target, root::reopen};

/// Read the last block of a range past the page cache: that makes its extent known, whatever is cached.
pub(super) fn make_known(target: &Target, range: FileRange) -> io::Result<()> {
    let block = target.block_size.get();
    let file = reopen(
        &target.file,
        OFlags::RDONLY | OFlags::DIRECT | OFlags::NOATIME,
    )?;
    let length = block as usize;
    // Written once, as a read into memory that was never touched is a buffered one.
    let mut memory = vec![1; 2 * length];
    let start = memory.as_ptr().align_offset(length);
    let at = range.end().get().saturating_sub(1) / block * block;
    pread(file, &mut memory[start..start + length], at)?;
    Ok(())
}
