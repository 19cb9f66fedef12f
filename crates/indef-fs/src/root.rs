//! Paths beneath a directory that was opened once.
//!
//! A path that root looked at belongs to whoever may rename something on it: between two looks a
//! directory can become a symbolic link to anywhere. So a path has two parts here. The *root* is
//! the directory that the user of the program gave; it is resolved as it was typed, once.
//! Everything beneath it is resolved from the root's descriptor, without symbolic links, without
//! `..`, and without leaving the mount.
//!
//! Nothing is opened to be looked at: [`Root::find`] gives descriptors that only name a file
//! (`O_PATH`; open(2)), on which type and identity are checked, and [`RootEntry::open`] opens the file
//! that such a descriptor names, whatever its path means by then. A device, which can do things when
//! it is opened, or a FIFO, on which one can wait forever, is never opened.

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::{Component, Path, PathBuf},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use indef_core::{SkipReason, plan::BirthTime};
use rustix::{
    fs::{
        AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags, fstatfs, open,
        openat, openat2, statx,
    },
    io::Errno,
    path::Arg,
};

use crate::{Finding, FsError, Refusal, TargetId};

/// Flags that name a directory, and do nothing to it.
const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Whether a path may lead to another mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mounts {
    /// It may not: a walk that stays on one file system has not crossed one either.
    Stay,
    /// It may.
    Cross,
}

/// A directory beneath which paths are resolved.
#[derive(Debug)]
pub struct Root {
    directory: OwnedFd,
    path: PathBuf,
    mounts: Mounts,
    id: TargetId,
}

impl Root {
    /// Open the directory at `path`, as it was typed: symbolic links are followed.
    ///
    /// # Errors
    ///
    /// It is not there, no directory, or may not be looked into.
    pub fn open(path: &Path, mounts: Mounts) -> Result<Self, Refusal> {
        let name = match path.as_os_str().is_empty() {
            true => Path::new("."),
            false => path,
        };
        let opened = open(name, DIRECTORY, Mode::empty())
            .and_then(|directory| Ok((look_at(&directory, StatxFlags::INO)?, directory)));
        let (status, directory) =
            opened.map_err(|errno| refuse(path, "open the directory", errno))?;
        Ok(Self {
            directory,
            path: path.to_owned(),
            mounts,
            id: id(&status),
        })
    }

    /// The identity of the directory.
    #[must_use]
    pub fn id(&self) -> TargetId {
        self.id
    }

    /// Find the file that `below` names, without opening it.
    ///
    /// # Errors
    ///
    /// [`SkipReason::Gone`]; [`SkipReason::SymbolicLink`] where a directory on the way is one by
    /// now; [`SkipReason::Changed`] where the path leads to another mount, or out of the root.
    pub fn find(&self, below: &Path) -> Result<RootEntry, Refusal> {
        self.find_with_directory(below).map(|(entry, _)| entry)
    }

    /// The same, with the directory in which it is (`O_PATH`).
    pub(crate) fn find_with_directory(
        &self,
        below: &Path,
    ) -> Result<(RootEntry, OwnedFd), Refusal> {
        let path = self.path.join(below);
        let plain = below
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        let (Some(name), true) = (below.file_name(), plain) else {
            return Err(SkipReason::Changed.into());
        };
        let parent = below.parent().unwrap_or(Path::new(""));
        let directory = self
            .resolve(parent)
            .map_err(|errno| refuse(&path, "look for the file", errno))?;
        Ok((RootEntry::beside(&directory, name, &path)?, directory))
    }

    fn resolve(&self, below: &Path) -> Result<OwnedFd, Errno> {
        /// The kernel has no `openat2` (before Linux 5.6), or a filter refuses it.
        static MISSING: AtomicBool = AtomicBool::new(false);
        if below.as_os_str().is_empty() {
            return openat(&self.directory, ".", DIRECTORY, Mode::empty());
        }
        if !MISSING.load(Ordering::Relaxed) {
            match self.resolve_at_once(below) {
                Err(Errno::NOSYS | Errno::PERM) => MISSING.store(true, Ordering::Relaxed),
                // Longer than the kernel takes at once; or it has seen a race.
                Err(Errno::NAMETOOLONG | Errno::AGAIN) => {}
                found => return found,
            }
        }
        self.resolve_by_name(below)
    }

    fn resolve_at_once(&self, below: &Path) -> Result<OwnedFd, Errno> {
        let mut rules =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        if self.mounts == Mounts::Stay {
            rules |= ResolveFlags::NO_XDEV;
        }
        openat2(&self.directory, below, DIRECTORY, Mode::empty(), rules)
    }

    /// The same with calls that every kernel has.
    fn resolve_by_name(&self, below: &Path) -> Result<OwnedFd, Errno> {
        let mut here = openat(&self.directory, ".", DIRECTORY, Mode::empty())?;
        let mount = mount_of(&here)?;
        for name in below {
            let next = openat(&here, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty());
            here = match next {
                Err(Errno::NOTDIR) if is_link(&here, name) => return Err(Errno::LOOP),
                next => next?,
            };
            if self.mounts == Mounts::Stay && mount_of(&here)? != mount {
                return Err(Errno::XDEV);
            }
        }
        Ok(here)
    }
}

/// The directory itself, open as a name only (`O_PATH`).
impl AsFd for Root {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

/// A file that was found and not opened.
#[derive(Debug)]
pub struct RootEntry {
    file: OwnedFd,
    path: PathBuf,
    status: Statx,
}

/// The file itself, named and not opened (`O_PATH`).
impl AsFd for RootEntry {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl RootEntry {
    /// Find the file that has this name in an open directory. `path` is for messages.
    ///
    /// # Errors
    ///
    /// It is not there, or may not be looked at.
    pub fn beside(directory: impl AsFd, name: impl Arg, path: &Path) -> Result<Self, Refusal> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(directory, name, flags, Mode::empty())
            .map_err(|errno| refuse(path, "look for the file", errno))?;
        let status = look_at(&file, StatxFlags::BASIC_STATS | StatxFlags::BTIME)
            .map_err(|errno| refuse(path, "look at the file", errno))?;
        Ok(Self {
            file,
            path: path.to_owned(),
            status,
        })
    }

    /// The identity of the file.
    #[must_use]
    pub fn id(&self) -> TargetId {
        id(&self.status)
    }

    /// Birth time, where the file system knows it.
    #[must_use]
    pub fn born(&self) -> Option<BirthTime> {
        born(&self.status)
    }

    /// Whether it is a regular file, and so may be opened.
    #[must_use]
    pub fn is_regular(&self) -> bool {
        is_regular(&self.status)
    }

    pub(crate) fn status(&self) -> &Statx {
        &self.status
    }

    /// Its path, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Open the file for reading, in order to map it only: its access time stays where that is
    /// allowed, and a lease of somebody holds us up for a moment only.
    ///
    /// # Errors
    ///
    /// It is no regular file, or may not be read.
    pub fn open_to_map(&self) -> Result<OwnedFd, Refusal> {
        if !self.is_regular() {
            return Err(SkipReason::NotRegular.into());
        }
        let fail = |errno| refuse(&self.path, "open", errno);
        match self.open(OFlags::RDONLY | OFlags::NOATIME) {
            // Only the owner and root may ask for O_NOATIME.
            Err(Errno::PERM) => self.open(OFlags::RDONLY),
            opened => opened,
        }
        .map_err(fail)
    }

    /// Open the file itself. It must be a regular one.
    pub(crate) fn open(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        reopen(&self.file, flags)
    }
}

/// Open the file that a descriptor names, even where its path names another one by now: through
/// `/proc/self/fd` (proc(5)). Waits for a short time where somebody has a lease, for nothing else,
/// and never makes a terminal our controlling terminal.
///
/// # Errors
///
/// The kernel's error; `ENOTSUP` where `/proc` is not there.
pub fn reopen(named: impl AsFd, flags: OFlags) -> Result<OwnedFd, Errno> {
    let always = OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let name = named.as_fd().as_raw_fd().to_string();
    let mut tries = 50;
    loop {
        match openat(descriptors()?, &*name, flags | always, Mode::empty()) {
            // Somebody holds a lease on it, another run of ours for a step perhaps.
            Err(Errno::AGAIN) if tries > 0 => {
                tries -= 1;
                std::thread::sleep(Duration::from_millis(4));
            }
            opened => return opened,
        }
    }
}

/// The directory `/proc/self/fd`, checked to be on procfs.
fn descriptors() -> Result<BorrowedFd<'static>, Errno> {
    /// `PROC_SUPER_MAGIC` (linux/magic.h, v6.1).
    const PROC: i64 = 0x9FA0;
    static DIRECTORY_OF_OURS: OnceLock<Option<OwnedFd>> = OnceLock::new();
    DIRECTORY_OF_OURS
        .get_or_init(|| {
            let directory = open("/proc/self/fd", DIRECTORY, Mode::empty()).ok()?;
            let is_proc = fstatfs(&directory).ok()?.f_type as i64 == PROC;
            is_proc.then_some(directory)
        })
        .as_ref()
        .map(AsFd::as_fd)
        .ok_or(Errno::NOTSUP)
}

/// How many roots stay open at a time.
const OPEN: usize = 64;

/// The roots of a run. Each is resolved once; should there be too many to keep all of them open, one
/// that is resolved again must be the same directory as before.
#[derive(Debug, Default)]
pub struct Roots(Mutex<HashMap<(PathBuf, Mounts), KnownRoot>>);

#[derive(Debug)]
struct KnownRoot {
    id: TargetId,
    open: Option<Arc<Root>>,
}

impl Roots {
    /// An empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The root with this path.
    ///
    /// # Errors
    ///
    /// Those of [`Root::open`]; [`SkipReason::Changed`] where it is another directory by now.
    pub fn get(&self, path: &Path, mounts: Mounts) -> Result<Arc<Root>, Refusal> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (path.to_owned(), mounts);
        let before = known.get(&key);
        if let Some(root) = before.and_then(|known| known.open.clone()) {
            return Ok(root);
        }
        let root = Arc::new(Root::open(path, mounts)?);
        if before.is_some_and(|known| known.id != root.id) {
            return Err(SkipReason::Changed.into());
        }
        if before.is_none() {
            let keep = known.len() < OPEN;
            let id = root.id;
            let open = keep.then(|| Arc::clone(&root));
            known.insert(key, KnownRoot { id, open });
        }
        Ok(root)
    }
}

/// Look at the file that a descriptor names.
pub(crate) fn look_at(named: impl AsFd, what: StatxFlags) -> Result<Statx, Errno> {
    statx(named, "", AtFlags::EMPTY_PATH, what)
}

pub(crate) fn id(status: &Statx) -> TargetId {
    TargetId {
        dev: rustix::fs::makedev(status.stx_dev_major, status.stx_dev_minor),
        inode: status.stx_ino,
    }
}

pub(crate) fn born(status: &Statx) -> Option<BirthTime> {
    (status.stx_mask & StatxFlags::BTIME.bits() != 0).then_some(BirthTime {
        seconds: status.stx_btime.tv_sec,
        nanos: status.stx_btime.tv_nsec,
    })
}

pub(crate) fn is_regular(status: &Statx) -> bool {
    FileType::from_raw_mode(status.stx_mode.into()) == FileType::RegularFile
}

/// The mount; on kernels before 5.8, which do not tell it, the device.
fn mount_of(directory: impl AsFd) -> Result<(u64, TargetId), Errno> {
    let status = look_at(directory, StatxFlags::MNT_ID)?;
    let known = status.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    let device = TargetId {
        inode: 0,
        ..id(&status)
    };
    Ok(if known {
        // Subvolumes of Btrfs have device numbers of their own, on one mount.
        (status.stx_mnt_id, TargetId { dev: 0, inode: 0 })
    } else {
        (0, device)
    })
}

fn is_link(directory: impl AsFd, name: &std::ffi::OsStr) -> bool {
    statx(
        directory,
        name,
        AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT,
        StatxFlags::TYPE,
    )
    .is_ok_and(|status| FileType::from_raw_mode(status.stx_mode.into()) == FileType::Symlink)
}

pub(crate) fn refuse(path: &Path, operation: &'static str, errno: Errno) -> Refusal {
    let reason = match errno {
        Errno::NOENT | Errno::NOTDIR => SkipReason::Gone,
        Errno::LOOP => SkipReason::SymbolicLink,
        Errno::XDEV => SkipReason::Changed,
        Errno::ACCESS | Errno::PERM => SkipReason::NotPermitted,
        Errno::TXTBSY => SkipReason::RunningBinary,
        Errno::ROFS => SkipReason::ReadOnlyMount,
        // Of a user, say, who is not logged in (`fscrypt_file_open`, fs/crypto/hooks.c, v6.1).
        Errno::NOKEY => SkipReason::Encrypted,
        // Somebody holds a lease on it.
        Errno::AGAIN => SkipReason::InUse,
        _ => {
            let error: io::Error = match errno {
                Errno::NOTSUP => Finding::NoProc.into(),
                errno => errno.into(),
            };
            return FsError::new(path, operation, error).into();
        }
    };
    Refusal::Skip(reason)
}

/// Open a directory that is known by its path only, if it is on this device and nobody else's: root
/// or we own it, or it is where the file system is mounted.
pub(crate) fn trusted_directory(path: &Path, dev: u64) -> Result<OwnedFd, Errno> {
    let directory = openat(CWD, path, DIRECTORY, Mode::empty())?;
    let status = look_at(&directory, StatxFlags::BASIC_STATS)?;
    if id(&status).dev != dev {
        return Err(Errno::XDEV);
    }
    let owner = status.stx_uid;
    let is_mount = status
        .stx_attributes
        .contains(rustix::fs::StatxAttributes::MOUNT_ROOT);
    match owner == 0 || owner == rustix::process::geteuid().as_raw() || is_mount {
        true => Ok(directory),
        false => Err(Errno::PERM),
    }
}

#[cfg(test)]
mod tests;
