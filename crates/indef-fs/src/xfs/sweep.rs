//! All inodes of a mounted XFS, from its bulk statistics, without a walk.
//!
//! What is answered here has to be what a walk of the whole file system finds. Each inode that has a link has a name
//! beneath the topmost directory, so numbers of names follow from the links. The file system's own inodes are not told
//! (fs/xfs/xfs_itable.c, `xfs_bulkstat_one_int`, v6.18). There is no answer for a part of a file system, as inodes do not
//! tell in which directory they are, and none where a mount hides something. Names are not known, either: files that have
//! to be told by name need a walk after all, but that looks at no other ones.

use std::{
    fs::File,
    io,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use linux_abi::xfs::{InodeRecord, InodeRecords};
use rustix::fs::{AtFlags, FileType, StatxAttributes, StatxFlags, statx};
use units::Bytes;

use super::inodes::BulkInodes;
use crate::{Filesystem, FsKind, covered::covered, in_threads::in_threads, nature::Nature};

/// Allocation groups that are read at the same time at least: inodes that are not in memory are waited for.
const GROUPS_AT_ONCE: u64 = 4;

/// An inode that has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SweptInode {
    /// Its number.
    pub inode: u64,
    /// Its generation: each file that gets the number has another one.
    pub generation: u32,
    /// Its names.
    pub links: u32,
    /// What it is.
    pub nature: Nature,
}

/// All inodes of a mounted XFS.
#[derive(Debug)]
pub struct Sweep {
    inodes: BulkInodes,
    covered: u64,
}

impl Sweep {
    /// Those of the file system of which `directory` is the topmost directory; `None` where there is no way to them, or a
    /// walk might see others.
    #[must_use]
    pub fn open(fs: &Filesystem, directory: &File) -> Option<Self> {
        let is_whole = fs.kind == FsKind::Xfs && fs.mount.as_ref()?.root == Path::new("/");
        let status = statx(directory, "", AtFlags::EMPTY_PATH, StatxFlags::TYPE).ok()?;
        if !is_whole || !status.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
            return None;
        }
        Some(Self {
            inodes: BulkInodes::open(fs, directory)?,
            covered: covered(fs, directory)?,
        })
    }

    /// Its directories on which other file systems are mounted; they are empty.
    #[must_use]
    pub const fn covered(&self) -> u64 {
        self.covered
    }

    /// Visit all inodes that have a name, from many threads; each allocation group in the order of the numbers, with a
    /// value of its own that `begin` makes. Returns these in the order of the groups. `stop` is asked between reads.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn all<P: Send>(
        &self,
        threads: usize,
        stop: &(dyn Fn() -> bool + Sync),
        begin: &(dyn Fn() -> P + Sync),
        visit: &(dyn Fn(&mut P, SweptInode) + Sync),
    ) -> io::Result<Vec<P>> {
        let groups = u64::from(self.inodes.groups());
        let next = AtomicU64::new(0);
        let work = || -> io::Result<Vec<(u64, P)>> {
            let (mut records, mut parts) = (InodeRecords::new(), Vec::new());
            loop {
                let group = next.fetch_add(1, Ordering::Relaxed);
                if group >= groups {
                    return Ok(parts);
                }
                let (mut part, mut from) = (begin(), 0);
                while !stop() {
                    let found = self.inodes.read_group(&mut records, group as u32, from)?;
                    let Some(last) = found.last() else { break };
                    from = last.inode + 1;
                    let swept = found.iter().filter_map(|record| self.swept(record));
                    swept.for_each(|it| visit(&mut part, it));
                }
                parts.push((group, part));
            }
        };
        in_threads(
            (threads as u64).max(GROUPS_AT_ONCE).min(groups.max(1)),
            &work,
        )
    }

    fn swept(&self, record: &InodeRecord) -> Option<SweptInode> {
        let nature = match FileType::from_raw_mode(record.mode.into()) {
            FileType::Directory => Nature::Directory,
            FileType::RegularFile => match self.inodes.is_plain(record) {
                true => Nature::Plain {
                    size: Bytes(record.size),
                    allocated: self.inodes.allocated(record),
                },
                false => Nature::Notable,
            },
            _ => Nature::Other,
        };
        (record.links > 0).then_some(SweptInode {
            inode: record.inode,
            generation: record.generation,
            links: record.links,
            nature,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs, os::unix::fs::MetadataExt};

    use linux_abi::xfs::generation;
    use scratch_fs::{FragmentOptions, ScratchFs, fragment, require};

    use super::*;

    /// All inodes by their numbers, once each.
    fn all(sweep: &Sweep, threads: usize) -> BTreeMap<u64, SweptInode> {
        let visit = |part: &mut Vec<SweptInode>, it| part.push(it);
        let parts = sweep.all(threads, &|| false, &Vec::new, &visit).unwrap();
        let inodes: Vec<_> = parts.concat();
        assert!(inodes.is_sorted_by(|one, next| one.inode < next.inode));
        inodes.into_iter().map(|it| (it.inode, it)).collect()
    }

    #[test]
    fn loop_a_sweep_finds_everything_that_has_a_name() {
        let made = ScratchFs::builder("xfs", Bytes::mib(512)).build();
        let Some(scratch) = require(made) else {
            return;
        };
        let path = |name: &str| scratch.path().join(name);
        // XFS puts directories into different groups; more files than are read at once.
        for folder in 0..8 {
            fs::create_dir(path(&folder.to_string())).unwrap();
            (0..300).for_each(|n| fs::write(path(&format!("{folder}/{n}")), [1; 5000]).unwrap());
        }
        fs::write(path("empty"), "").unwrap();
        fs::hard_link(path("empty"), path("again")).unwrap();
        std::os::unix::fs::symlink("empty", path("link")).unwrap();
        let options = FragmentOptions {
            size: Bytes::kib(64),
            piece: Bytes::kib(4),
            seed: 1,
        };
        fragment(&path("pieces"), options).unwrap();
        fs::write(path("gone"), [1; 5000]).unwrap();
        let gone = File::open(path("gone")).unwrap();
        fs::remove_file(path("gone")).unwrap();
        scratch.sync().unwrap();

        let root = File::open(scratch.path()).unwrap();
        let fs = crate::detect(&root, scratch.path()).unwrap();
        let sweep = Sweep::open(&fs, &root).expect("root may");
        let found = all(&sweep, 1);
        assert_eq!(all(&sweep, 3), found);
        let of = |name: &str| {
            let status = fs::symlink_metadata(path(name)).unwrap();
            let it = found.get(&status.ino());
            let it = it.unwrap_or_else(|| panic!("{name} was not found"));
            assert_eq!(it.generation, generation(&root, it.inode).unwrap());
            (it.links, it.nature)
        };
        let plain = |size, allocated| Nature::Plain {
            size: Bytes(size),
            allocated: Bytes(allocated),
        };
        assert_eq!(of("."), (10, Nature::Directory));
        assert_eq!(of("3/299"), (1, plain(5000, 8192)));
        assert_eq!(of("again"), (2, plain(0, 0)));
        assert_eq!(of("link"), (1, Nature::Other));
        assert_eq!(of("pieces"), (1, Nature::Notable));
        assert!(!found.contains_key(&gone.metadata().unwrap().ino()));
        let folders = 1 + 8;
        assert_eq!(found.len(), folders + 8 * 300 + 3);

        // A part of a file system has other files.
        let folder = File::open(path("3")).unwrap();
        assert!(Sweep::open(&fs, &folder).is_none());
    }
}
