//! Which file system a file is on, and which engines serve it.

use std::{io, os::fd::AsFd, path::Path, sync::OnceLock};

use indef_core::SkipReason;
use rustix::fs::{AtFlags, StatFs, StatxFlags, fstatfs, statx};
use units::Bytes;

use crate::{EngineKind, FsError, FsKind, Mount, device::BlockDevice};

/// `ST_RDONLY` in `f_flags` (linux/statfs.h, v6.1): of the file system or of this mount of it.
const ST_RDONLY: i64 = 1;

/// `BTRFS_SUPER_MAGIC` (linux/magic.h, v6.1).
const BTRFS_MAGIC: i64 = 0x9123_683E;

/// A mounted file system, as one of its files shows it.
#[derive(Clone, Debug)]
pub struct Filesystem {
    /// Its kind.
    pub kind: FsKind,
    /// `st_dev` of the file (on Btrfs each subvolume has its own).
    pub dev: u64,
    /// Block size: everything is moved in multiples of it.
    pub block_size: Bytes,
    /// Mounted read-only, as a whole or here.
    pub read_only: bool,
    /// Free for this user when it was looked at; [`Space::of`] tells the current number.
    pub free: Bytes,
    /// Size.
    pub total: Bytes,
    /// The running kernel: major, minor.
    pub kernel: (u32, u32),
    /// Its entry in the mount table, where `/proc` shows one.
    pub mount: Option<Mount>,
}

/// Look at an open file and say which file system it is on. Two system calls and a look at the
/// mount table: a caller with many files asks once for each device number.
///
/// # Errors
///
/// The kernel does not know the descriptor, or has no `statx` (before 4.11).
pub fn detect(file: impl AsFd, path: &Path) -> Result<Filesystem, FsError> {
    let fail = |errno: rustix::io::Errno| FsError::new(path, "detect the file system", errno);
    let space = fstatfs(&file).map_err(fail)?;
    let status = statx(&file, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).map_err(fail)?;
    let has_id = status.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    let mount = has_id
        .then(|| Mount::by_id(status.stx_mnt_id).ok().flatten())
        .flatten();
    let magic = space.f_type as i64;
    let now = Space::from_statfs(&space);
    Ok(Filesystem {
        kind: FsKind::from_magic(magic, mount.as_ref().map(|m| m.fs_type.as_str())),
        dev: rustix::fs::makedev(status.stx_dev_major, status.stx_dev_minor),
        block_size: block_size(&space),
        read_only: space.f_flags as i64 & ST_RDONLY != 0,
        free: now.free,
        total: now.total,
        kernel: kernel(),
        mount,
    })
}

impl Filesystem {
    /// The engines that may serve it, best first; none for a file system without one.
    /// [`crate::relocator`] finds out whether one really can.
    #[must_use]
    pub fn engines(&self) -> Vec<EngineKind> {
        match self.kind {
            FsKind::Ext4 => vec![EngineKind::Ext4MoveExtent],
            // The first one takes only files that somebody shares, like Btrfs' first one.
            FsKind::Xfs => vec![
                EngineKind::XfsShareRange,
                EngineKind::XfsCommitRange,
                EngineKind::XfsDedupeRange,
                EngineKind::XfsSwapExtents,
            ],
            // The first one takes only files that somebody shares.
            FsKind::Btrfs => vec![EngineKind::BtrfsShareRange, EngineKind::BtrfsDefragRange],
            // The kernel mounts it like this on zoned devices, and has an offload only there.
            FsKind::F2fs if self.has_mount_option("mode=lfs") => {
                vec![EngineKind::F2fsOffload, EngineKind::F2fsDefragment]
            }
            FsKind::F2fs => vec![EngineKind::F2fsDefragment],
            FsKind::Other(_) => Vec::new(),
        }
    }

    /// Whether an engine may serve it when it is asked for by name: one of [`Self::engines`], or one
    /// that is never chosen by itself (`xfs-offload` writes more than it saves to read).
    #[must_use]
    pub fn may_use(&self, engine: EngineKind) -> bool {
        self.engines().contains(&engine)
            || (self.kind, engine) == (FsKind::Xfs, EngineKind::XfsOffload)
    }

    /// Whether a mount option is set; `false` where the mount table is not known.
    #[must_use]
    pub fn has_mount_option(&self, option: &str) -> bool {
        self.mount.as_ref().is_some_and(|m| m.has_option(option))
    }

    /// Why no engine can move anything on it, as it is mounted.
    ///
    /// F2FS with `checkpoint=disable` goes back to its last checkpoint when it is mounted the next time, and every moved file with
    /// it: not even fsync makes a move durable there (`f2fs_do_sync_file`, fs/f2fs/file.c, v6.12). Until checkpoints are on again
    /// the old blocks are not free either, so what moves takes space twice.
    #[must_use]
    pub fn moves_nothing(&self) -> Option<SkipReason> {
        if self.read_only {
            return Some(SkipReason::ReadOnlyMount);
        }
        // How much it may cost stands behind a colon (`f2fs_show_options`, fs/f2fs/super.c, v6.12).
        let checkpoint = self.mount.as_ref()?.value_of("checkpoint")?;
        let is_off = self.kind == FsKind::F2fs && checkpoint.split(':').next() == Some("disable");
        is_off.then_some(SkipReason::CheckpointsOff)
    }

    /// Whether it tells its SSD with each write where that lies in its file, and the SSD places the
    /// data accordingly (FAST'24; `kernel/die-hints`): fragments that are written from now on can be
    /// read at the same time, like contiguous data.
    #[must_use]
    pub fn gives_die_hints(&self) -> bool {
        self.has_mount_option("die_hints")
            && BlockDevice::by_number(self.dev).is_some_and(|device| device.takes_die_hints())
    }

    /// Whether the running kernel is at least this one.
    #[must_use]
    pub fn kernel_at_least(&self, major: u32, minor: u32) -> bool {
        self.kernel >= (major, minor)
    }
}

/// The identity of a file system among those that are mounted now: the same for all users, mounts
/// of it and subvolumes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileSystemKey(String);

impl FileSystemKey {
    /// The key of the file system that holds the file that the descriptor names (`O_PATH` will do).
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn of(file: impl AsFd) -> io::Result<Self> {
        let space = fstatfs(&file)?;
        Ok(Self(if space.f_type as i64 == BTRFS_MAGIC {
            // Each subvolume has a device number of its own, and its number in the upper half of the
            // file system's id (`btrfs_statfs`, fs/btrfs/super.c, v6.1).
            format!("btrfs-{:08x}", rustix::fs::fstatvfs(&file)?.f_fsid as u32)
        } else {
            let status = statx(&file, "", AtFlags::EMPTY_PATH, StatxFlags::INO)?;
            format!("{}:{}", status.stx_dev_major, status.stx_dev_minor)
        }))
    }
}

impl std::fmt::Display for FileSystemKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.0)
    }
}

/// How full a file system is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Free for this user.
    pub free: Bytes,
    /// Size.
    pub total: Bytes,
}

impl Space {
    /// The space of the file system that holds the open file.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn of(file: impl AsFd) -> io::Result<Self> {
        Ok(Self::from_statfs(&fstatfs(file)?))
    }

    fn from_statfs(space: &StatFs) -> Self {
        let unit = block_size(space).get();
        Self {
            free: Bytes(space.f_bavail.saturating_mul(unit)),
            total: Bytes(space.f_blocks.saturating_mul(unit)),
        }
    }

    /// Whether at least `min_free_pct` percent stay free when `needed` bytes are taken.
    #[must_use]
    pub fn allows(self, needed: Bytes, min_free_pct: f64) -> bool {
        let left = self.free.get().checked_sub(needed.get());
        left.is_some_and(|left| left as f64 >= self.total.get() as f64 * min_free_pct / 100.0)
    }

    /// The bytes that may be taken so that `min_free_pct` percent stay free.
    #[must_use]
    pub fn to_take(self, min_free_pct: f64) -> Bytes {
        let kept = (self.total.get() as f64 * min_free_pct / 100.0).ceil() as u64;
        self.free.saturating_sub(Bytes(kept))
    }
}

/// Whether the file system of `file` keeps `min_free_pct` percent free when `needed` bytes are
/// taken from it.
///
/// # Errors
///
/// The kernel's error.
pub fn free_space_ok(file: impl AsFd, needed: Bytes, min_free_pct: f64) -> io::Result<bool> {
    Ok(Space::of(file)?.allows(needed, min_free_pct))
}

/// The block size of a file system; one byte where it reports none, so that nothing divides by
/// zero.
pub(crate) fn block_size(space: &StatFs) -> Bytes {
    Bytes(u64::try_from(space.f_bsize).unwrap_or(1).max(1))
}

/// Version of the running kernel, asked once.
fn kernel() -> (u32, u32) {
    static KERNEL: OnceLock<(u32, u32)> = OnceLock::new();
    *KERNEL.get_or_init(|| {
        let name = rustix::system::uname();
        parse_release(&name.release().to_string_lossy())
    })
}

/// `6.1.0-18-amd64` is (6, 1). A number that cannot be read counts as 0, the oldest.
fn parse_release(release: &str) -> (u32, u32) {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|digits| digits.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases() {
        assert_eq!(parse_release("6.1.0-18-amd64"), (6, 1));
        assert_eq!(parse_release("5.15"), (5, 15));
        assert_eq!(parse_release("6.18+"), (6, 18));
        assert_eq!(parse_release("strange"), (0, 0));
    }

    #[test]
    fn free_space_is_kept() {
        let space = Space {
            free: Bytes(200),
            total: Bytes(1000),
        };
        assert!(space.allows(Bytes(100), 10.0));
        assert!(!space.allows(Bytes(101), 10.0));
        assert!(!space.allows(Bytes(201), 0.0));
    }

    #[test]
    fn a_file_system_without_an_engine_is_named() {
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        let found = detect(&file, Path::new("/proc/self/stat")).unwrap();
        assert!(matches!(found.kind, FsKind::Other(0x9FA0)), "{found:?}");
        assert!(found.engines().is_empty());
    }
}
