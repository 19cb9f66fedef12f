//! The inode tables of a mounted ext4 file system, read from its device: where thousands of small
//! files lie, without opening them.
//!
//! Looking at, opening, mapping and closing a file costs four system calls and some 4 µs, most of
//! it in cold processor caches. The inode of a file with at most four extents holds all that a scan
//! wants to know, and the tables hold thousands of inodes in a row. Reading them is safe on a mounted
//! file system: the device's page cache is where ext4 keeps them itself (fs/ext4/inode.c,
//! `ext4_do_update_inode`, v6.1), so that what is read is what ext4 last put there. It is *not*
//! everything that ext4 knows: delayed allocations have no place yet, and the size that goes with
//! them is not in the inode. So an inode is believed
//!
//! - alone ([`InodeTables::file`]) while the file system has no delayed allocations at all
//!   ([`InodeTables::is_settled`]) and nothing is allocated behind the file's end,
//! - else ([`InodeTables::layout`]) where its size, its blocks and its change time are those that
//!   `statx` tells.
//!
//! For anything unusual there is no answer, and the file has to be mapped.
//!
//! Only for looking, never for moving. Needs read access to the device, which root and the group
//! `disk` have. Layout: Documentation/filesystems/ext4, v6.1.

use std::{
    fs::File,
    os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use indef_core::layout::{Extent, ExtentFlags, Layout};
use units::{Bytes, FileOffset, FileRange, PhysOffset};

use crate::{Filesystem, FsKind, device::BlockDevice};

const MAGIC: u16 = 0xEF53;
const SUPERBLOCK: u64 = 1024;
/// `INCOMPAT_META_BG`: group descriptors lie elsewhere.
const META_BG: u32 = 0x10;
/// `INCOMPAT_EXTENTS`.
const EXTENTS: u32 = 0x40;
/// `INCOMPAT_64BIT`: long group descriptors.
const WIDE: u32 = 0x80;
/// `EXT4_EXTENTS_FL`, of an inode.
const USES_EXTENTS: u32 = 0x8_0000;
/// `EXT4_HUGE_FILE_FL`, `EXT4_INLINE_DATA_FL`, `EXT4_ENCRYPT_FL`: better ask the kernel.
const UNUSUAL: u32 = 0x4_0000 | 0x1000_0000 | 0x800;
/// Read at once: 64 inodes of 256 bytes.
const CHUNK: u64 = 16 << 10;
/// Group descriptors of 16 TiB with blocks of 4 KiB; larger file systems are mapped file by file.
const MOST_GROUPS: u64 = 1 << 17;

/// Where a device's inode tables are.
#[derive(Debug)]
pub struct InodeTables {
    device: File,
    block_size: u64,
    inode_size: u64,
    inodes_per_group: u64,
    /// The first byte of each group's table.
    tables: Vec<u64>,
    /// Where ext4 tells how many blocks are delayed; `None` where a file could be hidden below a
    /// mount.
    delayed: Option<PathBuf>,
}

/// All that a scan wants to know of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InodeFacts {
    /// Size.
    pub size: Bytes,
    /// Allocated sectors of 512 bytes.
    pub sectors: u64,
    /// Names.
    pub links: u32,
    /// Where all of it lies.
    pub layout: Layout,
}

/// What `statx` says of a file, which its inode must agree with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Inode number.
    pub inode: u64,
    /// Size.
    pub size: Bytes,
    /// Allocated sectors of 512 bytes, `stx_blocks`.
    pub sectors: u64,
    /// Change time: seconds and nanoseconds.
    pub ctime: (i64, u32),
}

/// The part of a device that was read last. One for each thread.
#[derive(Debug, Default)]
pub struct InodeChunk {
    bytes: Vec<u8>,
    start: u64,
}

impl InodeChunk {
    /// Forget what was read, so that it is not taken for something newer.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }
}

impl InodeTables {
    /// Of this file system, if it is ext4, its device may be read, and there is nothing unusual
    /// about it.
    #[must_use]
    pub fn open(fs: &Filesystem) -> Option<Self> {
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
        let mut superblock = [0; 1024];
        device.read_exact_at(&mut superblock, SUPERBLOCK).ok()?;
        let geometry = Geometry::parse(&superblock)?;
        let length = geometry.groups.checked_mul(geometry.descriptor_size)?;
        let mut descriptors = vec![0; usize::try_from(length).ok()?];
        device
            .read_exact_at(&mut descriptors, geometry.descriptors)
            .ok()?;
        let tables = descriptors
            .chunks_exact(geometry.descriptor_size as usize)
            .map(|descriptor| {
                let low = u64::from(le32(descriptor, 0x8)?);
                let high = match geometry.descriptor_size {
                    64.. => u64::from(le32(descriptor, 0x28)?),
                    _ => 0,
                };
                (high << 32 | low).checked_mul(geometry.block_size)
            })
            .collect::<Option<Vec<_>>>()?;
        Some(Self {
            device,
            block_size: geometry.block_size,
            inode_size: geometry.inode_size,
            inodes_per_group: geometry.inodes_per_group,
            tables,
            delayed: None,
        })
    }

    /// Whether ext4 knows nothing more of any file than its inode says, right now: no delayed
    /// allocations. Changes at any moment, so it is to be asked again and again.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let read = |path: &PathBuf| std::fs::read_to_string(path).ok();
        self.delayed
            .as_ref()
            .and_then(read)
            .is_some_and(|blocks| blocks.trim() == "0")
    }

    /// What the inode alone says of a regular file, if it holds all of it. To be believed only while
    /// the file system [is settled](Self::is_settled).
    pub fn file(&self, inode: u64, chunk: &mut InodeChunk) -> Option<InodeFacts> {
        let inode = self.inode(inode, chunk)?;
        let extents = extents(inode, self.block_size)?;
        let facts = InodeFacts {
            size: size(inode)?,
            sectors: sectors(inode)?,
            links: u32::from(le16(inode, 0x1A)?),
            layout: Layout::new(extents),
        };
        // A write into blocks behind the end changes the size later than it is seen.
        let end = facts.layout.extents().last().map(Extent::file_end);
        let inside = end.is_none_or(|end| end <= self.end_of(facts.size));
        (inside && facts.links > 0).then_some(facts)
    }

    /// The layout of a file, up to its size, if its inode holds all of it and is as expected.
    pub fn layout(&self, expected: &Expected, chunk: &mut InodeChunk) -> Option<Layout> {
        let inode = self.inode(expected.inode, chunk)?;
        let unchanged = size(inode)? == expected.size
            && sectors(inode)? == expected.sectors
            && le32(inode, 0xC)? == expected.ctime.0 as u32
            && nanoseconds(inode).is_none_or(|nanos| nanos == expected.ctime.1);
        if !unchanged {
            return None;
        }
        let range = FileRange::between(FileOffset(0), self.end_of(expected.size));
        let extents = extents(inode, self.block_size)?;
        Some(Layout::new(
            extents
                .into_iter()
                .filter_map(|extent| extent.clip(range))
                .collect(),
        ))
    }

    fn end_of(&self, size: Bytes) -> FileOffset {
        FileOffset(size.get()).align_up(Bytes(self.block_size))
    }

    /// An inode as it is on the device, from `chunk` if it is in there.
    fn inode<'a>(&self, number: u64, chunk: &'a mut InodeChunk) -> Option<&'a [u8]> {
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

/// The file in which ext4 tells how many blocks wait for their place. `None` if there is none, or if
/// something other than a whole file system is mounted on top of this one: that could be a file, and
/// a directory entry tells the inode below it.
fn delayed_blocks(fs: &Filesystem) -> Option<PathBuf> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let below = fs.mount.as_ref()?.id.to_string();
    let hides_files = table.lines().any(|line| {
        // id parent major:minor root point …
        let mut fields = line.split(' ').skip(1);
        let (parent, root) = (fields.next(), fields.nth(1));
        parent == Some(below.as_str()) && root != Some("/")
    });
    if hides_files {
        return None;
    }
    let path = Path::new("/sys/fs/ext4")
        .join(&*BlockDevice::by_number(fs.dev)?.name())
        .join("delayed_allocation_blocks");
    path.exists().then_some(path)
}

/// What a superblock says, checked.
#[derive(Debug)]
struct Geometry {
    block_size: u64,
    inode_size: u64,
    inodes_per_group: u64,
    groups: u64,
    descriptor_size: u64,
    /// The first byte of the group descriptors.
    descriptors: u64,
}

impl Geometry {
    fn parse(superblock: &[u8]) -> Option<Self> {
        let log_block_size = le32(superblock, 0x18)?;
        let incompatible = le32(superblock, 0x60)?;
        if le16(superblock, 0x38)? != MAGIC
            || log_block_size > 6
            || incompatible & (META_BG | EXTENTS) != EXTENTS
        {
            return None;
        }
        let block_size = 1024 << log_block_size;
        let wide = incompatible & WIDE != 0;
        let first_block = u64::from(le32(superblock, 0x14)?);
        let high = if wide { le32(superblock, 0x150)? } else { 0 };
        let blocks = u64::from(high) << 32 | u64::from(le32(superblock, 0x4)?);
        let blocks_per_group = u64::from(le32(superblock, 0x20)?);
        let inode_size = u64::from(le16(superblock, 0x58)?);
        let inodes_per_group = u64::from(le32(superblock, 0x28)?);
        let descriptor_size = match wide {
            true => u64::from(le16(superblock, 0xFE)?),
            false => 32,
        };
        let groups = blocks
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

/// The extents that the inode of a regular file holds, if it holds all of them.
fn extents(inode: &[u8], block_size: u64) -> Option<Vec<Extent>> {
    let flags = le32(inode, 0x20)?;
    let is_regular = le16(inode, 0)? & 0xF000 == 0x8000;
    if !is_regular || flags & (USES_EXTENTS | UNUSUAL) != USES_EXTENTS {
        return None;
    }
    // The header and up to four extents (struct ext4_extent_header, struct ext4_extent).
    let tree = inode.get(0x28..0x64)?;
    let (entries, depth) = (le16(tree, 2)?, le16(tree, 6)?);
    if le16(tree, 0)? != 0xF30A || entries > 4 || depth != 0 {
        return None;
    }
    (0..usize::from(entries))
        .map(|index| extent(tree.get(12 + index * 12..)?, block_size))
        .collect()
}

fn size(inode: &[u8]) -> Option<Bytes> {
    let (high, low) = (le32(inode, 0x6C)?, le32(inode, 0x4)?);
    Some(Bytes(u64::from(high) << 32 | u64::from(low)))
}

fn sectors(inode: &[u8]) -> Option<u64> {
    let (high, low) = (le16(inode, 0x74)?, le32(inode, 0x1C)?);
    Some(u64::from(high) << 32 | u64::from(low))
}

/// The nanoseconds of the change time; `None` where the inode has no room for them.
fn nanoseconds(inode: &[u8]) -> Option<u32> {
    let extra = le16(inode, 0x80)?;
    (extra >= 8).then(|| le32(inode, 0x84).map(|extra| extra >> 2))?
}

fn extent(entry: &[u8], block_size: u64) -> Option<Extent> {
    let length = u64::from(le16(entry, 4)?);
    // Longer ones are unwritten (EXT_INIT_MAX_LEN).
    let (blocks, flags) = match length {
        0..=0x8000 => (length, ExtentFlags::empty()),
        _ => (length - 0x8000, ExtentFlags::UNWRITTEN),
    };
    let physical = u64::from(le16(entry, 6)?) << 32 | u64::from(le32(entry, 8)?);
    Some(Extent {
        file: FileOffset(u64::from(le32(entry, 0)?) * block_size),
        phys: PhysOffset(physical * block_size),
        len: Bytes(blocks * block_size),
        flags,
    })
}

fn le16(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_le_bytes(bytes.try_into().ok()?))
}

fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;
    use rustix::fs::{FallocateFlags, fallocate};
    use scratch_fs::ScratchFs;

    use super::*;
    use crate::{Mapper, detect, map};

    fn expected(path: &Path) -> Expected {
        let status = fs::metadata(path).unwrap();
        Expected {
            inode: status.ino(),
            size: Bytes(status.len()),
            sectors: status.blocks(),
            ctime: (status.ctime(), status.ctime_nsec() as u32),
        }
    }

    /// Files with blocks at these places (each twice as long as the one before, with gaps of
    /// others between them).
    fn make(folder: &Path) {
        let other = fs::File::create(folder.join("other")).unwrap();
        for pieces in 0..9_u64 {
            for sparse in [0, 1] {
                let file = fs::File::create(folder.join(format!("{pieces}-{sparse}"))).unwrap();
                let mut at = 0;
                for piece in 0..pieces {
                    let length = 4096 << (piece % 3);
                    if piece % 2 == 0 {
                        fallocate(&file, FallocateFlags::empty(), at, length).unwrap();
                    } else {
                        file.write_all_at(&vec![7; length as usize], at).unwrap();
                        file.sync_all().unwrap();
                    }
                    fallocate(&other, FallocateFlags::empty(), piece * 4096, 4096).unwrap();
                    at += length + sparse * 8192;
                }
                // The end is not at a block's end, and something lies behind it.
                file.set_len((at + 1000).saturating_sub(4096)).unwrap();
            }
        }
    }

    fn same_as_mapped(mkfs: &[&str]) {
        let made = ScratchFs::builder("ext4", Bytes::mib(64))
            .mkfs_args(mkfs.iter().copied())
            .build();
        let Some(scratch) = scratch_fs::require(made) else {
            return;
        };
        make(scratch.path());
        let root = fs::File::open(scratch.path()).unwrap();
        let fs = detect(&root, scratch.path()).unwrap();
        let tables = InodeTables::open(&fs).unwrap();
        let (mut chunk, mut mapper) = (InodeChunk::default(), Mapper::default());
        assert!(tables.is_settled());
        let (mut answers, mut alone) = (0, 0);
        for entry in fs::read_dir(scratch.path()).unwrap() {
            let path = entry.unwrap().path();
            if !path.is_file() {
                continue;
            }
            let expected = expected(&path);
            let file = fs::File::open(&path).unwrap();
            let range = FileRange::new(0, expected.size.get()).align_outward(fs.block_size);
            let mapped = map(&file, &path, range, false, &mut mapper).unwrap();
            if let Some(facts) = tables.file(expected.inode, &mut chunk) {
                assert_eq!(facts.size, expected.size);
                assert_eq!(facts.sectors, expected.sectors);
                assert_eq!(facts.links, 1);
                assert_eq!(facts.layout, mapped, "{path:?}");
                alone += 1;
            }
            if let Some(layout) = tables.layout(&expected, &mut chunk) {
                assert_eq!(layout, mapped, "{path:?}");
                answers += 1;
            } else {
                assert!(mapped.extents().len() > 2, "{path:?} {mapped:?}");
            }
        }
        assert!(answers >= 8 && alone >= 4, "{answers} {alone}");
        // Delayed: the inode knows nothing of it yet, and so is not believed.
        let path = scratch.path().join("delayed");
        fs::write(&path, vec![1; 20_000]).unwrap();
        chunk.clear();
        assert!(!tables.is_settled());
        assert_eq!(tables.layout(&expected(&path), &mut chunk), None);
        fs::File::open(&path).unwrap().sync_all().unwrap();
        chunk.clear();
        let layout = tables.layout(&expected(&path), &mut chunk).unwrap();
        assert_eq!(layout.allocated(), Bytes(20_480));
        let (inode, link) = (expected(&path).inode, scratch.path().join("link"));
        fs::hard_link(&path, &link).unwrap();
        chunk.clear();
        assert_eq!(tables.file(inode, &mut chunk).unwrap().links, 2);
        fs::remove_file(&link).unwrap();
        fs::remove_file(&path).unwrap();
        chunk.clear();
        assert_eq!(tables.file(inode, &mut chunk), None);
        // A file below another that is mounted on it.
        let (below, above) = (scratch.path().join("1-0"), scratch.path().join("2-0"));
        let run = |program: &str, arguments: &[&Path]| {
            let status = std::process::Command::new(program).args(arguments).status();
            assert!(status.unwrap().success(), "{program}");
        };
        run("mount", &[Path::new("--bind"), &above, &below]);
        let hidden = InodeTables::open(&fs).unwrap();
        run("umount", &[&below]);
        assert!(!hidden.is_settled());
        let tmpfs = detect(fs::File::open("/proc").unwrap(), Path::new("/proc")).unwrap();
        assert!(InodeTables::open(&tmpfs).is_none());
    }

    #[test]
    fn loop_layouts_are_those_that_the_kernel_maps() {
        same_as_mapped(&[]);
    }

    #[test]
    fn loop_layouts_with_small_blocks_and_inodes() {
        same_as_mapped(&["-b", "1024", "-I", "128", "-O", "^64bit,^metadata_csum"]);
    }

    proptest! {
        #[test]
        fn nothing_on_a_device_panics(
            superblock in prop::collection::vec(any::<u8>(), 1024),
            inode in prop::collection::vec(any::<u8>(), 0..300),
            small: bool,
        ) {
            let mut superblock = superblock;
            if small {
                // Let it come further.
                superblock[0x18..0x1C].copy_from_slice(&2_u32.to_le_bytes());
                superblock[0x38..0x3A].copy_from_slice(&MAGIC.to_le_bytes());
                superblock[0x60..0x64].copy_from_slice(&0x40_u32.to_le_bytes());
                superblock[0x58..0x5A].copy_from_slice(&256_u16.to_le_bytes());
            }
            let _ = Geometry::parse(&superblock);
            let mut inode = inode;
            let _ = extents(&inode, 65_536).map(Layout::new);
            if inode.len() > 0x64 {
                inode[..0x28].fill(0);
                inode[0x1] = 0x80;
                inode[0x22] = 0x8;
                inode[0x28..0x2A].copy_from_slice(&0xF30A_u16.to_le_bytes());
                inode[0x2E..0x30].fill(0);
                let _ = extents(&inode, 65_536).map(Layout::new);
            }
        }
    }
}
