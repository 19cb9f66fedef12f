//! A file that is to be moved, opened so that nothing about it changes.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use indef_core::SkipReason;
use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags, Statx, StatxFlags, fstatfs, open, statx},
    io::Errno,
};
use units::Bytes;

use crate::{FsError, Refusal, filesystem::block_size, swap::is_swap_file};

/// What tells one file from another, and one version of it from the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TargetId {
    /// Device number (`st_dev`).
    pub dev: u64,
    /// Inode number.
    pub inode: u64,
}

bitflags::bitflags! {
    /// `STATX_ATTR_*` that matter to an engine (linux/stat.h, v6.1).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Attributes: u64 {
        /// Compressed by the file system.
        const COMPRESSED = 0x4;
        /// Cannot be changed.
        const IMMUTABLE = 0x10;
        /// Can only grow.
        const APPEND = 0x20;
        /// Encrypted by the file system.
        const ENCRYPTED = 0x800;
        /// Protected by fs-verity.
        const VERITY = 0x0010_0000;
        /// Accessed directly on persistent memory.
        const DAX = 0x0020_0000;
    }
}

/// A time stamp of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileTime {
    /// Seconds since 1970.
    pub seconds: i64,
    /// And nanoseconds.
    pub nanos: u32,
}

/// An open file, with what is known of it.
#[derive(Debug)]
pub struct Target {
    /// Open for reading and writing, `O_NOATIME` where allowed.
    pub file: File,
    /// For messages, and for the directory in which a donor is made.
    pub path: PathBuf,
    /// Which file.
    pub id: TargetId,
    /// Size when it was opened.
    pub size: Bytes,
    /// File system block size: everything is moved in multiples of it.
    pub block_size: Bytes,
    /// Allocated bytes when it was opened.
    pub allocated: Bytes,
    /// Attributes that the file system reports.
    pub attributes: Attributes,
    /// Permission bits, with set-user-id and set-group-id.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names that it has.
    pub links: u32,
    /// Last read.
    pub atime: FileTime,
    /// Last written.
    pub mtime: FileTime,
    /// Last changed in any way.
    pub ctime: FileTime,
    /// Whether `O_NOATIME` was granted: reads through [`Self::file`] leave the access time alone.
    pub noatime: bool,
}

impl Target {
    /// Open a regular file for moving. Its type and attributes are looked at before it is opened,
    /// since opening a device can do things.
    ///
    /// # Errors
    ///
    /// The named reason why it cannot be moved, or what failed.
    pub fn open(path: &Path) -> Result<Self, Refusal> {
        let before = statx(
            CWD,
            path,
            AtFlags::SYMLINK_NOFOLLOW,
            StatxFlags::TYPE | StatxFlags::INO,
        )
        .map_err(|errno| refuse(path, "look at the file", errno))?;
        if FileType::from_raw_mode(before.stx_mode.into()) != FileType::RegularFile {
            return Err(SkipReason::NotRegular.into());
        }
        refuse_attributes(attributes(&before))?;
        let (file, noatime) = open_quietly(path)?;
        let status = statx(&file, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)
            .map_err(|errno| refuse(path, "look at the file", errno))?;
        let id = id(&status);
        if id != self::id(&before) {
            return Err(SkipReason::Changed.into());
        }
        refuse_attributes(attributes(&status))?;
        if is_swap_file(id) {
            return Err(SkipReason::SwapFile.into());
        }
        let space =
            fstatfs(&file).map_err(|errno| refuse(path, "look at the file system", errno))?;
        let time = |t: rustix::fs::StatxTimestamp| FileTime {
            seconds: t.tv_sec,
            nanos: t.tv_nsec,
        };
        Ok(Self {
            file,
            path: path.to_owned(),
            id,
            size: Bytes(status.stx_size),
            block_size: block_size(&space),
            allocated: Bytes(status.stx_blocks.saturating_mul(512)),
            attributes: attributes(&status),
            mode: u32::from(status.stx_mode) & 0o7777,
            uid: status.stx_uid,
            gid: status.stx_gid,
            links: status.stx_nlink,
            atime: time(status.stx_atime),
            mtime: time(status.stx_mtime),
            ctime: time(status.stx_ctime),
            noatime,
        })
    }

    /// What failed on this file.
    #[must_use]
    pub fn error(
        &self,
        operation: &'static str,
        offset: Option<units::FileOffset>,
        source: impl Into<io::Error>,
    ) -> FsError {
        FsError {
            path: self.path.clone(),
            operation,
            offset,
            source: source.into(),
        }
    }
}

fn id(status: &Statx) -> TargetId {
    TargetId {
        dev: rustix::fs::makedev(status.stx_dev_major, status.stx_dev_minor),
        inode: status.stx_ino,
    }
}

fn attributes(status: &Statx) -> Attributes {
    Attributes::from_bits_truncate(status.stx_attributes.bits())
}

fn refuse_attributes(attributes: Attributes) -> Result<(), Refusal> {
    if attributes.contains(Attributes::IMMUTABLE) {
        Err(SkipReason::Immutable.into())
    } else if attributes.contains(Attributes::APPEND) {
        Err(SkipReason::AppendOnly.into())
    } else if attributes.contains(Attributes::VERITY) {
        // May not be opened for writing any more, on any file system.
        Err(SkipReason::Unsupported.into())
    } else {
        Ok(())
    }
}

/// Open for reading and writing; `true` where without touching the access time. `O_NONBLOCK` so
/// that neither a FIFO put there meanwhile nor a lease can hold us up.
fn open_quietly(path: &Path) -> Result<(File, bool), Refusal> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = match open(path, flags | OFlags::NOATIME, Mode::empty()) {
        // Only the owner and root may ask for O_NOATIME.
        Err(Errno::PERM) => open(path, flags, Mode::empty()).map(|fd| (fd, false)),
        other => other.map(|fd| (fd, true)),
    };
    opened
        .map(|(fd, noatime)| (File::from(fd), noatime))
        .map_err(|errno| refuse(path, "open", errno))
}

fn refuse(path: &Path, operation: &'static str, errno: Errno) -> Refusal {
    let reason = match errno {
        Errno::NOENT | Errno::NOTDIR => SkipReason::Gone,
        Errno::LOOP | Errno::ISDIR | Errno::NXIO | Errno::NODEV => SkipReason::NotRegular,
        Errno::ACCESS | Errno::PERM => SkipReason::NotPermitted,
        Errno::TXTBSY => SkipReason::RunningBinary,
        Errno::ROFS => SkipReason::ReadOnlyMount,
        // Somebody holds a lease on it.
        Errno::AGAIN => SkipReason::InUse,
        _ => {
            return Refusal::Failed(FsError {
                path: path.to_owned(),
                operation,
                offset: None,
                source: errno.into(),
            });
        }
    };
    Refusal::Skip(reason)
}

#[cfg(test)]
mod tests;
