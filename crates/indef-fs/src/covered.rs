//! Directories that are hidden below mounts. A look at all inodes of a file system meets what is in them, and a walk
//! does not.

use std::{
    fs::{self, File},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, Mode, OFlags, RawDir, ResolveFlags, StatxFlags, openat2, statx},
    mount::{OpenTreeFlags, open_tree},
};

use crate::Filesystem;

/// Room for the entries of a directory that is nearly empty: one of the longest names.
const BUFFER: usize = 1024;

/// How many directories beneath this one, on its file system, have another file system on top, none of which has anything
/// in it; `None` where one has, or that cannot be told.
pub(crate) fn covered(fs: &Filesystem, directory: &File) -> Option<u64> {
    let id = fs.mount.as_ref()?.id.to_string();
    let here = fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd())).ok()?;
    let table = fs::read("/proc/self/mountinfo").ok()?;
    let on_it = table.split(|byte| *byte == b'\n').filter_map(|line| {
        // id parent major:minor root point …
        let mut fields = line.split(|byte| *byte == b' ').skip(1);
        let parent = fields.next()?;
        let point = crate::mounts::unescape(fields.nth(2)?);
        let beneath = point.strip_prefix(&here).ok()?.to_owned();
        (parent == id.as_bytes() && !beneath.as_os_str().is_empty()).then_some(beneath)
    });
    let points: Vec<PathBuf> = on_it.collect();
    if points.is_empty() {
        return Some(0);
    }
    // The same directory with nothing on top.
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    let bare = open_tree(directory, "", flags).ok()?;
    let dev = directory.metadata().ok()?.dev();
    let mut covered = 0;
    for point in points {
        // Of a file there is no answer.
        let below = open_beneath(bare.as_fd(), &point)?;
        let status = statx(&below, "", AtFlags::EMPTY_PATH, StatxFlags::INO).ok()?;
        // Else it is on another subvolume's topmost directory, which is not one of ours.
        if rustix::fs::makedev(status.stx_dev_major, status.stx_dev_minor) == dev {
            is_empty(&below)?.then_some(())?;
            covered += 1;
        }
    }
    Some(covered)
}

fn open_beneath(at: impl AsFd, path: &Path) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY
        | OFlags::DIRECTORY
        | OFlags::NOFOLLOW
        | OFlags::NOATIME
        | OFlags::NONBLOCK
        | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    openat2(at, path, flags, Mode::empty(), resolve).ok()
}

fn is_empty(directory: impl AsFd) -> Option<bool> {
    let mut buffer = [MaybeUninit::uninit(); BUFFER];
    let mut entries = RawDir::new(directory, &mut buffer);
    while let Some(entry) = entries.next() {
        if !matches!(entry.ok()?.file_name().to_bytes(), b"." | b"..") {
            return Some(false);
        }
    }
    Some(true)
}
