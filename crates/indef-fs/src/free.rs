//! The free space of a file system, as it lies on the device.

use std::{
    cmp::Reverse,
    io,
    time::{Duration, Instant},
};

use indef_core::layout::FreeSpace;
use linux_abi::fsmap::{self, Owner};
use rustix::{
    io::Errno,
    thread::{CapabilitySet, capabilities, set_capabilities},
};
use units::{Bytes, PhysRange};

use crate::{Filesystem, FsKind, btrfs, f2fs};

/// A look takes no longer, but for the last of its calls: ext4 reads the bitmap of each block group that is not in
/// memory (fs/ext4/fsmap.c, `ext4_getfsmap_datadev`, v6.12), Btrfs a part of its free space tree.
const LOOK_FOR: Duration = Duration::from_secs(1);

/// The space of a file system, in the order of the device (of Btrfs: of its own addresses).
#[derive(Clone, Debug, Default)]
pub struct SpaceMap {
    /// Free runs; two that touch are one. Of Btrfs those in chunks of data, and then those that new chunks could have; of F2FS
    /// those of whole sections that it does not keep for itself.
    pub free: Vec<PhysRange>,
    /// Bytes of the file system's own, as far as it tells.
    pub metadata: Bytes,
    /// Bytes of files, and of owners that it does not tell.
    pub used: Bytes,
    /// Where a new file can lie in all free runs as if they were one, the length in which they are given out (sections of
    /// F2FS, wherever they are).
    pub unit: Option<Bytes>,
}

impl SpaceMap {
    /// The longest free run.
    #[must_use]
    pub fn largest(&self) -> Bytes {
        let runs = self.free.iter().map(|run| run.len);
        runs.max().unwrap_or_default()
    }

    /// The bytes that a new file can have in one piece: the longest free run, or all of them.
    #[must_use]
    pub fn longest(&self) -> Bytes {
        match self.unit {
            Some(_) => self.total(),
            None => self.largest(),
        }
    }

    /// Leave no more free bytes than these, in the longest of the runs.
    pub(crate) fn limit_to(&mut self, most: Bytes) {
        let mut left = most;
        self.free.sort_by_key(|run| Reverse(run.len));
        for run in &mut self.free {
            run.len = run.len.min(left);
            left -= run.len;
        }
        self.free.retain(|run| !run.len.is_zero());
        self.free.sort_by_key(|run| run.start);
    }

    /// Free bytes.
    #[must_use]
    pub fn total(&self) -> Bytes {
        self.free.iter().map(|run| run.len).sum()
    }
}

/// The space of a file system, however long it takes.
///
/// # Errors
///
/// `EOPNOTSUPP` where it cannot tell, or is not mounted where this program sees it; the kernel's error.
pub fn space_map(fs: &Filesystem) -> io::Result<SpaceMap> {
    let mount = fs.mount.as_ref().ok_or(Errno::OPNOTSUPP)?;
    let root = mount.open(fs.dev)?;
    match fs.kind {
        FsKind::Btrfs => return Ok(btrfs::space_map(&root, &|| false)?.ok_or(Errno::OPNOTSUPP)?),
        FsKind::F2fs => return Ok(f2fs::space_map(fs)?.ok_or(Errno::OPNOTSUPP)?),
        _ => {}
    }
    let mut map = SpaceMap::default();
    fsmap::runs(&root, fs.dev, |run| {
        match run.owner {
            Owner::Free => match map.free.last_mut() {
                Some(last) if last.end().get() == run.start => last.len += Bytes(run.len),
                _ => map.free.push(PhysRange::new(run.start, run.len)),
            },
            Owner::Metadata => map.metadata += Bytes(run.len),
            Owner::Other => map.used += Bytes(run.len),
        }
        true
    })?;
    Ok(map)
}

/// The free space of a file system; `None` where it cannot tell, or not to this user (Btrfs and F2FS tell root), or not
/// in a second.
#[must_use]
pub fn free_space(fs: &Filesystem) -> Option<FreeSpace> {
    let root = fs.mount.as_ref()?.open(fs.dev).ok()?;
    let began = Instant::now();
    let runs_of = |map: SpaceMap| {
        let mut free = FreeSpace::default();
        map.free
            .iter()
            .for_each(|run| free.add(run.start.get(), run.len.get()));
        free.close();
        free
    };
    match fs.kind {
        FsKind::Ext4 | FsKind::Xfs => {}
        FsKind::Btrfs => {
            let is_over = || began.elapsed() >= LOOK_FOR;
            return btrfs::space_map(&root, &is_over).ok()?.map(runs_of);
        }
        FsKind::F2fs => return f2fs::space_map(fs).ok()?.map(runs_of),
        FsKind::Other(_) => return None,
    }
    let look = || {
        // Who may know the owners of all space is told each of them by XFS, which takes as long as there are
        // extents (fs/xfs/xfs_fsmap.c, `xfs_getfsmap`, v6.12). This thread may not.
        let mut ours = capabilities(None).ok()?;
        ours.effective.remove(CapabilitySet::SYS_ADMIN);
        set_capabilities(None, ours).ok()?;
        let (mut free, mut in_time) = (FreeSpace::default(), true);
        fsmap::runs(&root, fs.dev, |run| {
            if run.owner == Owner::Free {
                free.add(run.start, run.len);
            }
            in_time = began.elapsed() < LOOK_FOR;
            in_time
        })
        .ok()?;
        free.close();
        in_time.then_some(free)
    };
    // Capabilities are those of a thread.
    std::thread::scope(|scope| {
        let looking = std::thread::Builder::new().spawn_scoped(scope, look).ok()?;
        looking.join().ok()?
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use rustix::fs::{FallocateFlags, fallocate};
    use scratch_fs::{ScratchFs, require};

    #[test]
    fn loop_what_is_free_is_found_by_who_needs_it() {
        for kind in ["ext4", "xfs", "btrfs"] {
            let Some(scratch) = require(ScratchFs::builder(kind, Bytes::mib(512)).build()) else {
                continue;
            };
            let root = File::open(scratch.path()).unwrap();
            let fs = crate::detect(&root, scratch.path()).unwrap();
            let look = || free_space(&fs).unwrap();
            let fresh = look();
            assert!(fresh.largest() >= Bytes::mib(64), "{kind}: {fresh:?}");
            // Every other 64 KiB of all that is free.
            let (mut files, step) = (Vec::new(), 64 << 10);
            let length = fresh.total().get() / step * 9 / 10;
            for n in 0..length {
                let file = File::create(scratch.path().join(n.to_string())).unwrap();
                if fallocate(&file, FallocateFlags::empty(), 0, step).is_err() {
                    break;
                }
                files.push(n);
            }
            scratch.sync().unwrap();
            let full = look().total();
            let removed = files.iter().step_by(2);
            // A directory or a tree of extents may take a few blocks meanwhile.
            let wanted = full + Bytes(removed.len() as u64 * step) - Bytes::mib(1);
            for n in removed {
                std::fs::remove_file(scratch.path().join(n.to_string())).unwrap();
            }
            // ext4 gives blocks back when the journal is committed, XFS a while after.
            let mut free = look();
            for _ in 0..100 {
                std::thread::sleep(std::time::Duration::from_millis(100));
                scratch.sync().unwrap();
                let now = look();
                if now.total() >= wanted && now.total() == free.total() {
                    break;
                }
                free = now;
            }
            assert!(free.total() >= wanted, "{kind}: {wanted} of {free:?}");
            assert!(free.runs() > fresh.runs() + 500, "{kind}: {free:?}");
            // The kernel cannot do better than is told.
            let size = free.total().get() / 2;
            let told = free.pieces(Bytes(size)).unwrap();
            let file = File::create(scratch.path().join("large")).unwrap();
            fallocate(&file, FallocateFlags::empty(), 0, size).unwrap();
            let path = scratch.path().join("large");
            let range = units::FileRange::new(0, size);
            let layout = crate::map(&file, &path, range, true, &mut crate::Mapper::default());
            let pieces = layout.unwrap().fragments();
            assert!(pieces + 1 >= told, "{kind}: {pieces} pieces, {told} told");
            assert!(told > 100, "{kind}: {told} of {size}");
        }
    }
}
