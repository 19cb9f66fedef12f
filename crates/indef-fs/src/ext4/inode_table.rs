//! The inode tables of a mounted ext4 file system, read from its device: where thousands of small
//! files lie, without opening them.
//!
//! Looking at, opening, mapping and closing a file costs four system calls and some 4 µs, most of
//! it in cold processor caches. The inode of a file with at most four extents holds all that a scan
//! wants to know, and the tables hold thousands of inodes in a row; of a file with more it has the root of
//! the [tree](super::extent_tree) that holds them. Reading them is safe on a
//! mounted file system: the device's page cache is where ext4 keeps them itself (fs/ext4/inode.c,
//! `ext4_do_update_inode`, v6.1), so that a read returns the bytes that ext4 last put there. It is
//! *not* everything that ext4 knows: delayed allocations have no place yet, and the size that goes
//! with them is not in the inode. So an inode is believed
//!
//! - alone ([`InodeTables::file`]) while the file system has no delayed allocations at all
//!   ([`InodeTables::is_settled`]) and nothing is allocated past the file's end,
//! - else ([`InodeTables::layout`]) where its size, its blocks and its change time are those that
//!   `statx` reports.
//!
//! For anything unusual there is no answer, and the file has to be mapped.
//!
//! Only for looking, never for moving. Needs read access to the device, which root and the group
//! `disk` have. The structures are [`linux_abi::ext4::disk`]'s.

use std::{
    fs::File,
    os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use indef_core::layout::{Extent, Layout};
use linux_abi::ext4::disk::{GroupDesc, Incompat, Inode, InodeExtra, InodeFlags, SuperBlock};
use units::{Bytes, FileOffset, FileRange};

use super::extent_tree::{TreeReader, checksum_seed, prefetch};
use crate::{
    Filesystem, FsKind,
    device::BlockDevice,
    inodes::{Expected, InodeFacts, InodePlace, hides_files},
};

/// Flags of inodes for which it is better to ask the kernel.
const UNUSUAL: InodeFlags = InodeFlags::HUGE_FILE
    .union(InodeFlags::INLINE_DATA)
    .union(InodeFlags::ENCRYPT);
/// Bytes that are read at once: 64 inodes of 256 bytes.
const CHUNK: u64 = 16 << 10;
/// Group descriptors of 16 TiB with blocks of 4 KiB; larger file systems are mapped file by file.
const MOST_GROUPS: u64 = 1 << 17;

/// Where a device's inode tables are.
#[derive(Debug)]
pub(crate) struct InodeTables {
    device: File,
    block_size: u64,
    inode_size: u64,
    inodes_per_group: u64,
    /// Of checksums of metadata, where there are any.
    checksum_seed: Option<u32>,
    /// The first byte of each group's table.
    tables: Vec<u64>,
    /// The file in which ext4 tells how many blocks are delayed; `None` where a file could be
    /// hidden below a mount.
    delayed: Option<PathBuf>,
}

/// The part of a device that was read last.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    bytes: Vec<u8>,
    start: u64,
    /// A buffer for a node of an extent tree.
    node: Vec<u8>,
}

impl Chunk {
    /// Forget the bytes, so that they are not taken for newer ones.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
    }
}

impl InodeTables {
    /// The tables of this file system, if it is ext4, its device may be read, and there is nothing
    /// unusual about it.
    pub(crate) fn open(fs: &Filesystem) -> Option<Self> {
        if fs.kind != FsKind::Ext4 {
            return None;
        }
        let source = &fs.mount.as_ref()?.source;
        // Looked at before it is opened: a name in the mount table may mean anything here.
        let is_device = |status: &std::fs::Metadata| {
            status.file_type().is_block_device() && status.rdev() == fs.dev
        };
        if !is_device(&std::fs::metadata(source).ok()?) {
            return None;
        }
        let device = File::options()
            .read(true)
            .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32)
            .open(source)
            .ok()?;
        if !is_device(&device.metadata().ok()?) {
            return None;
        }
        let mut tables = Self::read(device)?;
        tables.delayed = delayed_blocks(fs);
        Some(tables)
    }

    fn read(device: File) -> Option<Self> {
        let mut superblock = [0; size_of::<SuperBlock>()];
        let read = device.read_exact_at(&mut superblock, SuperBlock::OFFSET);
        read.ok()?;
        let geometry = TableGeometry::parse(&superblock)?;
        let length = geometry.groups.checked_mul(geometry.descriptor_size)?;
        let mut descriptors = vec![0; usize::try_from(length).ok()?];
        device
            .read_exact_at(&mut descriptors, geometry.descriptors)
            .ok()?;
        let tables = descriptors
            .chunks_exact(geometry.descriptor_size as usize)
            .map(|bytes| {
                let table = GroupDesc::read(bytes).inode_table();
                table.checked_mul(geometry.block_size)
            })
            .collect::<Option<Vec<_>>>()?;
        Some(Self {
            device,
            block_size: geometry.block_size,
            inode_size: geometry.inode_size,
            inodes_per_group: geometry.inodes_per_group,
            checksum_seed: checksum_seed(SuperBlock::first_of(&superblock)?),
            tables,
            delayed: None,
        })
    }

    /// Whether ext4 knows nothing more of any file than its inode says, right now: no delayed
    /// allocations. Changes at any moment, so it is to be asked again and again.
    pub(crate) fn is_settled(&self) -> bool {
        let read = |path: &PathBuf| std::fs::read_to_string(path).ok();
        self.delayed
            .as_ref()
            .and_then(read)
            .is_some_and(|blocks| blocks.trim() == "0")
    }

    /// The facts of a regular file. They are true only while the file system
    /// [is settled](Self::is_settled).
    pub(crate) fn file(&self, number: u64, chunk: &mut Chunk) -> Option<InodeFacts> {
        let mut node = std::mem::take(&mut chunk.node);
        let inode = self.inode(number, chunk).and_then(Inode::first_of);
        let facts = inode.and_then(|inode| self.facts(number, inode, &mut node));
        chunk.node = node;
        facts
    }

    /// Have the device read the extent trees of these files, in the order of their numbers, as far as they are not in
    /// memory: it gets many requests at once, and not one for each file that is looked at.
    pub(crate) fn prefetch(&self, numbers: impl Iterator<Item = u64>, chunk: &mut Chunk) {
        let mut blocks = Vec::new();
        for number in numbers {
            let inode = self.inode(number, chunk).and_then(Inode::first_of);
            let root = inode.filter(|inode| has_extents(inode));
            let root = root.and_then(|inode| inode.extents.node());
            blocks.extend(root.into_iter().flat_map(|root| root.children()));
        }
        prefetch(&self.device, self.block_size, blocks);
    }

    fn facts(&self, number: u64, inode: &Inode, node: &mut Vec<u8>) -> Option<InodeFacts> {
        let size = Bytes(inode.size());
        let links = inode.links_count.get().into();
        let extents = self.extents(number, inode, node)?;
        // A write into blocks past the end changes the size later than it is seen.
        let end = extents.last().map(Extent::file_end);
        let inside = end.is_none_or(|end| end <= self.end_of(size));
        (inside && links > 0).then(|| InodeFacts {
            size,
            allocated: allocated(inode),
            links,
            place: InodePlace::Known(Layout::new(extents)),
        })
    }

    /// The layout of a file, up to its size, if its inode is as expected.
    pub(crate) fn layout(&self, expected: &Expected, chunk: &mut Chunk) -> Option<Layout> {
        let mut node = std::mem::take(&mut chunk.node);
        let inode = self.inode_as(expected, chunk);
        let extents = inode.and_then(|inode| self.extents(expected.inode, inode, &mut node));
        chunk.node = node;
        let range = FileRange::between(FileOffset(0), self.end_of(expected.size));
        let inside = extents?.into_iter();
        Some(Layout::new(
            inside.filter_map(|extent| extent.clip(range)).collect(),
        ))
    }

    /// All extents of a regular file.
    fn extents(&self, number: u64, inode: &Inode, node: &mut Vec<u8>) -> Option<Vec<Extent>> {
        let mut reader = TreeReader {
            device: &self.device,
            block_size: self.block_size,
            seed: self.checksum_seed,
            buffer: node,
        };
        has_extents(inode).then(|| reader.extents(number, inode))?
    }

    /// The inode of a file, if it is as expected.
    fn inode_as<'a>(&self, expected: &Expected, chunk: &'a mut Chunk) -> Option<&'a Inode> {
        let bytes = self.inode(expected.inode, chunk)?;
        let inode = Inode::first_of(bytes)?;
        let nanos = InodeExtra::of(bytes).and_then(InodeExtra::ctime_nanos);
        let unchanged = inode.size() == expected.size.get()
            && allocated(inode) == expected.allocated
            && inode.ctime.get() == expected.ctime.0 as u32
            && nanos.is_none_or(|nanos| nanos == expected.ctime.1);
        unchanged.then_some(inode)
    }

    fn end_of(&self, size: Bytes) -> FileOffset {
        FileOffset(size.get()).align_up(Bytes(self.block_size))
    }

    /// An inode as it is on the device, from `chunk` if it is in there.
    fn inode<'a>(&self, number: u64, chunk: &'a mut Chunk) -> Option<&'a [u8]> {
        let index = number.checked_sub(1)?;
        let group = usize::try_from(index / self.inodes_per_group).ok()?;
        let in_table = (index % self.inodes_per_group).checked_mul(self.inode_size)?;
        let place = self.tables.get(group)?.checked_add(in_table)?;
        let start = place - place % CHUNK;
        if chunk.bytes.is_empty() || chunk.start != start {
            chunk.bytes.resize(CHUNK as usize, 0);
            chunk.start = start;
            // A device may end in the middle of a chunk.
            let length = self.device.read_at(&mut chunk.bytes, start).unwrap_or(0);
            chunk.bytes.truncate(length);
        }
        let from = (place - start) as usize;
        chunk.bytes.get(from..from + self.inode_size as usize)
    }
}

/// The file in which ext4 tells how many blocks wait for their place. `None` if there is none, or where
/// a directory entry may be of a file that is hidden.
fn delayed_blocks(fs: &Filesystem) -> Option<PathBuf> {
    if hides_files(fs) {
        return None;
    }
    let path = Path::new("/sys/fs/ext4")
        .join(&*BlockDevice::by_number(fs.dev)?.name())
        .join("delayed_allocation_blocks");
    path.exists().then_some(path)
}

/// Facts from a superblock, checked.
#[derive(Debug)]
struct TableGeometry {
    block_size: u64,
    inode_size: u64,
    inodes_per_group: u64,
    groups: u64,
    descriptor_size: u64,
    /// The first byte of the group descriptors.
    descriptors: u64,
}

impl TableGeometry {
    fn parse(superblock: &[u8]) -> Option<Self> {
        let superblock = SuperBlock::first_of(superblock)?;
        let log_block_size = superblock.log_block_size.get();
        let incompat = superblock.incompat();
        if superblock.magic.get() != SuperBlock::MAGIC
            || log_block_size > 6
            || incompat.contains(Incompat::META_BG)
            || !incompat.contains(Incompat::EXTENTS)
        {
            return None;
        }
        let block_size = 1024 << log_block_size;
        let first_block = u64::from(superblock.first_data_block.get());
        let blocks_per_group = u64::from(superblock.blocks_per_group.get());
        let inode_size = u64::from(superblock.inode_size.get());
        let inodes_per_group = u64::from(superblock.inodes_per_group.get());
        let descriptor_size = match incompat.contains(Incompat::BIT64) {
            true => u64::from(superblock.desc_size.get()),
            false => GroupDesc::SHORT as u64,
        };
        let groups = superblock
            .blocks_count()
            .checked_sub(first_block)?
            .checked_next_multiple_of(blocks_per_group)?
            / blocks_per_group;
        let sane = inode_size.is_power_of_two()
            && (128..=block_size).contains(&inode_size)
            && inodes_per_group > 0
            && descriptor_size.is_power_of_two()
            && (32..=1024).contains(&descriptor_size)
            && groups <= MOST_GROUPS;
        sane.then_some(Self {
            block_size,
            inode_size,
            inodes_per_group,
            groups,
            descriptor_size,
            descriptors: (first_block + 1) * block_size,
        })
    }
}

fn allocated(inode: &Inode) -> Bytes {
    Bytes(inode.sectors().saturating_mul(512))
}

/// Whether it is a regular file's with an extent tree, and nothing unusual.
fn has_extents(inode: &Inode) -> bool {
    let flags = inode.flags();
    let usual = flags.contains(InodeFlags::EXTENTS) && !flags.intersects(UNUSUAL);
    inode.is_regular() && usual
}

#[cfg(test)]
mod tests;
