//! `EXT4_IOC_MOVE_EXT`: swap the blocks of two ext4 files (fs/ext4/ext4.h, v6.1).

use std::{
    io,
    mem::{offset_of, size_of},
    os::fd::{AsFd, AsRawFd},
};

use crate::ioctl;

/// `struct move_extent`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct MoveExtent {
    reserved: u32,
    donor_fd: u32,
    orig_start: u64,
    donor_start: u64,
    len: u64,
    moved_len: u64,
}

const _: () = {
    assert!(size_of::<MoveExtent>() == 40);
    assert!(offset_of!(MoveExtent, orig_start) == 8);
    assert!(offset_of!(MoveExtent, moved_len) == 32);
};

// SAFETY: EXT4_IOC_MOVE_EXT is _IOWR('f', 15, struct move_extent); the kernel writes only
// `moved_len`, and a file descriptor that is not one is refused with EBADF.
unsafe impl ioctl::IoctlArgument for MoveExtent {
    const REQUEST: u32 = ioctl::request(
        ioctl::READ | ioctl::WRITE,
        b'f',
        15,
        size_of::<MoveExtent>(),
    );
}

/// Swap `blocks` file system blocks from `start` (in blocks) of `file` with those from
/// `donor_start` of `donor`; returns how many were swapped, which may be fewer.
///
/// # Errors
///
/// What the kernel said; some blocks may have been swapped before.
pub fn move_extent(
    file: impl AsFd,
    donor: impl AsFd,
    start: u64,
    donor_start: u64,
    blocks: u64,
) -> io::Result<u64> {
    let mut argument = MoveExtent {
        reserved: 0,
        donor_fd: donor.as_fd().as_raw_fd() as u32,
        orig_start: start,
        donor_start,
        len: blocks,
        moved_len: 0,
    };
    ioctl::call(file, &mut argument)?;
    Ok(argument.moved_len)
}
