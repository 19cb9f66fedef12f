//! Layouts for tests.

use indef_core::layout::{Extent, ExtentFlags, Layout};
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
