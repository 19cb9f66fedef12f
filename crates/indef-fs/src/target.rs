//! A file that is to be moved, opened so that nothing about it changes.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
};

use indef_core::{SkipReason, plan::BirthTime};
use rustix::{
    fs::{Mode, OFlags, Statx, StatxFlags, StatxTimestamp, fstatfs, openat},
    io::Errno,
};
use units::Bytes;

use crate::{
    Finding, FsError, Mounts, Refusal, Root, RootEntry, TargetId,
    filesystem::block_size,
    root::{born, id, look_at, refuse},
    swap::is_swap_file,
};

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
    /// Nanoseconds of the second.
    pub nanos: u32,
}

/// An open file, with the facts that are known of it.
#[derive(Debug)]
pub struct Target {
    /// Open for reading and writing (or only for reading, see [`Self::look_beneath`]), `O_NOATIME` where allowed.
    pub file: File,
    /// For messages: it may mean another file by now.
    pub path: PathBuf,
    /// Which file.
    pub id: TargetId,
    /// Birth time, where the file system knows it.
    pub born: Option<BirthTime>,
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
    /// Number of its names.
    pub links: u32,
    /// Last read.
    pub atime: FileTime,
    /// Last written.
    pub mtime: FileTime,
    /// Last changed in any way.
    pub ctime: FileTime,
    /// Whether `O_NOATIME` was granted: reads through [`Self::file`] leave the access time alone.
    pub noatime: bool,
    /// Inode numbers of other files that may have blocks of it, for an engine that [needs
    /// names](crate::Relocator::needs_names). Whoever opened it may set them; `None` where nobody named any.
    pub named: Option<Arc<[u64]>>,
    /// Whether anybody else has any of its blocks, where whoever opened it has mapped all of it a moment ago: then it is not
    /// mapped once more to choose an engine.
    pub is_shared: Option<bool>,
    /// The directory in which it was found (`O_PATH`).
    directory: OwnedFd,
}

impl Target {
    /// Open a file that was given by its path: its directory is resolved as it was typed, and the
    /// last part is not followed.
    ///
    /// # Errors
    ///
    /// As for [`Self::open_beneath`].
    pub fn open(path: &Path) -> Result<Self, Refusal> {
        let Some(name) = path.file_name() else {
            return Err(SkipReason::NotRegular.into());
        };
        let parent = path.parent().unwrap_or(Path::new(""));
        let root = Root::open(parent, Mounts::Stay)?;
        Self::open_beneath(&root, Path::new(name), None)
    }

    /// Open a regular file for moving: the `expected` one, where it is known. Type, identity and
    /// attributes are looked at before it is opened, since opening a device can have effects.
    ///
    /// # Errors
    ///
    /// The named reason why it cannot be moved, or the failure.
    pub fn open_beneath(
        root: &Root,
        below: &Path,
        expected: Option<(TargetId, Option<BirthTime>)>,
    ) -> Result<Self, Refusal> {
        Self::open_to(OFlags::RDWR, root, below, expected)
    }

    /// The same for reading only, to see what a move would come to: nobody is told that it was written.
    ///
    /// # Errors
    ///
    /// As for [`Self::open_beneath`].
    pub fn look_beneath(
        root: &Root,
        below: &Path,
        expected: Option<(TargetId, Option<BirthTime>)>,
    ) -> Result<Self, Refusal> {
        Self::open_to(OFlags::RDONLY, root, below, expected)
    }

    fn open_to(
        access: OFlags,
        root: &Root,
        below: &Path,
        expected: Option<(TargetId, Option<BirthTime>)>,
    ) -> Result<Self, Refusal> {
        let (entry, directory) = root.find_with_directory(below)?;
        let is_expected = expected.is_none_or(|(id, born)| {
            // A plan of an older version, or a file system, may not know the birth time.
            entry.id() == id && born.is_none_or(|born| entry.born() == Some(born))
        });
        if !entry.is_regular() {
            return Err(SkipReason::NotRegular.into());
        }
        if !is_expected {
            return Err(SkipReason::Changed.into());
        }
        refuse_attributes(attributes(entry.status()))?;
        let path = entry.path().to_owned();
        let (file, noatime) = open_quietly(&entry, access)?;
        let status = look_at(&file, StatxFlags::BASIC_STATS | StatxFlags::BTIME)
            .map_err(|errno| refuse(&path, "look at the file", errno))?;
        let id = id(&status);
        if id != entry.id() {
            return Err(SkipReason::Changed.into());
        }
        refuse_attributes(attributes(&status))?;
        if is_swap_file(id) {
            return Err(SkipReason::SwapFile.into());
        }
        let space =
            fstatfs(&file).map_err(|errno| refuse(&path, "look at the file system", errno))?;
        Ok(Self {
            file,
            path,
            id,
            born: born(&status),
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
            named: None,
            is_shared: None,
            directory,
        })
    }

    /// A new file without a name (`O_TMPFILE`) in the directory in which this one was found, wherever
    /// that is by now. Nobody else can ever open it, and it is gone when it is closed.
    ///
    /// # Errors
    ///
    /// The kernel's error; `EXDEV` where the directory is on another file system, as that of a file
    /// that is mounted by itself.
    pub fn unnamed_beside(&self, flags: OFlags) -> Result<File, Errno> {
        let status = look_at(&self.directory, StatxFlags::INO)?;
        if id(&status).dev != self.id.dev {
            return Err(Errno::XDEV);
        }
        unnamed_in(&self.directory, flags)
    }

    /// The directory in which the file was found, opened for reading.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn open_directory(&self) -> Result<File, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(&self.directory, ".", flags, Mode::empty()).map(File::from)
    }

    /// Whether nobody has changed the file since it was opened, as far as its size and its change time tell. Whoever has
    /// written it may have set its modification time back, but not this one; moves leave it as it is. A new name, owner or
    /// attribute changes it, too.
    #[must_use]
    pub fn is_as_opened(&self) -> bool {
        let now = look_at(&self.file, StatxFlags::SIZE | StatxFlags::CTIME);
        now.is_ok_and(|now| (now.stx_size, time(now.stx_ctime)) == (self.size.get(), self.ctime))
    }

    /// The error of an operation that failed on this file.
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

    /// An error of writing data to blocks that it has: space that lacks then is the device's.
    pub(crate) fn unwritten(
        &self,
        operation: &'static str,
        offset: Option<units::FileOffset>,
        source: io::Error,
    ) -> FsError {
        match Errno::from_io_error(&source) {
            Some(Errno::NOSPC) => self.error(operation, offset, Finding::DeviceFull),
            _ => self.error(operation, offset, source),
        }
    }
}

fn time(time: StatxTimestamp) -> FileTime {
    FileTime {
        seconds: time.tv_sec,
        nanos: time.tv_nsec,
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

/// A new file without a name in an open directory.
pub(crate) fn unnamed_in(directory: impl AsFd, flags: OFlags) -> Result<File, Errno> {
    let flags = flags | OFlags::RDWR | OFlags::TMPFILE | OFlags::EXCL | OFlags::CLOEXEC;
    openat(directory, ".", flags, Mode::RUSR | Mode::WUSR).map(File::from)
}

/// Open a file. Returns `true` with it where reads leave the access time alone.
fn open_quietly(entry: &RootEntry, access: OFlags) -> Result<(File, bool), Refusal> {
    let opened = match entry.open(access | OFlags::NOATIME) {
        // Only the owner and root may ask for O_NOATIME.
        Err(Errno::PERM) => entry.open(access).map(|fd| (fd, false)),
        other => other.map(|fd| (fd, true)),
    };
    opened
        .map(|(fd, noatime)| (File::from(fd), noatime))
        .map_err(|errno| refuse(entry.path(), "open", errno))
}

#[cfg(test)]
mod tests;
