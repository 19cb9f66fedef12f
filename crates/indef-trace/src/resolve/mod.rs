//! From the key by which the kernel knows a file to its path, without walking a tree.
//!
//! The inode number and its generation make a file handle; opening it gives the file itself, even if
//! it was renamed, and never another one that got its number. The file system is found by its UUID,
//! since device numbers change from boot to boot. Where handles may not be opened
//! (`CAP_DAC_READ_SEARCH`), the recorded path is used if the file there has the same inode number.
//!
//! The kernel knows the path of a file by its names in memory. If these are gone, the file is looked for
//! in the folder in which it was seen.

mod folder;

use std::{
    collections::HashMap,
    fs::{self, File},
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::MetadataExt},
    },
    path::{Path, PathBuf},
};

use linux_abi::{
    fsuuid,
    handle::{self, FileHandle},
};
use rustix::fs::{FileType, Mode, OFlags, fstat};

use crate::{
    mounts::{self, Mount, stat_device},
    tally::{FileKey, FsId, TracedFile},
};

use folder::Folders;

const XFS_MAGIC: u64 = 0x5846_5342;
const BTRFS_MAGIC: u64 = 0x9123_683E;

/// Processes whose mounts are kept. Anybody may begin any number of them, each with mounts of its own.
const FOREIGN: usize = 64;

/// Where a file is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// Device number as `stat` shows it.
    pub dev: u64,
    /// Inode number.
    pub inode: u64,
    /// A path to it, if it has one that this process can reach.
    pub path: Option<PathBuf>,
}

/// Looks files up on the mounted file systems.
#[derive(Debug, Default)]
pub struct Resolver {
    mounted: Vec<MountedFs>,
    /// Whether the kernel has refused to open a handle.
    refused: bool,
    /// The mounts that another process sees, by process.
    foreign: HashMap<u32, Vec<MountedFs>>,
    folders: Folders,
}

/// How a file was accessed that is to be located.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sighting {
    /// The kernel's device number of its file system.
    pub(crate) sb_dev: u32,
    /// A process that can reach it.
    pub(crate) pid: u32,
    /// The folder of one of its names, if any was in memory.
    pub(crate) parent: Option<FileKey>,
}

/// A mounted file system on which files can be looked up.
#[derive(Debug)]
struct MountedFs {
    mount: Mount,
    /// Device number as `stat` shows it at the root of the mount.
    dev: u64,
    uuid: Option<[u8; 16]>,
    /// A path to the root of the mount.
    at: PathBuf,
}

impl Resolver {
    /// Open the file systems that are mounted now.
    #[must_use]
    pub fn new() -> Self {
        Self {
            mounted: open_all(&mounts::all(), Path::new("/")),
            ..Self::default()
        }
    }

    /// Find a file of a profile. `None`: it is gone, replaced, or its file system is not mounted.
    #[must_use]
    pub fn find(&self, file: &TracedFile) -> Option<Located> {
        if !self.refused {
            let matching = |mounted: &&MountedFs| is_file_system(mounted, &file.fs, file.key.dev);
            let mut matches: Vec<&MountedFs> = self.mounted.iter().filter(matching).collect();
            // Of several copies that are mounted, the one with the recorded device number comes first.
            matches.sort_by_key(|mounted| mounted.dev != file.key.dev);
            for mounted in matches {
                match open(mounted, &file.key, file.fs.magic) {
                    Ok(located) => return located.map(|found| named(found, file)),
                    Err(error) if is_gone(&error) => return None,
                    Err(_) => {}
                }
            }
        }
        by_path(file)
    }

    /// Find a file that was just accessed.
    pub(crate) fn locate(&mut self, key: &FileKey, fs: &FsId, seen: &Sighting) -> Option<PathBuf> {
        let Sighting { sb_dev, pid, .. } = *seen;
        if self.refused {
            return None;
        }
        if !self
            .mounted
            .iter()
            .any(|mounted| mounted.mount.sb_dev == sb_dev)
        {
            // It was mounted since, or only in another namespace.
            self.mounted = open_all(&mounts::all(), Path::new("/"));
        }
        let own = self.mounted.iter().filter(|p| p.mount.sb_dev == sb_dev);
        for mounted in own {
            match open(mounted, key, fs.magic) {
                Ok(Some(located)) => {
                    let by_name = || named_in(&mut self.folders, mounted, seen, &located, fs.magic);
                    if let Some(path) = located.path.clone().or_else(by_name) {
                        return Some(path);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    self.refused = true;
                    return None;
                }
                _ => {}
            }
        }
        self.in_namespace_of(key, fs, sb_dev, pid)
    }

    /// The mounts that another process sees.
    fn mounts_of(&mut self, pid: u32, process: &Path) -> &[MountedFs] {
        if self.foreign.len() >= FOREIGN && !self.foreign.contains_key(&pid) {
            self.foreign.clear();
        }
        let open = || open_all(&mounts::of_stranger(process), &process.join("root"));
        self.foreign.entry(pid).or_insert_with(open)
    }

    /// Find a file of another mount namespace, through the root of a process in it.
    fn in_namespace_of(
        &mut self,
        key: &FileKey,
        fs: &FsId,
        sb_dev: u32,
        pid: u32,
    ) -> Option<PathBuf> {
        let process = PathBuf::from(format!("/proc/{pid}"));
        let namespace = |path: &Path| fs::read_link(path.join("ns/mnt")).ok();
        let theirs = namespace(&process)?;
        if Some(&theirs) == namespace(Path::new("/proc/self")).as_ref() {
            return None;
        }
        let mounts = self.mounts_of(pid, &process);
        mounts
            .iter()
            .filter(|mounted| mounted.mount.sb_dev == sb_dev)
            .find_map(|mounted| {
                let file = open_handle(mounted, key, fs.magic).ok()?;
                let (path, status) = (kernel_path(&file)?, fstat(&file).ok()?);
                // The kernel's paths begin at the root of the namespace, which is not the
                // process's if that has changed it (chroot); so does the one of the mount.
                let top = kernel_path(&open_root(&mounted.at).ok()?)?;
                let path = mounted.at.join(path.strip_prefix(top).ok()?);
                is_at(&path, status.st_dev, status.st_ino).then_some(path)
            })
    }
}

/// Open every mount of a file system that has handles, below `root`.
fn open_all(mounts: &[Mount], root: &Path) -> Vec<MountedFs> {
    let usable = |mount: &&Mount| {
        matches!(
            mount.fs_type.as_str(),
            "ext4" | "ext3" | "ext2" | "xfs" | "btrfs" | "f2fs"
        )
    };
    mounts
        .iter()
        .filter(usable)
        .filter_map(|mount| {
            let point = mount.point.strip_prefix("/").unwrap_or(&mount.point);
            // The ioctl that returns the UUID needs an open file.
            let at = root.join(point);
            let root = open_root(&at).ok()?;
            Some(MountedFs {
                dev: root.metadata().ok()?.dev(),
                uuid: fsuuid::of(&root).ok(),
                mount: mount.clone(),
                at,
            })
        })
        .collect()
}

fn is_file_system(mounted: &MountedFs, fs: &FsId, dev: u64) -> bool {
    match mounted.uuid {
        Some(uuid) if fs.uuid != [0; 16] => uuid == fs.uuid,
        _ => mounted.dev == dev || stat_device(mounted.mount.sb_dev) == dev,
    }
}

/// Open the file by its handle. `None`: it is no regular file.
fn open(mounted: &MountedFs, key: &FileKey, magic: u64) -> io::Result<Option<Located>> {
    let file = open_handle(mounted, key, magic)?;
    let status = fstat(&file)?;
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
        return Ok(None);
    }
    Ok(Some(Located {
        dev: status.st_dev,
        inode: status.st_ino,
        path: path_of(&file, status.st_dev, status.st_ino),
    }))
}

fn open_handle(mounted: &MountedFs, key: &FileKey, magic: u64) -> io::Result<OwnedFd> {
    let (inode, generation) = (key.inode, key.generation);
    let handle = match magic {
        BTRFS_MAGIC => FileHandle::Btrfs {
            inode,
            subvolume: key.subvolume,
            generation,
        },
        XFS_MAGIC => FileHandle::Xfs64 { inode, generation },
        _ => FileHandle::Inode32 {
            inode: u32::try_from(inode).map_err(|_| io::ErrorKind::InvalidInput)?,
            generation,
        },
    };
    // Opened again each time: a tracer may run for days, and would keep the file system from being
    // unmounted.
    let root = open_root(&mounted.at)?;
    if root.metadata()?.dev() != mounted.dev {
        return Err(io::ErrorKind::NotFound.into());
    }
    handle::open(&root, handle)
}

/// The path that `/proc` shows, if it is right: a deleted file has no path, and a file that nobody
/// looked up by name since it came into memory is shown with a wrong one.
fn path_of(file: &OwnedFd, dev: u64, inode: u64) -> Option<PathBuf> {
    let path = kernel_path(file)?;
    is_at(&path, dev, inode).then_some(path)
}

/// The path of an open file without a name in memory: that of its folder, and its name there.
fn named_in(
    folders: &mut Folders,
    mounted: &MountedFs,
    seen: &Sighting,
    file: &Located,
    magic: u64,
) -> Option<PathBuf> {
    let folder = open_handle(mounted, &seen.parent?, magic).ok()?;
    let status = fstat(&folder).ok()?;
    let folder = path_of(&folder, status.st_dev, status.st_ino)?;
    let path = folders.find(&folder, file.inode)?;
    is_at(&path, file.dev, file.inode).then_some(path)
}

/// Open the root of a mount, which may be in a container that others own: what is not a folder (a bind
/// mount of a file) is refused before anything waits for it (a FIFO).
fn open_root(at: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(at, flags, Mode::empty())?.into())
}

fn kernel_path(file: &impl AsRawFd) -> Option<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()
}

fn is_at(path: &Path, dev: u64, inode: u64) -> bool {
    path.as_os_str().as_bytes().starts_with(b"/")
        && fs::symlink_metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == (dev, inode))
}

/// A file that was opened by its handle may have no name: the recorded path serves if it still leads
/// there.
fn named(mut located: Located, file: &TracedFile) -> Located {
    if located.path.is_none()
        && let Some(path) = &file.path
        && is_at(path, located.dev, located.inode)
    {
        located.path = Some(path.clone());
    }
    located
}

fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::STALE.raw_os_error())
}

/// Without handles: the file at the recorded path, if its inode number is the same.
fn by_path(file: &TracedFile) -> Option<Located> {
    let path = file.path.as_ref()?;
    let found = fs::symlink_metadata(path).ok()?;
    // Of files of some imported traces only the path is known; their device number is 0.
    let same = file.key.dev == 0 || found.ino() == file.key.inode;
    (found.is_file() && same).then(|| Located {
        dev: found.dev(),
        inode: found.ino(),
        path: Some(path.clone()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_few_processes_the_mounts_are_kept() {
        let mut resolver = Resolver::new();
        let here = Path::new("/proc/self");
        for pid in 0..3 * FOREIGN as u32 {
            let found = resolver.mounts_of(pid, here).len();
            assert_eq!(found, resolver.mounts_of(pid, here).len());
            assert!((1..=FOREIGN).contains(&resolver.foreign.len()));
        }
    }
}
