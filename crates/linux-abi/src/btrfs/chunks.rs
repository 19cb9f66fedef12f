//! Chunks (block groups): where they lie on the devices, what of them is used, and what is free (`struct btrfs_chunk`,
//! `struct btrfs_block_group_item`, the free space tree; linux/btrfs_tree.h, v6.1). Needs `CAP_SYS_ADMIN`.

use std::{io, mem::size_of, os::fd::AsFd};

use rustix::io::Errno;

use super::{SearchKey, disk_u64_at, search};
use crate::abi::AbiItem;

/// `BTRFS_EXTENT_TREE_OBJECTID`.
const EXTENT_TREE: u64 = 2;
/// `BTRFS_CHUNK_TREE_OBJECTID`.
const CHUNK_TREE: u64 = 3;
/// `BTRFS_FREE_SPACE_TREE_OBJECTID`.
const FREE_SPACE_TREE: u64 = 10;
/// `BTRFS_BLOCK_GROUP_TREE_OBJECTID` (v6.1).
const BLOCK_GROUP_TREE: u64 = 11;
/// `BTRFS_EXTENT_ITEM_KEY`.
const EXTENT_ITEM: u32 = 168;
/// `BTRFS_BLOCK_GROUP_ITEM_KEY`.
const BLOCK_GROUP_ITEM: u32 = 192;
/// `BTRFS_FREE_SPACE_EXTENT_KEY`.
const FREE_SPACE_EXTENT: u32 = 199;
/// `BTRFS_FREE_SPACE_BITMAP_KEY`.
const FREE_SPACE_BITMAP: u32 = 200;
/// `BTRFS_CHUNK_ITEM_KEY`.
const CHUNK_ITEM: u32 = 228;

/// Offset of `type` in `struct btrfs_chunk`, after `length`, `owner` and `stripe_len`.
const TYPE: usize = 24;
/// Offset of `num_stripes` there.
const STRIPES: usize = 44;
/// Offset of the first `struct btrfs_stripe` there: `devid`, `offset`, and a UUID.
const STRIPE: usize = 48;
/// Its size.
const STRIPE_SIZE: usize = 2 * size_of::<u64>() + 16;

bitflags::bitflags! {
    /// `BTRFS_BLOCK_GROUP_*`: what a chunk has, and how it is stored.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub struct BlockGroupKind: u64 {
        /// Data of files.
        const DATA = 1 << 0;
        /// The chunk tree.
        const SYSTEM = 1 << 1;
        /// All other trees.
        const METADATA = 1 << 2;
        /// Striped.
        const RAID0 = 1 << 3;
        /// Twice, on two devices.
        const RAID1 = 1 << 4;
        /// Twice, on one device.
        const DUP = 1 << 5;
        /// Twice, and striped.
        const RAID10 = 1 << 6;
        /// Striped, with a parity.
        const RAID5 = 1 << 7;
        /// Striped, with two of them.
        const RAID6 = 1 << 8;
        /// Three times.
        const RAID1C3 = 1 << 9;
        /// Four times.
        const RAID1C4 = 1 << 10;
        /// A newer kernel's.
        const _ = !0;
    }
}

impl BlockGroupKind {
    /// All but those of a newer kernel.
    pub const KNOWN: Self = Self::from_bits_retain((Self::RAID1C4.bits() << 1) - 1);

    /// How often it is stored as a whole.
    #[must_use]
    pub const fn copies(self) -> u64 {
        if self.contains(Self::RAID1C4) {
            4
        } else if self.contains(Self::RAID1C3) {
            3
        } else if self.intersects(Self::RAID1.union(Self::DUP).union(Self::RAID10)) {
            2
        } else {
            1
        }
    }
}

/// A part of the address space, with the places that have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Its first address.
    pub start: u64,
    /// Its length in bytes.
    pub len: u64,
    /// What it has.
    pub kind: BlockGroupKind,
    /// Where it lies. In chunks that are not striped, each has all of it.
    pub stripes: Vec<Stripe>,
}

/// A place on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stripe {
    /// The device's number.
    pub device: u64,
    /// The first byte there.
    pub start: u64,
}

impl Chunk {
    fn of(start: u64, item: &[u8]) -> Option<Self> {
        let stripes = item.get(STRIPES..STRIPES + 2)?.try_into().ok()?;
        let stripe = |number: u16| {
            let at = STRIPE + usize::from(number) * STRIPE_SIZE;
            Some(Stripe {
                device: disk_u64_at(item, at)?,
                start: disk_u64_at(item, at + 8)?,
            })
        };
        Some(Self {
            start,
            len: disk_u64_at(item, 0)?,
            kind: BlockGroupKind::from_bits_retain(disk_u64_at(item, TYPE)?),
            stripes: (0..u16::from_le_bytes(stripes)).map_while(stripe).collect(),
        })
    }
}

/// All chunks, in the order of their addresses.
///
/// # Errors
///
/// `EPERM` without `CAP_SYS_ADMIN`.
pub fn chunks(file: impl AsFd) -> io::Result<Vec<Chunk>> {
    let key = SearchKey {
        tree_id: CHUNK_TREE,
        max_objectid: u64::MAX,
        min_type: CHUNK_ITEM,
        max_type: CHUNK_ITEM,
        max_offset: u64::MAX,
        ..SearchKey::default()
    };
    let mut chunks = Vec::new();
    search(file, key, |found| {
        chunks.extend(Chunk::of(found.offset, found.item));
        true
    })?;
    Ok(chunks)
}

/// Address ranges (start, length) of the block groups that hold file data.
///
/// # Errors
///
/// `EPERM` without `CAP_SYS_ADMIN`.
pub fn data_block_groups(file: impl AsFd) -> io::Result<Vec<(u64, u64)>> {
    let chunks = chunks(file)?.into_iter();
    let has_data = chunks.filter(|chunk| chunk.kind.contains(BlockGroupKind::DATA));
    Ok(has_data.map(|chunk| (chunk.start, chunk.len)).collect())
}

/// Bytes of the chunk of this place and length that are used, as of the last commit; `None` for one that is not there any more.
///
/// # Errors
///
/// `EPERM` without `CAP_SYS_ADMIN`.
pub fn used(file: impl AsFd, start: u64, len: u64) -> io::Result<Option<u64>> {
    let file = file.as_fd();
    // In the extent tree, unless the file system has a tree for them.
    for tree_id in [EXTENT_TREE, BLOCK_GROUP_TREE] {
        let key = SearchKey {
            tree_id,
            min_objectid: start,
            max_objectid: start,
            min_type: BLOCK_GROUP_ITEM,
            max_type: BLOCK_GROUP_ITEM,
            min_offset: len,
            max_offset: len,
            ..SearchKey::default()
        };
        let mut used = None;
        let found = search(file, key, |found| {
            used = disk_u64_at(found.item, 0);
            false
        });
        match found {
            Err(error) if Errno::from_io_error(&error) != Some(Errno::NOENT) => return Err(error),
            _ if used.is_some() => return Ok(used),
            _ => {}
        }
    }
    Ok(None)
}

/// Visit the lengths of all extents of data in the address range.
///
/// # Errors
///
/// `EPERM` without `CAP_SYS_ADMIN`.
pub fn each_extent(
    file: impl AsFd,
    start: u64,
    len: u64,
    mut visit: impl FnMut(u64),
) -> io::Result<()> {
    let key = SearchKey {
        tree_id: EXTENT_TREE,
        min_objectid: start,
        max_objectid: start.saturating_add(len).saturating_sub(1),
        min_type: EXTENT_ITEM,
        max_type: EXTENT_ITEM,
        max_offset: u64::MAX,
        ..SearchKey::default()
    };
    search(file, key, |found| {
        visit(found.offset);
        true
    })
}

/// Visit the free extents (start, length) of the address range, as of the last commit, until `visit`
/// returns `false`. Free space in small pieces, which Btrfs keeps as a bitmap, is not visited.
///
/// # Errors
///
/// `EPERM` without `CAP_SYS_ADMIN`, `ENOENT` where there is no free space tree.
pub fn free_extents(
    file: impl AsFd,
    start: u64,
    len: u64,
    mut visit: impl FnMut(u64, u64) -> bool,
) -> io::Result<()> {
    let key = free_space(start, len, FREE_SPACE_EXTENT);
    // The key alone has the start and the length.
    search(file, key, |found| visit(found.objectid, found.offset))
}

/// The same, with what Btrfs keeps as bitmaps of `sector` bytes each. Runs that touch may be visited apart.
///
/// # Errors
///
/// Those of [`free_extents`].
pub fn free_runs(
    file: impl AsFd,
    (start, len): (u64, u64),
    sector: u32,
    mut visit: impl FnMut(u64, u64) -> bool,
) -> io::Result<()> {
    let key = free_space(start, len, FREE_SPACE_BITMAP);
    search(file, key, |found| match found.kind {
        FREE_SPACE_BITMAP => {
            let sectors = found.offset / u64::from(sector.max(1));
            let mut runs = runs_of_bits(found.item, sectors);
            let sector = u64::from(sector);
            runs.all(|(first, count)| visit(found.objectid + first * sector, count * sector))
        }
        _ => visit(found.objectid, found.offset),
    })
}

fn free_space(start: u64, len: u64, max_type: u32) -> SearchKey {
    SearchKey {
        tree_id: FREE_SPACE_TREE,
        min_objectid: start,
        max_objectid: start.saturating_add(len).saturating_sub(1),
        min_type: FREE_SPACE_EXTENT,
        max_type,
        max_offset: u64::MAX,
        ..SearchKey::default()
    }
}

/// The runs (first, number) of bits that are set, of the first `count`, the lowest of each byte first.
fn runs_of_bits(bits: &[u8], count: u64) -> impl Iterator<Item = (u64, u64)> {
    let is_set = move |bit: u64| {
        let byte = bits.get((bit / 8) as usize);
        bit < count && byte.is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
    };
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < count && !is_set(at) {
            at += 1;
        }
        let first = at;
        while is_set(at) {
            at += 1;
        }
        (at > first).then_some((first, at - first))
    })
}

/// Structures and numbers of this module, for `cargo xtask abi-check`.
pub(crate) const ABI: &[AbiItem] = &[
    AbiItem {
        header: "linux/btrfs_tree.h",
        c_type: "struct btrfs_chunk",
        size: STRIPE + STRIPE_SIZE,
        fields: &[
            ("length", 0),
            ("type", TYPE),
            ("num_stripes", STRIPES),
            ("stripe", STRIPE),
        ],
        requests: &[
            ("BTRFS_EXTENT_ITEM_KEY", EXTENT_ITEM),
            ("BTRFS_BLOCK_GROUP_ITEM_KEY", BLOCK_GROUP_ITEM),
            ("BTRFS_FREE_SPACE_EXTENT_KEY", FREE_SPACE_EXTENT),
            ("BTRFS_FREE_SPACE_BITMAP_KEY", FREE_SPACE_BITMAP),
            ("BTRFS_CHUNK_ITEM_KEY", CHUNK_ITEM),
            ("BTRFS_EXTENT_TREE_OBJECTID", EXTENT_TREE as u32),
            ("BTRFS_CHUNK_TREE_OBJECTID", CHUNK_TREE as u32),
            ("BTRFS_FREE_SPACE_TREE_OBJECTID", FREE_SPACE_TREE as u32),
            ("BTRFS_BLOCK_GROUP_DATA", BlockGroupKind::DATA.bits() as u32),
            (
                "BTRFS_BLOCK_GROUP_METADATA",
                BlockGroupKind::METADATA.bits() as u32,
            ),
            ("BTRFS_BLOCK_GROUP_DUP", BlockGroupKind::DUP.bits() as u32),
            (
                "BTRFS_BLOCK_GROUP_RAID1C3",
                BlockGroupKind::RAID1C3.bits() as u32,
            ),
            (
                "BTRFS_BLOCK_GROUP_RAID1C4",
                BlockGroupKind::RAID1C4.bits() as u32,
            ),
        ],
    },
    AbiItem {
        header: "linux/btrfs_tree.h",
        c_type: "struct btrfs_stripe",
        size: STRIPE_SIZE,
        fields: &[("devid", 0), ("offset", 8)],
        requests: &[],
    },
    AbiItem {
        header: "linux/btrfs_tree.h",
        c_type: "struct btrfs_block_group_item",
        size: 24,
        fields: &[("used", 0)],
        requests: &[],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_read_as_far_as_it_is_there() {
        let mut item = vec![0; STRIPE + 2 * STRIPE_SIZE];
        item[..8].copy_from_slice(&(1_u64 << 30).to_le_bytes());
        item[TYPE] = 1 | 1 << 4;
        item[STRIPES] = 2;
        item[STRIPE] = 1;
        item[STRIPE + STRIPE_SIZE] = 2;
        item[STRIPE + STRIPE_SIZE + 10] = 1;
        let chunk = Chunk::of(5, &item).unwrap();
        let place = |device, start| Stripe { device, start };
        assert_eq!(chunk.stripes, [place(1, 0), place(2, 1 << 16)]);
        assert_eq!(
            (chunk.start, chunk.len, chunk.kind.copies()),
            (5, 1 << 30, 2)
        );
        item.truncate(STRIPE + STRIPE_SIZE);
        assert_eq!(Chunk::of(5, &item).unwrap().stripes.len(), 1);
        assert_eq!(Chunk::of(5, &item[..TYPE + 8]), None);
    }

    #[test]
    fn runs_are_those_of_set_bits() {
        let runs = |bits: &[u8], count| runs_of_bits(bits, count).collect::<Vec<_>>();
        assert_eq!(runs(&[0b1000_0011, 0b0000_0001], 16), [(0, 2), (7, 2)]);
        assert_eq!(runs(&[0xff, 0xff], 12), [(0, 12)]);
        assert_eq!(runs(&[0xff], 16), [(0, 8)], "cut off");
        assert!(runs(&[0, 0], 16).is_empty());
    }

    #[test]
    fn another_file_system_has_no_chunks() {
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        assert!(chunks(&file).is_err());
        assert!(free_runs(&file, (0, 1), 4096, |_, _| true).is_err());
    }
}
