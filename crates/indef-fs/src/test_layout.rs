//! Layouts for tests, and what a device tells of who has its blocks.

use indef_core::layout::{Extent, ExtentFlags, Layout};
use linux_abi::fsmap::Reference;
use units::{Bytes, FileOffset, PhysOffset};

/// No flags.
pub(crate) const NONE: ExtentFlags = ExtentFlags::empty();

/// Bytes of a file from `file` on, which lie at `phys`.
pub(crate) const fn extent(file: u64, phys: u64, len: u64, flags: ExtentFlags) -> Extent {
    Extent {
        file: FileOffset(file),
        phys: PhysOffset(phys),
        len: Bytes(len),
        flags,
    }
}

/// A layout of such extents.
pub(crate) fn layout(extents: &[(u64, u64, u64, ExtentFlags)]) -> Layout {
    let extents = extents.iter();
    Layout::new(
        extents
            .map(|&(file, phys, len, flags)| extent(file, phys, len, flags))
            .collect(),
    )
}

/// Some of the device that a file has, from a byte of it on.
pub(crate) const fn reference(start: u64, len: u64, inode: u64, offset: u64) -> Reference {
    Reference {
        start,
        len,
        data: Some((inode, offset)),
        is_written: true,
    }
}
