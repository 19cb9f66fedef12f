//! F2FS as it lies on its device: the superblock (include/linux/f2fs_fs.h, v6.1), as far as a reader of
//! devices and sections needs it.
//!
//! Integers are little-endian and stand at any address. Members have the kernel's names. Nothing is
//! checked here.

use std::mem::{offset_of, size_of};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::U32};

/// `struct f2fs_super_block`, at each of [`SuperBlock::OFFSETS`].
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
pub struct SuperBlock {
    /// [`SuperBlock::MAGIC`].
    pub magic: U32,
    reserved_4: [u8; 12],
    /// Base 2 logarithm of a block's bytes.
    pub log_blocksize: U32,
    /// Base 2 logarithm of a segment's blocks.
    pub log_blocks_per_seg: U32,
    /// Segments of a section.
    pub segs_per_sec: U32,
    reserved_28: [u8; 44],
    /// The block at which the first device's segments begin.
    pub segment0_blkaddr: U32,
    reserved_76: [u8; 16],
    /// The block at which the main area begins: the segments of data and nodes.
    pub main_blkaddr: U32,
    reserved_96: [u8; 2105],
    /// The devices in the order of their addresses; none has a path if there is one only.
    pub devs: [SuperBlockDevice; 8],
    reserved_2745: [u8; 327],
}

/// `struct f2fs_device`.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
pub struct SuperBlockDevice {
    /// The path that mkfs was given, up to the first zero.
    pub path: [u8; 64],
    /// Segments on it.
    pub total_segments: U32,
}

impl SuperBlock {
    /// Where its copies lie on the device, in bytes: `F2FS_SUPER_OFFSET` in the first two blocks.
    pub const OFFSETS: [u64; 2] = [1024, 4096 + 1024];
    /// `F2FS_SUPER_MAGIC`.
    pub const MAGIC: u32 = 0xF2F5_2010;

    /// The superblock at the beginning of these bytes, if all of it is there.
    #[must_use]
    pub fn first_of(bytes: &[u8]) -> Option<&Self> {
        Self::ref_from_prefix(bytes).ok().map(|(first, _)| first)
    }
}

const _: () = {
    assert!(size_of::<SuperBlock>() == 3072);
    assert!(size_of::<SuperBlockDevice>() == 68);
    assert!(offset_of!(SuperBlock, log_blocksize) == 16);
    assert!(offset_of!(SuperBlock, segs_per_sec) == 24);
    assert!(offset_of!(SuperBlock, segment0_blkaddr) == 72);
    assert!(offset_of!(SuperBlock, devs) == 2201);
};
