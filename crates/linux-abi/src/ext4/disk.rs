//! ext4 as it lies on its device: superblock, group descriptors, inodes and the nodes of extent trees
//! (fs/ext4/ext4.h and fs/ext4/ext4_extents.h, v6.1), as far as a reader of inode tables needs them.
//!
//! Integers are little-endian and stand at any address. Members have the kernel's names without their
//! prefix; halves of a number are joined by a method. Nothing is checked here.

use std::mem::{offset_of, size_of};

use zerocopy::{
    FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned,
    little_endian::{U16, U32},
};

use crate::abi::AbiItem;

bitflags::bitflags! {
    /// `s_feature_incompat`: features without which a file system cannot be read.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Incompat: u32 {
        /// Group descriptors lie in their groups, not all of them after the superblock.
        const META_BG = 0x10;
        /// Files may have extent trees.
        const EXTENTS = 0x40;
        /// Block numbers have 64 bits, and group descriptors [`SuperBlock::desc_size`] bytes.
        const BIT64 = 0x80;
        /// The seed of checksums is [`SuperBlock::checksum_seed`] instead of that of the UUID.
        const CSUM_SEED = 0x2000;
    }
}

bitflags::bitflags! {
    /// `s_feature_ro_compat`: features without which a file system cannot be written.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RoCompat: u32 {
        /// Metadata has checksums.
        const METADATA_CSUM = 0x400;
    }
}

bitflags::bitflags! {
    /// Flags of an inode (`i_flags`, and `FS_IOC_GETFLAGS`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct InodeFlags: u32 {
        /// The data is encrypted.
        const ENCRYPT = 0x800;
        /// The data goes through the journal.
        const JOURNAL_DATA = 0x4000;
        /// The block count is in blocks of the file system instead of sectors.
        const HUGE_FILE = 0x4_0000;
        /// The file has an extent tree.
        const EXTENTS = 0x8_0000;
        /// The data lies in the inode.
        const INLINE_DATA = 0x1000_0000;
    }
}

/// `struct ext4_super_block`, at [`SuperBlock::OFFSET`].
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout, Unaligned)]
pub struct SuperBlock {
    inodes_count: U32,
    blocks_count_lo: U32,
    reserved_08: [u8; 0x0C],
    /// The block of the superblock: group 0 begins there.
    pub first_data_block: U32,
    /// The block size is 1 KiB to the left by so many bits.
    pub log_block_size: U32,
    reserved_1c: [u8; 4],
    /// Blocks of each group but the last.
    pub blocks_per_group: U32,
    reserved_24: [u8; 4],
    /// Inodes of each group.
    pub inodes_per_group: U32,
    reserved_2c: [u8; 0x0C],
    /// [`SuperBlock::MAGIC`].
    pub magic: U16,
    reserved_3a: [u8; 0x1E],
    /// Bytes of an inode.
    pub inode_size: U16,
    reserved_5a: [u8; 6],
    feature_incompat: U32,
    feature_ro_compat: U32,
    /// UUID of the file system.
    pub uuid: [u8; 16],
    reserved_78: [u8; 0x86],
    /// Bytes of a group descriptor, with [`Incompat::BIT64`].
    pub desc_size: U16,
    reserved_100: [u8; 0x50],
    blocks_count_hi: U32,
    reserved_154: [u8; 0x11C],
    /// Seed of checksums, with [`Incompat::CSUM_SEED`].
    pub checksum_seed: U32,
    reserved_274: [u8; 0x18C],
}

impl SuperBlock {
    /// Where it lies on the device, in bytes.
    pub const OFFSET: u64 = 1024;
    /// `EXT4_SUPER_MAGIC`.
    pub const MAGIC: u16 = 0xEF53;

    /// The superblock at the beginning of these bytes, if all of it is there.
    #[must_use]
    pub fn first_of(bytes: &[u8]) -> Option<&Self> {
        first_of(bytes)
    }

    /// `s_feature_incompat`.
    #[must_use]
    pub fn incompat(&self) -> Incompat {
        Incompat::from_bits_retain(self.feature_incompat.get())
    }

    /// `s_feature_ro_compat`.
    #[must_use]
    pub fn ro_compat(&self) -> RoCompat {
        RoCompat::from_bits_retain(self.feature_ro_compat.get())
    }

    /// `s_blocks_count`: the upper half counts with [`Incompat::BIT64`] only.
    #[must_use]
    pub fn blocks_count(&self) -> u64 {
        match self.incompat().contains(Incompat::BIT64) {
            true => join(self.blocks_count_hi.get(), self.blocks_count_lo),
            false => self.blocks_count_lo.get().into(),
        }
    }
}

/// `struct ext4_group_desc`.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
pub struct GroupDesc {
    reserved_00: [u8; 8],
    inode_table_lo: U32,
    reserved_0c: [u8; 0x1C],
    inode_table_hi: U32,
    reserved_2c: [u8; 0x14],
}

impl GroupDesc {
    /// Bytes of a descriptor without [`Incompat::BIT64`], which has no upper halves.
    pub const SHORT: usize = 32;

    /// The descriptor in these bytes. What a short one lacks is zero.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Self {
        let mut descriptor = Self::new_zeroed();
        let len = bytes.len().min(size_of::<Self>());
        descriptor.as_mut_bytes()[..len].copy_from_slice(&bytes[..len]);
        descriptor
    }

    /// The first block of the group's inode table.
    #[must_use]
    pub fn inode_table(&self) -> u64 {
        join(self.inode_table_hi.get(), self.inode_table_lo)
    }
}

/// `struct ext4_inode`, the part that every inode has.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout, Unaligned)]
pub struct Inode {
    mode: U16,
    uid: U16,
    size_lo: U32,
    atime: U32,
    /// Seconds of the change time, the lower 32 bits.
    pub ctime: U32,
    reserved_10: [u8; 0x0A],
    /// Names.
    pub links_count: U16,
    blocks_lo: U32,
    flags: U32,
    reserved_24: [u8; 4],
    /// `i_block`, of a file with [`InodeFlags::EXTENTS`].
    pub extents: ExtentRoot,
    /// Another one for each file that gets the number.
    pub generation: U32,
    reserved_68: [u8; 4],
    size_high: U32,
    reserved_70: [u8; 4],
    blocks_high: U16,
    reserved_76: [u8; 0x0A],
}

impl Inode {
    /// The inode at the beginning of these bytes, if all of it is there.
    #[must_use]
    pub fn first_of(bytes: &[u8]) -> Option<&Self> {
        first_of(bytes)
    }

    /// Whether it is a regular file's.
    #[must_use]
    pub fn is_regular(&self) -> bool {
        u32::from(self.mode.get()) & libc::S_IFMT == libc::S_IFREG
    }

    /// `i_flags`.
    #[must_use]
    pub fn flags(&self) -> InodeFlags {
        InodeFlags::from_bits_retain(self.flags.get())
    }

    /// Bytes of a regular file.
    #[must_use]
    pub fn size(&self) -> u64 {
        join(self.size_high.get(), self.size_lo)
    }

    /// Allocated sectors of 512 bytes, without [`InodeFlags::HUGE_FILE`].
    #[must_use]
    pub fn sectors(&self) -> u64 {
        join(self.blocks_high.get(), self.blocks_lo)
    }
}

/// `struct ext4_inode` from its byte 128 on, in file systems with larger inodes.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout, Unaligned)]
pub struct InodeExtra {
    extra_isize: U16,
    checksum_hi: U16,
    ctime_extra: U32,
    reserved_88: [u8; 0x18],
}

impl InodeExtra {
    /// That of the inode that has all these bytes, if it is large enough.
    #[must_use]
    pub fn of(inode: &[u8]) -> Option<&Self> {
        first_of(inode.get(size_of::<Inode>()..)?)
    }

    /// Nanoseconds of the change time, if the inode has them.
    #[must_use]
    pub fn ctime_nanos(&self) -> Option<u32> {
        let end = offset_of!(Self, ctime_extra) + size_of::<U32>();
        // The two lower bits extend the seconds.
        (usize::from(self.extra_isize.get()) >= end).then(|| self.ctime_extra.get() >> 2)
    }
}

/// `struct ext4_extent_header`: a node of an extent tree begins with it. Entries of the same size follow:
/// extents where the depth is 0, else nodes of the next depth.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout, Unaligned)]
struct ExtentHeader {
    magic: U16,
    entries: U16,
    max: U16,
    depth: U16,
    generation: U32,
}

impl ExtentHeader {
    /// `EXT4_EXT_MAGIC`.
    const MAGIC: u16 = 0xF30A;
}

/// `struct ext4_extent_idx`.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout, Unaligned)]
struct ExtentIndex {
    block: U32,
    leaf_lo: U32,
    leaf_hi: U16,
    unused: U16,
}

/// The node of an extent tree that lies in the inode.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
pub struct ExtentRoot([u8; size_of::<ExtentHeader>() + 4 * size_of::<ExtentEntry>()]);

impl ExtentRoot {
    /// The extents, if all of the tree is here.
    #[must_use]
    pub fn leaf(&self) -> Option<&[ExtentEntry]> {
        self.node()?.leaf()
    }

    /// The node, if it is one.
    #[must_use]
    pub fn node(&self) -> Option<ExtentNode<'_>> {
        ExtentNode::first_of(&self.0)
    }
}

/// A node of an extent tree.
#[derive(Clone, Copy, Debug)]
pub struct ExtentNode<'a> {
    /// Nodes between it and the extents; 0 where it has these itself.
    pub depth: u16,
    /// The bytes that are in use: its header and its entries.
    pub bytes: &'a [u8],
    /// Entries that there is room for.
    max: u16,
}

impl<'a> ExtentNode<'a> {
    /// The node at the beginning of these bytes, if it is one and all of it is there.
    #[must_use]
    pub fn first_of(bytes: &'a [u8]) -> Option<Self> {
        let header = first_of::<ExtentHeader>(bytes)?;
        let len = usize::from(header.entries.get()) * size_of::<ExtentEntry>();
        let is_node = header.magic.get() == ExtentHeader::MAGIC;
        Some(Self {
            depth: header.depth.get(),
            bytes: bytes.get(..size_of::<ExtentHeader>() + len)?,
            max: header.max.get(),
        })
        .filter(|_| is_node)
    }

    /// The extents of a node that has them itself.
    #[must_use]
    pub fn leaf(&self) -> Option<&'a [ExtentEntry]> {
        self.entries().filter(|_| self.depth == 0)
    }

    /// The blocks on the device with the nodes of the next depth; none where it has the extents itself.
    pub fn children(&self) -> impl Iterator<Item = u64> + use<'a> {
        let entries = self.entries::<ExtentIndex>().filter(|_| self.depth > 0);
        let blocks = entries.unwrap_or_default().iter();
        blocks.map(|index| join(index.leaf_hi.get(), index.leaf_lo))
    }

    /// The bytes of this node of `block` that its checksum is of, and this (`struct ext4_extent_tail`, which
    /// follows the last entry that there is room for): CRC-32C of them, begun with that of the file.
    #[must_use]
    pub fn checksum<'b>(&self, block: &'b [u8]) -> Option<(&'b [u8], u32)> {
        let end = size_of::<ExtentHeader>() + usize::from(self.max) * size_of::<ExtentEntry>();
        let covered = block.get(..end).filter(|_| self.bytes.len() <= end)?;
        let checksum = first_of::<U32>(block.get(end..)?)?;
        Some((covered, checksum.get()))
    }

    fn entries<T: FromBytes + Immutable + KnownLayout + Unaligned>(&self) -> Option<&'a [T]> {
        <[T]>::ref_from_bytes(&self.bytes[size_of::<ExtentHeader>()..]).ok()
    }
}

/// `struct ext4_extent`.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout, Unaligned)]
pub struct ExtentEntry {
    /// The first block in the file.
    pub block: U32,
    len: U16,
    start_hi: U16,
    start_lo: U32,
}

impl ExtentEntry {
    /// `EXT_INIT_MAX_LEN`: what is longer is unwritten, and so much shorter than it says.
    const WRITTEN_MAX: u16 = 0x8000;

    /// Blocks.
    #[must_use]
    pub fn blocks(&self) -> u16 {
        match self.is_unwritten() {
            true => self.len.get() - Self::WRITTEN_MAX,
            false => self.len.get(),
        }
    }

    /// Whether the blocks are only allocated.
    #[must_use]
    pub fn is_unwritten(&self) -> bool {
        self.len.get() > Self::WRITTEN_MAX
    }

    /// The first block on the device.
    #[must_use]
    pub fn start(&self) -> u64 {
        join(self.start_hi.get(), self.start_lo)
    }
}

fn first_of<T: FromBytes + Immutable + KnownLayout + Unaligned>(bytes: &[u8]) -> Option<&T> {
    T::ref_from_prefix(bytes).ok().map(|(first, _)| first)
}

/// A number whose upper half lies elsewhere.
fn join(high: impl Into<u64>, low: U32) -> u64 {
    high.into() << 32 | u64::from(low.get())
}

const _: () = {
    assert!(size_of::<SuperBlock>() == 1024);
    assert!(offset_of!(SuperBlock, blocks_count_lo) == 0x4);
    assert!(offset_of!(SuperBlock, first_data_block) == 0x14);
    assert!(offset_of!(SuperBlock, log_block_size) == 0x18);
    assert!(offset_of!(SuperBlock, blocks_per_group) == 0x20);
    assert!(offset_of!(SuperBlock, inodes_per_group) == 0x28);
    assert!(offset_of!(SuperBlock, magic) == 0x38);
    assert!(offset_of!(SuperBlock, inode_size) == 0x58);
    assert!(offset_of!(SuperBlock, feature_incompat) == 0x60);
    assert!(offset_of!(SuperBlock, feature_ro_compat) == 0x64);
    assert!(offset_of!(SuperBlock, uuid) == 0x68);
    assert!(offset_of!(SuperBlock, desc_size) == 0xFE);
    assert!(offset_of!(SuperBlock, blocks_count_hi) == 0x150);
    assert!(offset_of!(SuperBlock, checksum_seed) == 0x270);
    assert!(size_of::<GroupDesc>() == 64);
    assert!(offset_of!(GroupDesc, inode_table_lo) == 0x8);
    assert!(offset_of!(GroupDesc, inode_table_hi) == 0x28);
    assert!(size_of::<Inode>() == 128);
    assert!(offset_of!(Inode, size_lo) == 0x4);
    assert!(offset_of!(Inode, ctime) == 0xC);
    assert!(offset_of!(Inode, links_count) == 0x1A);
    assert!(offset_of!(Inode, blocks_lo) == 0x1C);
    assert!(offset_of!(Inode, flags) == 0x20);
    assert!(offset_of!(Inode, extents) == 0x28);
    assert!(offset_of!(Inode, generation) == 0x64);
    assert!(offset_of!(Inode, size_high) == 0x6C);
    assert!(offset_of!(Inode, blocks_high) == 0x74);
    assert!(size_of::<InodeExtra>() == 32);
    assert!(offset_of!(InodeExtra, ctime_extra) == 0x4);
    assert!(size_of::<ExtentRoot>() == 60);
    assert!(size_of::<ExtentHeader>() == 12);
    assert!(offset_of!(ExtentHeader, max) == 4);
    assert!(offset_of!(ExtentHeader, depth) == 6);
    assert!(size_of::<ExtentIndex>() == size_of::<ExtentEntry>());
    assert!(offset_of!(ExtentIndex, leaf_lo) == 4);
    assert!(offset_of!(ExtentIndex, leaf_hi) == 8);
    assert!(size_of::<ExtentEntry>() == 12);
    assert!(offset_of!(ExtentEntry, len) == 4);
    assert!(offset_of!(ExtentEntry, start_hi) == 6);
    assert!(offset_of!(ExtentEntry, start_lo) == 8);
};

/// The claims of this module. The kernel installs no header with these structures; those of libext2fs
/// have them, under older names.
pub const ABI: &[AbiItem] = &[
    AbiItem {
        header: "ext2fs/ext2_fs.h",
        c_type: "struct ext2_super_block",
        size: size_of::<SuperBlock>(),
        fields: &[
            ("s_blocks_count", offset_of!(SuperBlock, blocks_count_lo)),
            (
                "s_first_data_block",
                offset_of!(SuperBlock, first_data_block),
            ),
            ("s_log_block_size", offset_of!(SuperBlock, log_block_size)),
            (
                "s_blocks_per_group",
                offset_of!(SuperBlock, blocks_per_group),
            ),
            (
                "s_inodes_per_group",
                offset_of!(SuperBlock, inodes_per_group),
            ),
            ("s_magic", offset_of!(SuperBlock, magic)),
            ("s_inode_size", offset_of!(SuperBlock, inode_size)),
            (
                "s_feature_incompat",
                offset_of!(SuperBlock, feature_incompat),
            ),
            (
                "s_feature_ro_compat",
                offset_of!(SuperBlock, feature_ro_compat),
            ),
            ("s_uuid", offset_of!(SuperBlock, uuid)),
            ("s_desc_size", offset_of!(SuperBlock, desc_size)),
            ("s_blocks_count_hi", offset_of!(SuperBlock, blocks_count_hi)),
            ("s_checksum_seed", offset_of!(SuperBlock, checksum_seed)),
        ],
        requests: &[
            ("EXT2_FEATURE_INCOMPAT_META_BG", Incompat::META_BG.bits()),
            ("EXT3_FEATURE_INCOMPAT_EXTENTS", Incompat::EXTENTS.bits()),
            ("EXT4_FEATURE_INCOMPAT_64BIT", Incompat::BIT64.bits()),
            (
                "EXT4_FEATURE_INCOMPAT_CSUM_SEED",
                Incompat::CSUM_SEED.bits(),
            ),
            (
                "EXT4_FEATURE_RO_COMPAT_METADATA_CSUM",
                RoCompat::METADATA_CSUM.bits(),
            ),
        ],
    },
    AbiItem {
        header: "ext2fs/ext2_fs.h",
        c_type: "struct ext4_group_desc",
        size: size_of::<GroupDesc>(),
        fields: &[
            ("bg_inode_table", offset_of!(GroupDesc, inode_table_lo)),
            ("bg_inode_table_hi", offset_of!(GroupDesc, inode_table_hi)),
        ],
        requests: &[],
    },
    AbiItem {
        header: "ext2fs/ext2_fs.h",
        c_type: "struct ext2_inode_large",
        size: size_of::<Inode>() + size_of::<InodeExtra>(),
        fields: &[
            ("i_mode", offset_of!(Inode, mode)),
            ("i_size", offset_of!(Inode, size_lo)),
            ("i_ctime", offset_of!(Inode, ctime)),
            ("i_links_count", offset_of!(Inode, links_count)),
            ("i_blocks", offset_of!(Inode, blocks_lo)),
            ("i_flags", offset_of!(Inode, flags)),
            ("i_generation", offset_of!(Inode, generation)),
            ("i_block", offset_of!(Inode, extents)),
            ("i_size_high", offset_of!(Inode, size_high)),
            ("osd2.linux2.l_i_blocks_hi", offset_of!(Inode, blocks_high)),
            ("i_extra_isize", size_of::<Inode>()),
            (
                "i_ctime_extra",
                size_of::<Inode>() + offset_of!(InodeExtra, ctime_extra),
            ),
        ],
        requests: &[],
    },
    AbiItem {
        header: "ext2fs/ext3_extents.h",
        c_type: "struct ext3_extent_header",
        size: size_of::<ExtentHeader>(),
        fields: &[
            ("eh_magic", offset_of!(ExtentHeader, magic)),
            ("eh_entries", offset_of!(ExtentHeader, entries)),
            ("eh_depth", offset_of!(ExtentHeader, depth)),
        ],
        requests: &[("EXT3_EXT_MAGIC", ExtentHeader::MAGIC as u32)],
    },
    AbiItem {
        header: "ext2fs/ext3_extents.h",
        c_type: "struct ext3_extent_idx",
        size: size_of::<ExtentIndex>(),
        fields: &[
            ("ei_block", offset_of!(ExtentIndex, block)),
            ("ei_leaf", offset_of!(ExtentIndex, leaf_lo)),
            ("ei_leaf_hi", offset_of!(ExtentIndex, leaf_hi)),
        ],
        requests: &[],
    },
    AbiItem {
        header: "ext2fs/ext3_extents.h",
        c_type: "struct ext3_extent",
        size: size_of::<ExtentEntry>(),
        fields: &[
            ("ee_block", offset_of!(ExtentEntry, block)),
            ("ee_len", offset_of!(ExtentEntry, len)),
            ("ee_start_hi", offset_of!(ExtentEntry, start_hi)),
            ("ee_start", offset_of!(ExtentEntry, start_lo)),
        ],
        requests: &[("EXT_INIT_MAX_LEN", ExtentEntry::WRITTEN_MAX as u32)],
    },
    AbiItem {
        header: "linux/magic.h",
        c_type: "",
        size: 0,
        fields: &[],
        requests: &[("EXT4_SUPER_MAGIC", SuperBlock::MAGIC as u32)],
    },
    AbiItem {
        header: "linux/fs.h",
        c_type: "",
        size: 0,
        fields: &[],
        requests: &[
            ("FS_ENCRYPT_FL", InodeFlags::ENCRYPT.bits()),
            ("FS_JOURNAL_DATA_FL", InodeFlags::JOURNAL_DATA.bits()),
            ("FS_HUGE_FILE_FL", InodeFlags::HUGE_FILE.bits()),
            ("FS_EXTENT_FL", InodeFlags::EXTENTS.bits()),
            ("FS_INLINE_DATA_FL", InodeFlags::INLINE_DATA.bits()),
        ],
    },
];
