//! Sharing blocks between files: `FICLONERANGE`, `FIDEDUPERANGE` (linux/fs.h, v6.1).

use std::{
    io,
    mem::{offset_of, size_of},
    os::fd::{AsFd, AsRawFd},
};

use crate::{
    abi::AbiItem,
    ioctl::{self, IoctlArgument, READ, WRITE},
};

/// `struct file_clone_range`.
#[repr(C)]
struct RawClone {
    from: i64,
    from_offset: u64,
    length: u64,
    to_offset: u64,
}

// SAFETY: FICLONERANGE is _IOW(0x94, 13, struct file_clone_range), 32 bytes of plain integers.
unsafe impl IoctlArgument for RawClone {
    const REQUEST: u32 = ioctl::request(WRITE, 0x94, 13, size_of::<Self>());
}

/// Let a range of `to` share the blocks of the same range of `from`. The range is block-aligned, but it
/// may end with `from`.
///
/// # Errors
///
/// `EOPNOTSUPP` where the file system cannot, `EINVAL` where the range does not fit.
pub fn clone_range(from: impl AsFd, to: impl AsFd, offset: u64, length: u64) -> io::Result<()> {
    let mut raw = RawClone {
        from: from.as_fd().as_raw_fd().into(),
        from_offset: offset,
        length,
        to_offset: offset,
    };
    ioctl::call(to, &mut raw).map(drop)
}

/// `struct file_dedupe_range` with one `struct file_dedupe_range_info`.
#[repr(C)]
struct RawDedupe {
    from_offset: u64,
    length: u64,
    count: u16,
    reserved1: u16,
    reserved2: u32,
    to: i64,
    to_offset: u64,
    deduped: u64,
    status: i32,
    reserved: u32,
}

const _: () = {
    assert!(size_of::<RawClone>() == 32);
    assert!(size_of::<RawDedupe>() == 24 + 32);
    assert!(offset_of!(RawDedupe, to) == 24);
    assert!(offset_of!(RawDedupe, status) == 48);
};

// SAFETY: FIDEDUPERANGE is _IOWR(0x94, 54, struct file_dedupe_range) with a flexible array after
// the 24-byte header; `count` is always 1, as many as there are.
unsafe impl IoctlArgument for RawDedupe {
    const REQUEST: u32 = ioctl::request(READ | WRITE, 0x94, 54, 24);
}

/// Structures and numbers of this module, for `cargo xtask abi-check`. (`FIDEDUPERANGE` carries the size of its header only.)
pub const ABI: &[AbiItem] = &[AbiItem {
    header: "linux/fs.h",
    c_type: "struct file_clone_range",
    size: size_of::<RawClone>(),
    fields: &[("dest_offset", offset_of!(RawClone, to_offset))],
    requests: &[("FICLONERANGE", RawClone::REQUEST)],
}];

/// The result of a comparison of two ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    /// They were equal, and share their blocks now.
    Shared,
    /// They differ, and nothing was changed.
    Different,
}

/// Compare `length` bytes of `from` with as many of `to`, and let `to` share the blocks of `from` if they are
/// equal. The range is block-aligned, but it may end with both files.
///
/// # Errors
///
/// `EOPNOTSUPP` where the file system cannot, `EINVAL` where a file has no such range or the two cannot share,
/// and others.
pub fn dedupe_range(
    from: impl AsFd,
    from_offset: u64,
    to: impl AsFd,
    to_offset: u64,
    length: u64,
) -> io::Result<Compared> {
    let mut raw = RawDedupe {
        from_offset,
        length,
        count: 1,
        reserved1: 0,
        reserved2: 0,
        to: to.as_fd().as_raw_fd().into(),
        to_offset,
        deduped: 0,
        status: 0,
        reserved: 0,
    };
    ioctl::call(from, &mut raw)?;
    match raw.status {
        0 => Ok(Compared::Shared),
        1 => Ok(Compared::Different),
        error => Err(io::Error::from_raw_os_error(error.saturating_neg())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_those_of_the_header() {
        assert_eq!(RawClone::REQUEST, 0x4020_940D);
        assert_eq!(RawDedupe::REQUEST, 0xC018_9436);
    }
}
