//! `EXT4_IOC_MOVE_EXT`: swap block mappings of two files, moving the data along
//! (fs/ext4/ext4.h, v6.1; linux/ext4.h where a newer installation has it). [`disk`] has the structures on
//! the device.

use std::{
    io,
    mem::{offset_of, size_of},
    os::fd::{AsFd, AsRawFd},
};

use crate::{abi::AbiItem, ioctl};

pub mod disk;

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
    assert!(offset_of!(MoveExtent, donor_fd) == 4);
    assert!(offset_of!(MoveExtent, orig_start) == 8);
    assert!(offset_of!(MoveExtent, moved_len) == 32);
    assert!(<MoveExtent as ioctl::IoctlArgument>::REQUEST == 0xC028_660F);
};

/// Structures and numbers of this module, for `cargo xtask abi-check`.
pub const ABI: &[AbiItem] = &[AbiItem {
    header: "linux/ext4.h",
    c_type: "struct move_extent",
    size: size_of::<MoveExtent>(),
    fields: &[
        ("reserved", offset_of!(MoveExtent, reserved)),
        ("donor_fd", offset_of!(MoveExtent, donor_fd)),
        ("orig_start", offset_of!(MoveExtent, orig_start)),
        ("donor_start", offset_of!(MoveExtent, donor_start)),
        ("len", offset_of!(MoveExtent, len)),
        ("moved_len", offset_of!(MoveExtent, moved_len)),
    ],
    requests: &[(
        "EXT4_IOC_MOVE_EXT",
        <MoveExtent as ioctl::IoctlArgument>::REQUEST,
    )],
}];

// SAFETY: EXT4_IOC_MOVE_EXT is _IOWR('f', 15, struct move_extent); the kernel reads and writes
// these 40 bytes and nothing else, and every bit pattern is valid for plain integers.
unsafe impl ioctl::IoctlArgument for MoveExtent {
    const REQUEST: u32 = ioctl::request(
        ioctl::READ | ioctl::WRITE,
        b'f',
        15,
        size_of::<MoveExtent>(),
    );
}

/// The outcome of a call.
#[derive(Debug)]
pub struct MoveResult {
    /// Blocks that changed place, even if the call failed in the end. Holes do not count.
    pub moved_blocks: u64,
    /// Whether the call succeeded.
    pub result: io::Result<()>,
}

/// Swap the places of `blocks` blocks of `file` from `file_block` on with those of `donor` from
/// `donor_block` on; the data stays with `file`. Both offsets must be the
/// same modulo blocks per page.
pub fn move_extents(
    file: impl AsFd,
    donor: impl AsFd,
    file_block: u64,
    donor_block: u64,
    blocks: u64,
) -> MoveResult {
    let mut argument = MoveExtent {
        donor_fd: donor.as_fd().as_raw_fd() as u32,
        orig_start: file_block,
        donor_start: donor_block,
        len: blocks,
        ..MoveExtent::default()
    };
    let result = ioctl::call(file, &mut argument).map(drop);
    MoveResult {
        moved_blocks: argument.moved_len,
        result,
    }
}
