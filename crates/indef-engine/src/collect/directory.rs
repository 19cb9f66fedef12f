//! Directories of a walk: open ones, and the chain of names that leads to them.

use std::{
    ffi::{CStr, OsStr, OsString},
    fs::File,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use indef_fs::{Filesystem, Inodes};
use rustix::{
    fs::{Mode, OFlags, openat},
    io::Errno,
};

use super::select::Beneath;

/// A directory's place in the walk. Kept as long as something below it is pending.
pub(super) struct Node {
    parent: Option<Arc<Node>>,
    /// Its name in the parent; the given path for a root.
    name: Box<[u8]>,
    /// Bytes of its path.
    len: usize,
    pub(super) dev: u64,
    pub(super) inode: u64,
}

impl Node {
    pub(super) fn root(path: &OsStr, dev: u64, inode: u64) -> Arc<Self> {
        Arc::new(Self {
            parent: None,
            name: path.as_bytes().into(),
            len: path.len(),
            dev,
            inode,
        })
    }

    pub(super) fn child(parent: &Arc<Self>, name: &CStr, dev: u64, inode: u64) -> Arc<Self> {
        Arc::new(Self {
            parent: Some(Arc::clone(parent)),
            name: name.to_bytes().into(),
            len: parent.len + 1 + name.count_bytes(),
            dev,
            inode,
        })
    }

    /// This one and everything above it.
    pub(super) fn ancestors(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |node| node.parent.as_deref())
    }

    /// Whether a directory in it with this name has a path that is too long. The path is kept with each file that is
    /// fragmented, in memory and in one line of a plan, and whoever makes directories decides how long it is.
    pub(super) fn is_full(&self, name: &CStr) -> bool {
        const LONGEST: usize = 64 << 10;
        self.len + 1 + name.count_bytes() > LONGEST
    }

    /// The path of the last directory on the way here of which the kernel takes the path at once.
    pub(super) fn short_path(&self) -> PathBuf {
        /// `PATH_MAX`, with the zero byte at the end (linux/limits.h, v6.1).
        const TAKEN: usize = 4096;
        let mut all = self.ancestors();
        let short = all.find(|node| node.len < TAKEN);
        short.unwrap_or(self).path(None)
    }

    /// Its path, followed by `name`.
    pub(super) fn path(&self, name: Option<&CStr>) -> PathBuf {
        let mut parts: Vec<&[u8]> = self.ancestors().map(|node| &*node.name).collect();
        parts.reverse();
        let mut path = Vec::with_capacity(
            parts.iter().map(|part| part.len() + 1).sum::<usize>()
                + name.map_or(0, |name| name.count_bytes()),
        );
        for part in parts {
            push_name(&mut path, part);
        }
        if let Some(name) = name {
            push_name(&mut path, name.to_bytes());
        }
        PathBuf::from(OsString::from_vec(path))
    }
}

fn push_name(path: &mut Vec<u8>, name: &[u8]) {
    if path.last().is_some_and(|last| *last != b'/') {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}

/// The path of a directory.
#[derive(Clone, Copy)]
pub(super) struct Prefix<'a> {
    pub(super) path: &'a [u8],
    /// How much of it is the root.
    pub(super) root_len: usize,
}

impl Prefix<'_> {
    /// The path of an entry, in one allocation.
    pub(super) fn join(self, name: &CStr) -> RootedPath {
        let mut path = Vec::with_capacity(self.path.len() + name.count_bytes() + 1);
        path.extend_from_slice(self.path);
        push_name(&mut path, name.to_bytes());
        RootedPath {
            path: PathBuf::from(OsString::from_vec(path)),
            root_len: self.root_len,
        }
    }
}

/// The path of a file.
pub(super) struct RootedPath {
    pub(super) path: PathBuf,
    /// How much of it is the root.
    pub(super) root_len: usize,
}

/// A chain may be longer than a stack is deep: take it apart in a loop.
impl Drop for Node {
    fn drop(&mut self) {
        let mut next = self.parent.take();
        while let Some(mut node) = next.and_then(Arc::into_inner) {
            next = node.parent.take();
        }
    }
}

/// State that all directories of one file system below one root share.
pub(super) struct Tree {
    /// Length of the path of the topmost directory.
    pub(super) root_len: usize,
    /// The topmost one of them.
    pub(super) top: Arc<Node>,
    /// The same, open: where [`reopen`] starts from.
    pub(super) top_fd: File,
    pub(super) known: Arc<KnownFs>,
    pub(super) given: Arc<Given>,
}

impl Tree {
    /// The directory with this path in it, for globs.
    pub(super) fn beneath<'a>(&'a self, path: &'a [u8]) -> Beneath<'a> {
        Beneath {
            path,
            given_len: self.given.len,
            absolute: &self.given.absolute,
        }
    }
}

/// A directory that was given.
pub(super) struct Given {
    /// The length of its path.
    pub(super) len: usize,
    /// Its absolute paths, where they are asked for.
    pub(super) absolute: Vec<PathBuf>,
}

/// The facts that are known of a file system.
pub(super) struct KnownFs {
    pub(super) fs: Arc<Filesystem>,
    /// A quicker way to the layout of contiguous files, where there is one.
    pub(super) inodes: Option<Inodes>,
}

/// An open directory.
pub(super) struct Directory {
    pub(super) node: Arc<Node>,
    pub(super) tree: Arc<Tree>,
    fd: OwnedFd,
    open: OpenCount,
}

impl Directory {
    pub(super) fn new(node: Arc<Node>, tree: Arc<Tree>, fd: OwnedFd, count: &OpenCount) -> Self {
        Self {
            node,
            tree,
            fd,
            open: count.one_more(),
        }
    }

    /// Whether so many directories are open that this one should be closed as soon as it is read.
    pub(super) fn is_crowded(&self) -> bool {
        self.open.is_crowded()
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// How many directories are open, in the whole walk.
pub(super) struct OpenCount {
    now: Arc<AtomicUsize>,
    limit: usize,
    counted: bool,
}

impl OpenCount {
    /// Half of the descriptors that the process may have open are for directories: the rest is for
    /// files and for all other code in the process.
    pub(super) fn new() -> Self {
        let allowed = rustix::process::getrlimit(rustix::process::Resource::Nofile)
            .current
            .map_or(1024, |limit| usize::try_from(limit).unwrap_or(1024));
        Self {
            now: Arc::default(),
            limit: (allowed / 2).clamp(16, 512),
            counted: false,
        }
    }

    fn one_more(&self) -> Self {
        self.now.fetch_add(1, Ordering::Relaxed);
        Self {
            now: Arc::clone(&self.now),
            limit: self.limit,
            counted: true,
        }
    }

    fn is_crowded(&self) -> bool {
        self.now.load(Ordering::Relaxed) > self.limit
    }
}

impl Drop for OpenCount {
    fn drop(&mut self) {
        if self.counted {
            self.now.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NOCTTY);

/// Open a directory for reading, without touching its access time where that is allowed.
pub(super) fn open_directory(at: impl AsFd, name: &CStr) -> Result<OwnedFd, Errno> {
    match openat(&at, name, DIRECTORY | OFlags::NOATIME, Mode::empty()) {
        // Only the owner and root may ask for O_NOATIME.
        Err(Errno::PERM) => openat(&at, name, DIRECTORY, Mode::empty()),
        other => other,
    }
}

/// Open a directory again that was closed for want of descriptors, name by name from the root: its
/// path may be longer than the kernel takes at once, and no symbolic link put into it meanwhile is
/// followed.
pub(super) fn reopen(node: &Node, tree: &Tree) -> Result<OwnedFd, Errno> {
    let mut names: Vec<&[u8]> = node
        .ancestors()
        .take_while(|node| !std::ptr::eq(*node, &*tree.top))
        .map(|node| &*node.name)
        .collect();
    names.reverse();
    let mut fd = tree
        .top_fd
        .try_clone()
        .map(OwnedFd::from)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::MFILE))?;
    for name in names {
        fd = openat(
            &fd,
            name,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
    }
    Ok(fd)
}
