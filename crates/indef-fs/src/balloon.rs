//! A file without a name that holds the free space of a region, so that nobody else gets it.
//!
//! No call of a stock kernel allocates at a given place. XFS looks for new blocks at the end of a file at the
//! place that continues the file's last extent, and where there is a hole in between, as far behind it on the
//! device as in the file, in the same allocation group (`xfs_bmap_adjacent`, fs/xfs/libxfs/xfs_bmap.c, v6.18;
//! tried: 2,048 of 2,048 runs). So a file whose first block lies below the region gets each free run of it:
//! fallocate as far behind that block in the file as the run lies behind it on the device, for just its length. The
//! first block goes near the inode, and the inode into the group of its directory.
//!
//! ```text
//! device  ─ inode ─ F ─────────── region: r A A r r B r ─▶      r: free runs, exactly these are asked for
//! file    ───────── F ─────────────────── r     r r   r ─▶      the same distances
//! ```
//!
//! Whatever the kernel gives elsewhere is given back at once. Only XFS is led like this: ext4 begins where it has
//! allocated last, whatever the file (`ext4_mb_regular_allocator`, fs/ext4/mballoc.c, v6.18).
//!
//! The directory may be anybody's, and a new file takes over much from it: the project and the group, whose quotas it
//! would use up for others, an extent size hint, which would round allocations up beyond the runs, and data in the
//! realtime part. So the file is made root's own before it gets a block.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, OwnedFd},
};

use linux_abi::{
    fiemap::Mapper,
    handle::{self, FileHandle},
    xfs::{InodeRecords, geometry},
};
use rustix::{
    fs::{AtFlags, FallocateFlags, FileType, OFlags, StatxFlags, fallocate, statx},
    io::Errno,
};
use units::{Bytes, FileOffset, FileRange, PhysOffset, PhysRange};

use crate::{
    Filesystem, FsKind, map,
    own::{make_own, make_plain},
    target::unnamed_in,
};

/// Allocation groups in which a balloon can begin; further ones are left alone.
const MOST_GROUPS: u64 = 4096;

/// Where regions can be held: each ground is the part of an allocation group behind the first block of a balloon.
#[derive(Debug, Default)]
pub struct Grounds(Vec<Balloon>);

impl Grounds {
    /// The grounds of a file system; none where regions cannot be held.
    ///
    /// # Errors
    ///
    /// The kernel's error; `EPERM` without `CAP_SYS_ADMIN`.
    pub fn of(fs: &Filesystem) -> io::Result<Option<Self>> {
        if fs.kind != FsKind::Xfs {
            return Ok(None);
        }
        let mount = fs.mount.as_ref().ok_or(Errno::OPNOTSUPP)?;
        let root = mount.open(fs.dev)?;
        let geometry = geometry(&root)?;
        let per_block = geometry.block_size / geometry.inode_size.max(1);
        // An inode's number: its group, its block in it, and its place in that.
        let bits = ceil_log2(geometry.group_blocks) + ceil_log2(per_block);
        let group_len = Bytes(u64::from(geometry.group_blocks) * u64::from(geometry.block_size));
        let mut grounds = Self::default();
        for (group, directory) in lowest_directories(&root, bits)? {
            if group >= MOST_GROUPS {
                break;
            }
            let place = PhysRange {
                start: PhysOffset(group * group_len.get()),
                len: group_len,
            };
            match Balloon::begin(&directory, place, Bytes(geometry.block_size.into())) {
                Ok(Some(balloon)) => grounds.0.push(balloon),
                Ok(None) => {}
                // Its user's quota, or it has gone.
                Err(error) => tracing::debug!(group, %error, "no ground in this group"),
            }
        }
        Ok(Some(grounds))
    }

    /// Whether a range can be held.
    #[must_use]
    pub fn can_hold(&self, range: PhysRange) -> bool {
        self.0.iter().any(|balloon| balloon.ground.contains(range))
    }

    /// Hold `free`, free runs of one ground in the order of the device, and give up all other grounds.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn hold(self, free: &[PhysRange]) -> io::Result<Option<Balloon>> {
        let inside = |balloon: &Balloon| free.iter().all(|run| balloon.ground.contains(*run));
        let Some(mut balloon) = self.0.into_iter().find(inside) else {
            return Ok(None);
        };
        balloon.fill(free)?;
        Ok(Some(balloon))
    }
}

/// A file without a name that holds free space. It is gone when it is dropped, also by a crash.
#[derive(Debug)]
pub struct Balloon {
    file: File,
    /// Its first block.
    first: PhysOffset,
    /// The rest of the allocation group behind that.
    ground: PhysRange,
    held: Bytes,
}

impl Balloon {
    /// Begin one with a block in the allocation group `group`, in which the directory lies.
    fn begin(directory: &OwnedFd, group: PhysRange, block: Bytes) -> io::Result<Option<Self>> {
        let file = unnamed_in(directory, OFlags::empty())?;
        make_plain(&file)?;
        make_own(&file)?;
        fallocate(&file, FallocateFlags::KEEP_SIZE, 0, block.get())?;
        let Some(first) = place_of(&file, FileRange::new(0, block.get()))? else {
            return Ok(None);
        };
        let ground = PhysRange::between(first.end(), group.end());
        Ok(group.contains(first).then_some(Self {
            file,
            first: first.start,
            ground,
            held: Bytes::ZERO,
        }))
    }

    /// Bytes that it holds.
    #[must_use]
    pub fn held(&self) -> Bytes {
        self.held
    }

    fn fill(&mut self, free: &[PhysRange]) -> io::Result<()> {
        for run in free {
            let range = FileRange {
                start: FileOffset(0) + (run.start - self.first),
                len: run.len,
            };
            let (start, len) = (range.start.get(), range.len.get());
            match fallocate(&self.file, FallocateFlags::KEEP_SIZE, start, len) {
                Ok(()) if place_of(&self.file, range)? == Some(*run) => self.held += run.len,
                // Somebody else has it by now.
                Ok(()) | Err(Errno::NOSPC) => {
                    let punch = FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE;
                    fallocate(&self.file, punch, start, len)?;
                }
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}

/// Where a range of a file lies, if it is in one piece.
fn place_of(file: &File, range: FileRange) -> io::Result<Option<PhysRange>> {
    let layout = map(file, "".as_ref(), range, false, &mut Mapper::default())
        .map_err(|refusal| io::Error::other(format!("{refusal:?}")))?;
    let place = |first: PhysOffset| PhysRange {
        start: first,
        len: range.len,
    };
    let whole = layout.fragments_in(range) == 1 && layout.allocated() >= range.len;
    let first = layout.clipped(range).next().filter(|_| whole);
    Ok(first.map(|extent| place(extent.phys)))
}

/// Of each allocation group the directory with the lowest number: its blocks, and those of a new file in it, lie at
/// the beginning.
fn lowest_directories(root: &File, bits: u32) -> io::Result<Vec<(u64, OwnedFd)>> {
    let (mut records, mut found, mut from) = (InodeRecords::new(), Vec::new(), 0);
    loop {
        let inodes = records.read(root, from, InodeRecords::MOST)?;
        let Some(last) = inodes.last() else {
            return Ok(found);
        };
        from = last.inode + 1;
        for inode in inodes {
            let group = inode.inode >> bits;
            let is_directory = FileType::from_raw_mode(inode.mode.into()) == FileType::Directory;
            if is_directory
                && inode.links > 0
                && found.last().is_none_or(|(last, _)| *last != group)
                && let Some(directory) = open_directory(root, inode.inode, inode.generation)
            {
                found.push((group, directory));
            }
        }
    }
}

fn open_directory(root: &File, inode: u64, generation: u32) -> Option<OwnedFd> {
    // The kind of handle depends on how the file system is mounted (fs/xfs/xfs_export.c, v6.18).
    let long = FileHandle::Xfs64 { inode, generation };
    let short = u32::try_from(inode)
        .ok()
        .map(|inode| FileHandle::Inode32 { inode, generation });
    let mut handles = [Some(long), short].into_iter().flatten();
    let directory = handles.find_map(|handle| handle::open(root.as_fd(), handle).ok())?;
    let status = statx(
        &directory,
        "",
        AtFlags::EMPTY_PATH,
        StatxFlags::INO | StatxFlags::TYPE,
    )
    .ok()?;
    let is_directory = FileType::from_raw_mode(status.stx_mode.into()) == FileType::Directory;
    (status.stx_ino == inode && is_directory).then_some(directory)
}

fn ceil_log2(n: u32) -> u32 {
    n.max(1).next_power_of_two().trailing_zeros()
}

#[cfg(test)]
mod tests {
    use std::{path::Path, process::Command};

    use linux_abi::fsxattr::{Attributes, Flags};
    use rustix::fs::{Gid, Uid, fchown};
    use scratch_fs::{ScratchFs, require, require_program};

    use super::*;
    use crate::space_map;

    const HOLE: Bytes = Bytes::kib(16);

    /// Take every other part away from a file that is in one piece: freed files would leave it to the moment when XFS frees
    /// them, and when the pages of others are written, where holes begin and end.
    fn with_holes(scratch: &ScratchFs) -> Filesystem {
        let file = File::create(scratch.path().join("file")).unwrap();
        let none = FallocateFlags::empty();
        fallocate(&file, none, 0, 2000 * HOLE.get()).unwrap();
        for n in (0..2000).step_by(2) {
            let punch = FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE;
            fallocate(&file, punch, n * HOLE.get(), HOLE.get()).unwrap();
        }
        scratch.sync().unwrap();
        crate::detect(File::open(scratch.path()).unwrap(), scratch.path()).unwrap()
    }

    /// Some of the holes.
    fn region(fs: &Filesystem, grounds: &Grounds) -> Vec<PhysRange> {
        let free = space_map(fs).unwrap().free.into_iter();
        let holes = free.filter(|run| grounds.can_hold(*run) && run.len == HOLE);
        let region: Vec<_> = holes.skip(100).take(500).collect();
        assert_eq!(region.len(), 500);
        region
    }

    #[test]
    fn loop_a_balloon_takes_just_the_free_runs_of_a_region() {
        let Some(scratch) = require(ScratchFs::builder("xfs", Bytes::mib(512)).build()) else {
            return;
        };
        let fs = with_holes(&scratch);
        let grounds = Grounds::of(&fs).unwrap().unwrap();
        let region = region(&fs, &grounds);
        let balloon = grounds.hold(&region).unwrap().unwrap();
        assert_eq!(balloon.held(), HOLE * 500);
        let after = space_map(&fs).unwrap().free;
        assert!(
            region
                .iter()
                .all(|run| after.iter().all(|free| !free.overlaps(*run)))
        );
        drop(balloon);
    }

    /// A directory of somebody who has hints and a project for what is made in it.
    #[test]
    fn loop_a_balloon_takes_nothing_over_from_its_directory() {
        let built = ScratchFs::builder("xfs", Bytes::mib(512)).build();
        let Some(scratch) = require(built).filter(|_| require_program("xfs_io")) else {
            return;
        };
        let fs = with_holes(&scratch);
        inherit(scratch.path());
        let grounds = Grounds::of(&fs).unwrap().unwrap();
        let region = region(&fs, &grounds);
        let before = space_map(&fs).unwrap();
        let balloon = grounds.hold(&region).unwrap().unwrap();
        assert_eq!(balloon.held(), HOLE * 500);
        let after = space_map(&fs).unwrap();
        // Its extents need blocks of a tree.
        let taken = before.total().saturating_sub(after.total());
        assert!(
            taken < HOLE * 500 + Bytes::kib(256),
            "{taken} are not free any more"
        );
        let attributes = Attributes::get(&balloon.file).unwrap();
        assert_eq!(attributes.project(), 0);
        assert!(attributes.flags().contains(Flags::NODEFRAG));
        assert!(!attributes.flags().contains(Flags::EXTSIZE));
        let status = rustix::fs::fstat(&balloon.file).unwrap();
        assert_eq!((status.st_uid, status.st_gid), (0, 0));
    }

    /// Let everything that is made below have a project, a group and an extent size hint.
    fn inherit(directory: &Path) {
        let root = File::open(directory).unwrap();
        // FS_XFLAG_PROJINHERIT (linux/fs.h)
        let inherits = Flags::from_bits_retain(0x200);
        let is = Attributes::get(&root).unwrap();
        let with = is.with_flags(is.flags() | inherits).with_project(7);
        with.set(&root).unwrap();
        fchown(&root, Some(Uid::from_raw(1000)), Some(Gid::from_raw(1000))).unwrap();
        rustix::fs::fchmod(&root, rustix::fs::Mode::from_raw_mode(0o2755)).unwrap();
        let ran = Command::new("xfs_io")
            .args(["-r", "-c", "extsize 1m"])
            .arg(directory)
            .status();
        assert!(ran.unwrap().success());
    }
}
