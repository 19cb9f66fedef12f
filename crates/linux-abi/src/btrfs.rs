//! Btrfs: rewrite a range, and look into its trees (linux/btrfs.h and linux/btrfs_tree.h, v6.1; the
//! flags for a level and for no compression from v6.15 and v6.17).

use std::{
    io,
    mem::{offset_of, size_of},
    os::fd::AsFd,
};

use crate::{abi::AbiItem, ioctl};

pub(crate) mod balance;
pub(crate) mod chunks;
pub(crate) mod commit;
pub(crate) mod device;
pub(crate) mod extent_refs;
pub(crate) mod extents;
pub(crate) mod holders;
pub(crate) mod inode_item;
pub(crate) mod trees;

pub use balance::{cancel_balance, empty_data_chunk, is_paused_at};
pub use chunks::{
    BlockGroupKind, Chunk, Stripe, chunks, data_block_groups, each_extent, free_extents, free_runs,
    used,
};
pub use commit::start_commit;
pub use device::{Device, devices, fsid, node_size, sector_size, unallocated};
pub use extent_refs::ExtentRefs;
pub use extents::{
    Backing, FIRST_FILE, FileExtent, FileExtents, FileItem, FileName, Place, file_extents,
};
pub use holders::{ExtentPart, ExtentParts, Holders, InodeFacts, InodeFlags, PartState, Reference};
pub use inode_item::InodeItem;
pub use trees::{Origin, TreeFacts, committed, last_snapshot, metadata_copies, origin, tree_facts};

/// `BTRFS_IOCTL_MAGIC`.
const MAGIC: u8 = 0x94;

bitflags::bitflags! {
    /// `BTRFS_DEFRAG_RANGE_*`. A kernel that does not know a flag refuses it with `EOPNOTSUPP`
    /// (before 5.17 with `EINVAL`, or not at all).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct DefragFlags: u64 {
        /// Rewrite every extent of the range, compressed.
        const COMPRESS = 1;
        /// Start writeback before returning.
        const START_IO = 2;
        /// The compression type comes with a level (6.15).
        const COMPRESS_LEVEL = 4;
        /// Rewrite every extent of the range, uncompressed (6.17).
        const NOCOMPRESS = 8;
    }
}

/// `struct btrfs_ioctl_defrag_range_args`. `compress_type` is a union since 6.15: with the flag for
/// a level, its first byte is the type and its second the level.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct DefragRangeArgs {
    start: u64,
    len: u64,
    flags: u64,
    extent_thresh: u32,
    compress: [u8; 4],
    unused: [u32; 4],
}

// SAFETY: BTRFS_IOC_DEFRAG_RANGE is _IOW(0x94, 16, struct btrfs_ioctl_defrag_range_args); the
// kernel reads these 48 bytes and takes no pointer from them.
unsafe impl ioctl::IoctlArgument for DefragRangeArgs {
    const REQUEST: u32 = ioctl::request(ioctl::WRITE, MAGIC, 16, size_of::<DefragRangeArgs>());
}

/// Compression of file data: `BTRFS_COMPRESS_*` (fs/btrfs/compression.h, on-disk values).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// zlib.
    Zlib,
    /// LZO.
    Lzo,
    /// Zstandard.
    Zstd,
}

impl Compression {
    const fn from_disk(value: u8) -> Option<Self> {
        match value {
            1 => Some(Self::Zlib),
            2 => Some(Self::Lzo),
            3 => Some(Self::Zstd),
            _ => None,
        }
    }

    const fn to_disk(self) -> u8 {
        match self {
            Self::Zlib => 1,
            Self::Lzo => 2,
            Self::Zstd => 3,
        }
    }
}

/// Rewrite the extents of `start..start + len` that are shorter than `threshold` bytes. With
/// [`DefragFlags::COMPRESS`], `compression` gives the type, and the level if
/// [`DefragFlags::COMPRESS_LEVEL`] is also set.
///
/// # Errors
///
/// `EAGAIN` where a signal interrupted it half way, `EINVAL` where `start` is not inside the file,
/// `ENOSPC`, `EDQUOT`, `EROFS`, `EPERM`, `ETXTBSY` for a swap file.
pub fn defrag_range(
    fd: impl AsFd,
    start: u64,
    len: u64,
    flags: DefragFlags,
    threshold: u32,
    compression: Option<(Compression, i8)>,
) -> io::Result<()> {
    let compress = match compression {
        Some((kind, level)) if flags.contains(DefragFlags::COMPRESS_LEVEL) => {
            [kind.to_disk(), level.to_ne_bytes()[0], 0, 0]
        }
        Some((kind, _)) => u32::from(kind.to_disk()).to_ne_bytes(),
        None => [0; 4],
    };
    let mut argument = DefragRangeArgs {
        start,
        len,
        flags: flags.bits(),
        extent_thresh: threshold,
        compress,
        unused: [0; 4],
    };
    ioctl::call(fd, &mut argument).map(drop)
}

/// `struct btrfs_ioctl_search_key`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct SearchKey {
    tree_id: u64,
    min_objectid: u64,
    max_objectid: u64,
    min_offset: u64,
    max_offset: u64,
    min_transid: u64,
    max_transid: u64,
    min_type: u32,
    max_type: u32,
    nr_items: u32,
    unused: u32,
    unused64: [u64; 4],
}

/// Bytes of items that a search returns: more than 64 KiB are slower (seen on 6.18).
const SEARCH_BUFFER: usize = 64 << 10;

/// `struct btrfs_ioctl_search_args_v2` with its buffer.
#[repr(C)]
struct SearchArgs {
    key: SearchKey,
    buf_size: u64,
    buf: [u8; SEARCH_BUFFER],
}

// SAFETY: BTRFS_IOC_TREE_SEARCH_V2 is _IOWR(0x94, 17, struct btrfs_ioctl_search_args_v2), 112 bytes
// without the buffer, of which the kernel writes `buf_size` bytes: as many as there are.
unsafe impl ioctl::IoctlArgument for SearchArgs {
    const REQUEST: u32 = ioctl::request(ioctl::READ | ioctl::WRITE, MAGIC, 17, 112);
}

impl SearchArgs {
    fn new() -> Box<Self> {
        Box::new(Self {
            key: SearchKey::default(),
            buf_size: SEARCH_BUFFER as u64,
            buf: [0; SEARCH_BUFFER],
        })
    }

    /// Ask once, and return the items that were found (since Linux 3.16).
    fn ask(
        &mut self,
        fd: impl AsFd,
        key: SearchKey,
    ) -> io::Result<impl Iterator<Item = FoundItem<'_>>> {
        self.key = SearchKey {
            max_transid: u64::MAX,
            ..key
        };
        self.buf_size = SEARCH_BUFFER as u64;
        ioctl::call(fd, self)?;
        let mut rest = &self.buf[..];
        Ok((0..self.key.nr_items).map_while(move |_| take_item(&mut rest)))
    }
}

/// `struct btrfs_ioctl_search_header`.
#[repr(C)]
struct SearchHeader {
    transid: u64,
    objectid: u64,
    offset: u64,
    kind: u32,
    len: u32,
}

/// `struct btrfs_file_extent_item` (packed, little-endian, on disk).
#[repr(C, packed)]
struct FileExtentItem {
    generation: u64,
    ram_bytes: u64,
    compression: u8,
    encryption: u8,
    other_encoding: u16,
    kind: u8,
    disk_bytenr: u64,
    disk_num_bytes: u64,
    offset: u64,
    num_bytes: u64,
}

const _: () = {
    assert!(size_of::<DefragRangeArgs>() == 48);
    assert!(offset_of!(DefragRangeArgs, extent_thresh) == 24);
    assert!(offset_of!(DefragRangeArgs, compress) == 28);
    assert!(size_of::<SearchKey>() == 104);
    assert!(offset_of!(SearchKey, nr_items) == 64);
    assert!(offset_of!(SearchArgs, buf) == 112);
    assert!(size_of::<SearchHeader>() == 32);
    assert!(size_of::<FileExtentItem>() == 53);
    assert!(offset_of!(FileExtentItem, kind) == 20);
};

/// Structures and numbers of this module, for `cargo xtask abi-check`.
pub const ABI: &[AbiItem] = &[
    AbiItem {
        header: "linux/btrfs.h",
        c_type: "struct btrfs_ioctl_defrag_range_args",
        size: size_of::<DefragRangeArgs>(),
        fields: &[
            ("start", offset_of!(DefragRangeArgs, start)),
            ("len", offset_of!(DefragRangeArgs, len)),
            ("flags", offset_of!(DefragRangeArgs, flags)),
            ("extent_thresh", offset_of!(DefragRangeArgs, extent_thresh)),
            ("compress_type", offset_of!(DefragRangeArgs, compress)),
            ("unused", offset_of!(DefragRangeArgs, unused)),
        ],
        requests: &[
            (
                "BTRFS_IOC_DEFRAG_RANGE",
                <DefragRangeArgs as ioctl::IoctlArgument>::REQUEST,
            ),
            (
                "BTRFS_DEFRAG_RANGE_COMPRESS",
                DefragFlags::COMPRESS.bits() as u32,
            ),
            (
                "BTRFS_DEFRAG_RANGE_START_IO",
                DefragFlags::START_IO.bits() as u32,
            ),
        ],
    },
    AbiItem {
        header: "linux/btrfs.h",
        c_type: "struct btrfs_ioctl_search_key",
        size: size_of::<SearchKey>(),
        fields: &[
            ("tree_id", offset_of!(SearchKey, tree_id)),
            ("min_objectid", offset_of!(SearchKey, min_objectid)),
            ("min_offset", offset_of!(SearchKey, min_offset)),
            ("min_transid", offset_of!(SearchKey, min_transid)),
            ("min_type", offset_of!(SearchKey, min_type)),
            ("nr_items", offset_of!(SearchKey, nr_items)),
        ],
        requests: &[],
    },
    AbiItem {
        header: "linux/btrfs.h",
        c_type: "struct btrfs_ioctl_search_args_v2",
        size: offset_of!(SearchArgs, buf),
        fields: &[("buf_size", offset_of!(SearchArgs, buf_size))],
        requests: &[(
            "BTRFS_IOC_TREE_SEARCH_V2",
            <SearchArgs as ioctl::IoctlArgument>::REQUEST,
        )],
    },
    AbiItem {
        header: "linux/btrfs.h",
        c_type: "struct btrfs_ioctl_search_header",
        size: size_of::<SearchHeader>(),
        fields: &[
            ("objectid", offset_of!(SearchHeader, objectid)),
            ("offset", offset_of!(SearchHeader, offset)),
            ("type", offset_of!(SearchHeader, kind)),
            ("len", offset_of!(SearchHeader, len)),
        ],
        requests: &[],
    },
    AbiItem {
        header: "linux/btrfs_tree.h",
        c_type: "struct btrfs_file_extent_item",
        size: size_of::<FileExtentItem>(),
        fields: &[
            ("generation", offset_of!(FileExtentItem, generation)),
            ("ram_bytes", offset_of!(FileExtentItem, ram_bytes)),
            ("compression", offset_of!(FileExtentItem, compression)),
            ("encryption", offset_of!(FileExtentItem, encryption)),
            ("type", offset_of!(FileExtentItem, kind)),
            ("disk_bytenr", offset_of!(FileExtentItem, disk_bytenr)),
            ("disk_num_bytes", offset_of!(FileExtentItem, disk_num_bytes)),
            ("offset", offset_of!(FileExtentItem, offset)),
            ("num_bytes", offset_of!(FileExtentItem, num_bytes)),
        ],
        requests: &[
            ("BTRFS_EXTENT_DATA_KEY", EXTENT_DATA),
            ("BTRFS_INODE_REF_KEY", INODE_REF),
            ("BTRFS_INODE_EXTREF_KEY", INODE_EXTREF),
        ],
    },
];

/// `BTRFS_INODE_REF_KEY`.
const INODE_REF: u32 = 12;
/// `BTRFS_INODE_EXTREF_KEY`.
const INODE_EXTREF: u32 = 13;
/// `BTRFS_EXTENT_DATA_KEY`.
const EXTENT_DATA: u32 = 108;
/// A key that was found, with its item.
struct FoundItem<'a> {
    objectid: u64,
    kind: u32,
    offset: u64,
    item: &'a [u8],
}

/// Visit items from `key` on, until there are no more or `visit` returns `false`.
fn search(
    fd: impl AsFd,
    mut key: SearchKey,
    mut visit: impl FnMut(&FoundItem<'_>) -> bool,
) -> io::Result<()> {
    let fd = fd.as_fd();
    let wanted = key.min_type..=key.max_type;
    let mut arguments = SearchArgs::new();
    key.nr_items = u32::MAX;
    loop {
        let mut last = None;
        for found in arguments.ask(fd, key)? {
            last = Some((found.objectid, found.kind, found.offset));
            // The search covers whole key ranges, with items of other kinds.
            if wanted.contains(&found.kind) && !visit(&found) {
                return Ok(());
            }
        }
        let Some((objectid, kind, offset)) = last else {
            return Ok(());
        };
        // The key after the last one; the largest key has none.
        (key.min_objectid, key.min_type, key.min_offset) = match offset.checked_add(1) {
            Some(offset) => (objectid, kind, offset),
            None => match objectid.checked_add(1) {
                Some(objectid) => (objectid, 0, 0),
                None => return Ok(()),
            },
        };
        if key.min_objectid > key.max_objectid {
            return Ok(());
        }
    }
}

/// Split the next header and item off.
fn take_item<'a>(rest: &mut &'a [u8]) -> Option<FoundItem<'a>> {
    let header = rest.get(..size_of::<SearchHeader>())?;
    let len = u32_at(header, offset_of!(SearchHeader, len))? as usize;
    let end = size_of::<SearchHeader>().checked_add(len)?;
    let found = FoundItem {
        objectid: u64_at(header, offset_of!(SearchHeader, objectid))?,
        kind: u32_at(header, offset_of!(SearchHeader, kind))?,
        offset: u64_at(header, offset_of!(SearchHeader, offset))?,
        item: rest.get(size_of::<SearchHeader>()..end)?,
    };
    *rest = &rest[end..];
    Some(found)
}

// Headers are in host order, items in disk order (little-endian).
fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn disk_u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// The most data that a compressed extent has (`BTRFS_MAX_UNCOMPRESSED`, fs/btrfs/compression.h, v6.1).
pub const MAX_UNCOMPRESSED: u64 = 128 << 10;

/// The compression types of the extents of a file that have data in `start..end`; `None` stands for a
/// type that this module does not know.
///
/// # Errors
///
/// `EPERM` without `CAP_SYS_ADMIN`.
pub fn compressions(
    file: impl AsFd,
    inode: u64,
    start: u64,
    end: u64,
) -> io::Result<Vec<Option<Compression>>> {
    let key = SearchKey {
        min_objectid: inode,
        max_objectid: inode,
        min_type: EXTENT_DATA,
        max_type: EXTENT_DATA,
        min_offset: start.saturating_sub(MAX_UNCOMPRESSED - 1),
        max_offset: end.saturating_sub(1),
        ..SearchKey::default()
    };
    let mut ways = Vec::new();
    search(file, key, |found| {
        // Data in the tree has no length there, and has all of the file.
        let len = match found.item.get(offset_of!(FileExtentItem, kind)) {
            Some(0) | None => MAX_UNCOMPRESSED,
            Some(_) => disk_u64_at(found.item, offset_of!(FileExtentItem, num_bytes)).unwrap_or(0),
        };
        let value = found.item.get(offset_of!(FileExtentItem, compression));
        if let Some(value @ 1..) = value
            && found.offset.saturating_add(len) > start
        {
            let way = Compression::from_disk(*value);
            if !ways.contains(&way) {
                ways.push(way);
            }
        }
        true
    })?;
    Ok(ways)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_returns_is_cut_with_care() {
        let mut bytes = [0; 40];
        bytes[24..28].copy_from_slice(&108_u32.to_ne_bytes());
        bytes[28..32].copy_from_slice(&8_u32.to_ne_bytes());
        let mut rest = &bytes[..];
        let found = take_item(&mut rest).unwrap();
        assert_eq!((found.kind, found.item.len()), (108, 8));
        assert!(rest.is_empty() && take_item(&mut rest).is_none());
        bytes[28..32].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert!(take_item(&mut &bytes[..]).is_none());
    }

    #[test]
    fn other_file_systems_refuse() {
        let file = tempfile::tempfile().unwrap();
        let none = DefragFlags::empty();
        assert!(defrag_range(&file, 0, 4096, none, 0, None).is_err());
        assert!(compressions(&file, 1, 0, 1).is_err());
    }
}
