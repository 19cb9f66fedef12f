//! From what the kernel knows a file by to where it is now, without walking a tree.
//!
//! The inode number and its generation make a file handle; opening it gives the file itself, even if
//! it was renamed, and never another one that got its number. Which file system is meant is told by
//! its UUID, since device numbers change from boot to boot. Where handles may not be opened
//! (`CAP_DAC_READ_SEARCH`), the path that was noted is believed if it still has the same numbers.

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
use rustix::fs::{FileType, fstat};

use crate::{
    mounts::{self, Mount, stat_device},
    tally::{FileKey, FsId, TracedFile},
};

const XFS_MAGIC: u64 = 0x5846_5342;
const BTRFS_MAGIC: u64 = 0x9123_683E;

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

/// Looks files up; knows what is mounted.
#[derive(Debug, Default)]
pub struct Resolver {
    mounted: Vec<MountedFs>,
    /// Whether handles may be opened, once that is known.
    refused: bool,
    /// Mounts that only other processes see, by process.
    foreign: HashMap<u32, Vec<MountedFs>>,
}

/// A mounted file system to look things up on.
#[derive(Debug)]
struct MountedFs {
    mount: Mount,
    /// As `stat` shows the root of the mount.
    dev: u64,
    uuid: Option<[u8; 16]>,
    /// A path to the root of the mount.
    at: PathBuf,
}

impl Resolver {
    /// See what is mounted.
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
            // Of copies that are mounted beside each other, the one that has the number of then.
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

    /// Find a file that was just met with: `sb_dev` is the kernel's number of its file system,
    /// `pid` a process that can reach it.
    pub(crate) fn locate(
        &mut self,
        key: &FileKey,
        fs: &FsId,
        sb_dev: u32,
        pid: u32,
    ) -> Option<PathBuf> {
        if self.refused {
            return None;
        }
        if !self
            .mounted
            .iter()
            .any(|mounted| mounted.mount.sb_dev == sb_dev)
        {
            // Mounted since, or only elsewhere.
            self.mounted = open_all(&mounts::all(), Path::new("/"));
        }
        let own = self.mounted.iter().filter(|p| p.mount.sb_dev == sb_dev);
        for mounted in own {
            match open(mounted, key, fs.magic) {
                Ok(Some(located)) if located.path.is_some() => return located.path,
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    self.refused = true;
                    return None;
                }
                _ => {}
            }
        }
        self.in_namespace_of(key, fs, sb_dev, pid)
    }

    /// Another mount namespace: through the root of a process in it.
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
        let foreign = self
            .foreign
            .entry(pid)
            .or_insert_with(|| open_all(&mounts::of(&process), &process.join("root")));
        // The kernel names it as that process does; we get there through its root.
        let root = process.join("root");
        foreign
            .iter()
            .filter(|mounted| mounted.mount.sb_dev == sb_dev)
            .find_map(|mounted| {
                let file = open_handle(mounted, key, fs.magic).ok()?;
                let (path, status) = (kernel_path(&file)?, fstat(&file).ok()?);
                let path = root.join(path.strip_prefix("/").ok()?);
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
            // Reading is needed by the ioctl that tells the UUID.
            let at = root.join(point);
            let root = File::open(&at).ok()?;
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

/// The file itself. `None`: it is no regular file.
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
    // Opened anew each time: a tracer may run for days, and would keep the file system from being
    // unmounted.
    let root = File::open(&mounted.at)?;
    if root.metadata()?.dev() != mounted.dev {
        return Err(io::ErrorKind::NotFound.into());
    }
    handle::open(&root, handle)
}

/// What `/proc` says, if it is true: a deleted file has no path, and one that nobody looked up by
/// name since it came into memory has a wrong one.
fn path_of(file: &OwnedFd, dev: u64, inode: u64) -> Option<PathBuf> {
    let path = kernel_path(file)?;
    is_at(&path, dev, inode).then_some(path)
}

fn kernel_path(file: &OwnedFd) -> Option<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()
}

fn is_at(path: &Path, dev: u64, inode: u64) -> bool {
    path.as_os_str().as_bytes().starts_with(b"/")
        && fs::symlink_metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == (dev, inode))
}

/// A handle knows no name: the one that was noted serves if it still leads there.
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

/// Without handles: what lies where the file was, if its number is the same.
fn by_path(file: &TracedFile) -> Option<Located> {
    let path = file.path.as_ref()?;
    let found = fs::symlink_metadata(path).ok()?;
    // Of some imported traces nothing but the path is known; their device number is 0.
    let same = file.key.dev == 0 || found.ino() == file.key.inode;
    (found.is_file() && same).then(|| Located {
        dev: found.dev(),
        inode: found.ino(),
        path: Some(path.clone()),
    })
}
