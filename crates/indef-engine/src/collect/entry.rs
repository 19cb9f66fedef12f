//! One file of a walk: is it worth opening, and if so, where does its data lie?

use std::{
    ffi::{CStr, CString},
    fs::File,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use indef_core::{
    SkipReason,
    layout::{Extent, ExtentFlags, Layout},
};
use indef_fs::{Filesystem, FsError, Refusal, TargetId, map};
use rustix::{
    fs::{CWD, FileType, Mode, OFlags, Statx, openat},
    io::Errno,
};
use units::{Bytes, FileOffset, FileRange, PhysOffset};

use super::{
    Found, Seen, count,
    directory::{Directory, entry_path},
    names::NamesBuilder,
    walker::{Walker, Work, identity, is_mount_root, look_at},
};

/// `stx_blocks` counts these.
const SECTOR: u64 = 512;

impl Walker<'_, '_> {
    /// An entry of a directory that is, or may be, a regular file.
    pub(super) fn entry(&mut self, directory: &Arc<Directory>, prefix: &[u8], name: &CStr) {
        let walk = self.walk;
        let status = match look_at(directory, name) {
            Ok(status) => status,
            Err(Errno::NOENT) => return count(&walk.counts.vanished),
            Err(errno) => {
                return walk.failed(entry_path(prefix, name), "look at the file", errno);
            }
        };
        match FileType::from_raw_mode(status.stx_mode.into()) {
            FileType::RegularFile => {}
            FileType::Directory => {
                let mut names = NamesBuilder::default();
                names.push(name, status.stx_ino, FileType::Directory);
                let work = Work::Enter(Arc::clone(directory), names.finish());
                return walk.queue.push([work]);
            }
            _ => return count(&walk.counts.others),
        }
        let id = identity(&status);
        let elsewhere = id.0 != directory.node.dev || is_mount_root(&status);
        if elsewhere && walk.options.one_file_system {
            return count(&walk.counts.other_file_systems);
        }
        if walk.given.contains(&id) {
            return;
        }
        if status.stx_nlink > 1 && !walk.is_first(id) {
            return count(&walk.counts.hard_links);
        }
        let known = (id.0 == directory.node.dev).then_some(&directory.tree.fs);
        self.file(
            directory.as_fd(),
            name,
            entry_path(prefix, name),
            &status,
            known,
        );
    }

    /// A regular file that was given by its path.
    pub(super) fn root_file(&mut self, path: PathBuf, status: &Statx) {
        match CString::new(path.as_os_str().as_bytes()) {
            Ok(name) => self.file(CWD, &name, path, status, None),
            Err(_) => self.walk.failed(path, "open", Errno::INVAL),
        }
    }

    fn file(
        &mut self,
        at: BorrowedFd<'_>,
        name: &CStr,
        path: PathBuf,
        status: &Statx,
        known: Option<&Arc<Filesystem>>,
    ) {
        let walk = self.walk;
        let (dev, inode) = identity(status);
        let (size, allocated) = (
            Bytes(status.stx_size),
            Bytes(status.stx_blocks.saturating_mul(SECTOR)),
        );
        let found = |path, fs: Arc<Filesystem>, mapped, result| {
            Seen::File(Found {
                path,
                id: TargetId { dev, inode },
                size,
                allocated,
                block_size: fs.block_size,
                fs,
                mapped,
                result,
            })
        };
        if let Some(fs) = known
            && let Some(layout) = evident_layout(size, allocated, fs.block_size)
        {
            return walk.see(found(path, Arc::clone(fs), false, Ok(layout)));
        }
        let file = match open_to_map(at, name) {
            Ok(file) => file,
            // Gone, or replaced by something that must not be opened.
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO | Errno::NODEV) => {
                return count(&walk.counts.vanished);
            }
            Err(errno) => {
                let refusal = refuse_open(&path, errno);
                return match known {
                    Some(fs) => walk.see(found(path, Arc::clone(fs), false, Err(refusal))),
                    None => walk.problem(path, refusal),
                };
            }
        };
        let fs = match known {
            Some(fs) => Arc::clone(fs),
            None => match walk.file_system(dev, &file, &path) {
                Ok(fs) => fs,
                Err(error) => return walk.problem(path, error.into()),
            },
        };
        if let Some(layout) = evident_layout(size, allocated, fs.block_size) {
            return walk.see(found(path, fs, false, Ok(layout)));
        }
        // What is allocated behind the end is never read.
        let range = FileRange::new(0, size.get()).align_outward(fs.block_size);
        let result = map(&file, &path, range, walk.options.sync, &mut self.mapper);
        walk.see(found(path, fs, true, result));
    }
}

/// The layout of a file that has at most one block, which needs no look.
fn evident_layout(size: Bytes, allocated: Bytes, block_size: Bytes) -> Option<Layout> {
    if size.is_zero() || allocated.is_zero() {
        // Nothing, only holes, or data inside the inode.
        return Some(Layout::default());
    }
    (allocated <= block_size).then(|| {
        Layout::new(vec![Extent {
            file: FileOffset(0),
            phys: PhysOffset(0),
            len: block_size,
            flags: ExtentFlags::UNPLACED,
        }])
    })
}

/// Open a file for mapping, which reads no data and so leaves its access time alone.
/// `O_NONBLOCK`: neither a FIFO put there meanwhile nor a lease can hold us up.
fn open_to_map(at: BorrowedFd<'_>, name: &CStr) -> Result<File, Errno> {
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    openat(at, name, flags, Mode::empty()).map(File::from)
}

fn refuse_open(path: &Path, errno: Errno) -> Refusal {
    match errno {
        Errno::ACCESS | Errno::PERM => SkipReason::NotPermitted.into(),
        _ => Refusal::Failed(FsError {
            path: path.to_owned(),
            operation: "open",
            offset: None,
            source: errno.into(),
        }),
    }
}
