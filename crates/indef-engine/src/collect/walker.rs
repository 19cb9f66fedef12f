//! One of the threads of a walk, and the state that they share.

use std::{
    collections::{HashMap, HashSet},
    ffi::CStr,
    fs::File,
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use indef_core::SkipReason;
use indef_fs::{FsError, FsKind, InodeChunk, Inodes, Mapper, Refusal, Roots, detect};
use rustix::{
    fs::{AtFlags, FileType, RawDir, Statx, StatxAttributes, StatxFlags, makedev, statx},
    io::Errno,
};

use super::{
    counts::{WalkCounts, count},
    directory::{Directory, Given, KnownFs, Node, OpenCount, Prefix, Tree, open_directory, reopen},
    names::{Names, NamesBuilder},
    seen::{CollectOptions, FoundFile, Seen, WalkProblem},
    work_stack::WorkStack,
};
use crate::{Cancel, sync::lock};

/// `getdents64` fills at most this much at once: about 2,000 entries.
const DIRECTORY_BUFFER: usize = 64 << 10;
/// A walker looks this often whether another one has nothing to do.
const SHARE_EVERY: usize = 32;

/// Something to do.
pub(super) enum WalkTask {
    /// Look at the given paths, one at a time.
    Roots,
    /// Read on in a directory.
    Read(Arc<Directory>),
    /// Enter subdirectories of an open directory.
    Enter(Arc<Directory>, Names),
    /// Enter subdirectories of a directory that was closed for want of descriptors.
    EnterClosed(Arc<Node>, Arc<Tree>, Names),
    /// Look at files of a directory.
    Files(Arc<Directory>, Names),
}

/// State that the walkers share.
pub(super) struct Walk<'a> {
    pub(super) roots: &'a Roots,
    pub(super) paths: &'a [PathBuf],
    next_path: AtomicUsize,
    pub(super) options: &'a CollectOptions,
    pub(super) cancel: &'a Cancel,
    visit: &'a (dyn Fn(Seen) + Sync),
    pub(super) pending: WorkStack<WalkTask>,
    pub(super) counts: WalkCounts,
    pub(super) open: OpenCount,
    /// Device and inode numbers of all given paths: each of them is walked by itself, so that
    /// paths that contain each other count nothing twice.
    pub(super) given: HashSet<(u64, u64)>,
    /// Given paths that are taken, and files with several names that were seen.
    seen: Mutex<HashSet<(u64, u64)>>,
    file_systems: RwLock<HashMap<u64, Arc<KnownFs>>>,
    /// It was told that directories are left out since their paths are too long.
    told_too_long: AtomicBool,
}

impl<'a> Walk<'a> {
    pub(super) fn new(
        roots: &'a Roots,
        paths: &'a [PathBuf],
        given: HashSet<(u64, u64)>,
        options: &'a CollectOptions,
        cancel: &'a Cancel,
        visit: &'a (dyn Fn(Seen) + Sync),
        jobs: usize,
    ) -> Self {
        let walkers_for_roots = jobs.min(paths.len());
        Self {
            roots,
            paths,
            next_path: AtomicUsize::new(0),
            options,
            cancel,
            visit,
            pending: WorkStack::new((0..walkers_for_roots).map(|_| WalkTask::Roots).collect()),
            counts: WalkCounts::default(),
            open: OpenCount::new(),
            given,
            seen: Mutex::default(),
            file_systems: RwLock::default(),
            told_too_long: AtomicBool::new(false),
        }
    }

    pub(super) fn see_file(&self, file: FoundFile) {
        count(&self.counts.files);
        (self.visit)(Seen::File(file));
    }

    pub(super) fn problem(&self, path: PathBuf, refusal: Refusal) {
        count(&self.counts.problems);
        self.tell(path, refusal);
    }

    fn tell(&self, path: PathBuf, refusal: Refusal) {
        (self.visit)(Seen::Problem(WalkProblem { path, refusal }));
    }

    pub(super) fn failed(&self, path: PathBuf, operation: &'static str, errno: Errno) {
        let error = FsError::new(&path, operation, errno);
        self.problem(path, error.into());
    }

    /// Count a regular file of a directory as left out, if it is to be.
    pub(super) fn leaves_file(
        &self,
        directory: &Directory,
        prefix: Prefix<'_>,
        name: &CStr,
    ) -> bool {
        let beneath = directory.tree.beneath(prefix.path);
        let leaves = (self.options.select).leaves(&beneath, name.to_bytes(), false);
        if leaves {
            count(&self.counts.excluded_files);
        }
        leaves
    }

    /// Whether this is the first time that it is asked for this file.
    pub(super) fn is_first(&self, id: (u64, u64)) -> bool {
        lock(&self.seen).insert(id)
    }

    /// The generation of a listed file, none for another one; `None` for files that no list is of.
    pub(super) fn listed(&self, id: (u64, u64)) -> Option<Option<u32>> {
        self.options.listed.as_ref()?.generation(id)
    }

    /// The file system with this device number, of which `file` is a file.
    pub(super) fn file_system(
        &self,
        dev: u64,
        file: impl AsFd,
        path: &Path,
    ) -> Result<Arc<KnownFs>, FsError> {
        let known = self
            .file_systems
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&dev)
            .cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let fs = Arc::new(detect(&file, path)?);
        // Inodes do not know data that was not written back.
        let options = self.options;
        let inodes = match options.sync || options.open_all {
            true => None,
            false if options.most => Inodes::of_all(&fs, &file),
            false => Inodes::open(&fs, &file, options.places),
        };
        let known = Arc::new(KnownFs { fs, inodes });
        self.file_systems
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(dev, Arc::clone(&known));
        Ok(known)
    }

    pub(super) fn next_path(&self) -> Option<&'a Path> {
        let index = self.next_path.fetch_add(1, Ordering::Relaxed);
        self.paths.get(index).map(PathBuf::as_path)
    }
}

/// One thread of a walk, with its buffers.
pub(super) struct Walker<'w, 'a> {
    pub(super) walk: &'w Walk<'a>,
    buffer: Box<[MaybeUninit<u8>]>,
    pub(super) mapper: Mapper,
    pub(super) chunk: InodeChunk,
    /// The file system that the chunk is of.
    pub(super) chunk_dev: u64,
}

impl<'w, 'a> Walker<'w, 'a> {
    pub(super) fn new(walk: &'w Walk<'a>) -> Self {
        Self {
            walk,
            buffer: Box::new_uninit_slice(DIRECTORY_BUFFER),
            mapper: Mapper::default(),
            chunk: InodeChunk::default(),
            chunk_dev: 0,
        }
    }

    /// Work until there is nothing left.
    pub(super) fn work(&mut self) {
        while let Some((work, _active)) = self.walk.pending.next(self.walk.cancel) {
            match work {
                WalkTask::Roots => self.roots(),
                WalkTask::Read(directory) => self.read(directory),
                WalkTask::Files(directory, names) => self.files(&directory, names),
                WalkTask::Enter(parent, mut names) => {
                    names.take(|name, _, _| {
                        if let Some(child) = self.enter(&parent, &parent.node, &parent.tree, name) {
                            self.walk.pending.push([WalkTask::Read(child)]);
                        }
                    });
                    if !names.is_empty() {
                        self.walk.pending.push([WalkTask::Enter(parent, names)]);
                    }
                }
                WalkTask::EnterClosed(node, tree, names) => self.enter_closed(&node, &tree, names),
            }
        }
    }

    /// Take given paths, until none is left or there is a directory to be walked.
    fn roots(&mut self) {
        while let Some(path) = self.walk.next_path() {
            if self.walk.cancel.is_cancelled() {
                return;
            }
            if let Some(directory) = self.root(path) {
                self.walk
                    .pending
                    .push([WalkTask::Roots, WalkTask::Read(directory)]);
                return;
            }
        }
    }

    /// Read one buffer of a directory; all of it where descriptors are short.
    fn read(&mut self, directory: Arc<Directory>) {
        if directory.is_crowded() {
            return self.read_all(&directory);
        }
        let mut subdirectories = NamesBuilder::default();
        let (files, more) = self.read_some(&directory, &mut subdirectories);
        let mut work = Vec::with_capacity(2);
        if more {
            work.push(WalkTask::Read(Arc::clone(&directory)));
        }
        if !subdirectories.is_empty() {
            work.push(WalkTask::Enter(
                Arc::clone(&directory),
                subdirectories.finish(),
            ));
        }
        self.walk.pending.push(work);
        self.files(&directory, files);
    }

    /// Read a directory to its end, so that it can be closed before its subdirectories are entered.
    /// One of these is opened while that is cheap: a long chain is then never opened again.
    fn read_all(&mut self, directory: &Arc<Directory>) {
        let mut subdirectories = NamesBuilder::default();
        loop {
            let (files, more) = self.read_some(directory, &mut subdirectories);
            self.files(directory, files);
            if !more {
                break;
            }
        }
        let mut names = subdirectories.finish();
        let (node, tree) = (&directory.node, &directory.tree);
        let first = names
            .take(|name, _, _| self.enter(directory, node, tree, name))
            .flatten();
        if !names.is_empty() {
            let (node, tree) = (Arc::clone(node), Arc::clone(tree));
            self.walk
                .pending
                .push([WalkTask::EnterClosed(node, tree, names)]);
        }
        self.walk.pending.push(first.map(WalkTask::Read));
    }

    /// Fill the buffer once and sort its entries. The flag tells whether there is more to read.
    fn read_some(
        &mut self,
        directory: &Directory,
        subdirectories: &mut NamesBuilder,
    ) -> (Names, bool) {
        let mut files = NamesBuilder::default();
        let mut others = 0;
        let mut entries = RawDir::new(directory, &mut self.buffer);
        let more = loop {
            match entries.next() {
                None => break false,
                Some(Err(errno)) => {
                    if errno == Errno::NOENT {
                        count(&self.walk.counts.vanished);
                    } else {
                        let path = directory.node.path(None);
                        self.walk.failed(path, "read the directory", errno);
                    }
                    break false;
                }
                Some(Ok(entry)) => {
                    let name = entry.file_name();
                    match entry.file_type() {
                        _ if matches!(name.to_bytes(), b"." | b"..") => {}
                        FileType::Directory => {
                            subdirectories.push(name, entry.ino(), FileType::Directory);
                        }
                        // Some file systems do not tell: a look at the entry will.
                        kind @ (FileType::RegularFile | FileType::Unknown) => {
                            files.push(name, entry.ino(), kind);
                        }
                        _ => others += 1,
                    }
                }
            }
            if entries.is_buffer_empty() {
                break true;
            }
        };
        self.walk.counts.others.fetch_add(others, Ordering::Relaxed);
        (files.finish(), more)
    }

    fn files(&mut self, directory: &Arc<Directory>, mut names: Names) {
        if names.is_empty() {
            return;
        }
        // Inodes that were read for an earlier batch may be outdated.
        self.chunk.clear();
        let inodes = directory.tree.known.inodes.as_ref();
        let settled = inodes.is_some_and(Inodes::tell_all);
        if let Some(inodes) = inodes {
            self.use_chunk_of(directory.node.dev);
            inodes.prefetch(names.inodes(), &mut self.chunk);
        }
        let path = directory.node.path(None).into_os_string();
        let prefix = Prefix {
            path: std::os::unix::ffi::OsStrExt::as_bytes(&*path),
            root_len: directory.tree.root_len,
        };
        for turn in 1_usize.. {
            if self.walk.cancel.is_cancelled() {
                return;
            }
            if turn.is_multiple_of(SHARE_EVERY)
                && names.len() >= 2 * SHARE_EVERY
                && self.walk.pending.is_hungry()
            {
                let half = names.split();
                self.walk
                    .pending
                    .push([WalkTask::Files(Arc::clone(directory), half)]);
            }
            let settled = inodes.filter(|_| settled);
            let looked = names.take(|name, inode, kind| {
                if kind == FileType::RegularFile && self.walk.leaves_file(directory, prefix, name) {
                    return;
                }
                let known = settled.filter(|_| kind == FileType::RegularFile);
                if !known.is_some_and(|known| self.by_inode(directory, prefix, name, inode, known))
                {
                    self.entry(directory, prefix, name, kind);
                }
            });
            if looked.is_none() {
                return;
            }
        }
    }

    /// Open a subdirectory if it is to be walked.
    fn enter(
        &self,
        parent: impl AsFd,
        node: &Arc<Node>,
        tree: &Arc<Tree>,
        name: &CStr,
    ) -> Option<Arc<Directory>> {
        if node.is_full(name) {
            if !self.walk.told_too_long.swap(true, Ordering::Relaxed) {
                self.walk
                    .tell(node.short_path(), SkipReason::PathTooLong.into());
            }
            return None;
        }
        // Looked at before it is opened: opening one could mount something on it.
        let status = match look_at(&parent, name) {
            Ok(status) => status,
            Err(errno) => return self.cannot_enter(&parent, node, name, errno),
        };
        let (dev, inode) = identity(&status);
        if FileType::from_raw_mode(status.stx_mode.into()) != FileType::Directory {
            count(&self.walk.counts.vanished);
            return None;
        }
        let is_loop = || {
            let mut above = node.ancestors();
            above.any(|node| (node.dev, node.inode) == (dev, inode))
        };
        if self.walk.given.contains(&(dev, inode)) || is_loop() {
            return None;
        }
        if self.walk.options.select.globs().next().is_some() {
            let above = node.path(None).into_os_string();
            let beneath = tree.beneath(std::os::unix::ffi::OsStrExt::as_bytes(&*above));
            if (self.walk.options.select).leaves(&beneath, name.to_bytes(), true) {
                count(&self.walk.counts.excluded_directories);
                return None;
            }
        }
        let other = dev != node.dev || is_mount_root(&status);
        if other && self.walk.options.one_file_system {
            count(&self.walk.counts.other_file_systems);
            return None;
        }
        let fd = match open_directory(&parent, name) {
            Ok(fd) => fd,
            Err(errno) => return self.cannot_enter(&parent, node, name, errno),
        };
        // Another one was put there meanwhile: it was not looked at.
        let opened = statx(&fd, "", AtFlags::EMPTY_PATH, StatxFlags::INO);
        if opened.is_ok_and(|opened| identity(&opened) != (dev, inode)) {
            count(&self.walk.counts.vanished);
            return None;
        }
        let child = Node::child(node, name, dev, inode);
        let tree = if other {
            self.cross(&child, tree, &fd)?
        } else {
            Arc::clone(tree)
        };
        count(&self.walk.counts.directories);
        Some(Arc::new(Directory::new(child, tree, fd, &self.walk.open)))
    }

    /// The tree of another file system below the one that was walked so far; `None` where it is
    /// left out.
    fn cross(&self, node: &Arc<Node>, above: &Tree, fd: &OwnedFd) -> Option<Arc<Tree>> {
        let path = node.path(None);
        match self.tree(node, fd, &path, Arc::clone(&above.given)) {
            Ok(tree) if is_pseudo(tree.known.fs.kind) => {
                count(&self.walk.counts.other_file_systems);
                None
            }
            Ok(tree) => Some(tree),
            Err(refusal) => {
                self.walk.problem(path, refusal);
                None
            }
        }
    }

    pub(super) fn tree(
        &self,
        node: &Arc<Node>,
        fd: &OwnedFd,
        path: &Path,
        given: Arc<Given>,
    ) -> Result<Arc<Tree>, Refusal> {
        let known = self.walk.file_system(node.dev, fd, path)?;
        let top_fd = fd
            .try_clone()
            .map_err(|error| FsError::new(path, "open the directory", error))?;
        Ok(Arc::new(Tree {
            root_len: path.as_os_str().len(),
            top: Arc::clone(node),
            top_fd: File::from(top_fd),
            known,
            given,
        }))
    }

    fn enter_closed(&mut self, node: &Arc<Node>, tree: &Arc<Tree>, mut names: Names) {
        let child = match reopen(node, tree) {
            Ok(parent) => names
                .take(|name, _, _| self.enter(&parent, node, tree, name))
                .flatten(),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                count(&self.walk.counts.vanished);
                return;
            }
            Err(errno) => {
                let path = node.path(None);
                return self.walk.failed(path, "open the directory again", errno);
            }
        };
        if !names.is_empty() {
            let (node, tree) = (Arc::clone(node), Arc::clone(tree));
            self.walk
                .pending
                .push([WalkTask::EnterClosed(node, tree, names)]);
        }
        self.walk.pending.push(child.map(WalkTask::Read));
    }

    fn cannot_enter(
        &self,
        parent: impl AsFd,
        node: &Node,
        name: &CStr,
        errno: Errno,
    ) -> Option<Arc<Directory>> {
        match errno {
            // Every ext4 has one, and for those who may not read it the rest is all that there is.
            Errno::ACCESS if name == LOST_AND_FOUND && is_top_of_mount(&parent) => {
                let path = node.path(Some(name));
                self.walk.tell(path, SkipReason::LostAndFound.into());
            }
            // Gone, or replaced by something that is no directory.
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP => count(&self.walk.counts.vanished),
            _ => self
                .walk
                .failed(node.path(Some(name)), "open the directory", errno),
        }
        None
    }
}

/// The facts that a walk has to know of an entry.
pub(super) const LOOKED_AT: StatxFlags = StatxFlags::TYPE
    .union(StatxFlags::INO)
    .union(StatxFlags::NLINK)
    .union(StatxFlags::SIZE)
    .union(StatxFlags::BLOCKS)
    .union(StatxFlags::CTIME)
    .union(StatxFlags::BTIME);

/// Get the facts that a walk has to know of an entry; never mounts anything.
pub(super) fn look_at(at: impl AsFd, name: &CStr) -> Result<Statx, Errno> {
    statx(
        at,
        name,
        AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT,
        LOOKED_AT,
    )
}

pub(super) fn identity(status: &Statx) -> (u64, u64) {
    (
        makedev(status.stx_dev_major, status.stx_dev_minor),
        status.stx_ino,
    )
}

/// The folder at the root of a file system in which fsck puts what has no name any more (e2fsck(8), fsck.f2fs(8)).
const LOST_AND_FOUND: &CStr = c"lost+found";

fn is_top_of_mount(directory: impl AsFd) -> bool {
    let status = statx(directory, "", AtFlags::EMPTY_PATH, StatxFlags::TYPE);
    status.is_ok_and(|status| is_mount_root(&status))
}

/// Whether an entry is the root of a mount: a bind mount has the same device number as its
/// surroundings, and only this tells (since Linux 5.8).
pub(super) fn is_mount_root(status: &Statx) -> bool {
    status.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
}

/// File systems without storage, whose files may act when they are looked at, or have no end
/// (linux/magic.h, v6.1).
pub(super) fn is_pseudo(kind: FsKind) -> bool {
    const PSEUDO: [i64; 17] = [
        0x9FA0,      // proc
        0x6265_6572, // sysfs
        0x0027_E0EB, // cgroup
        0x6367_7270, // cgroup2
        0x6462_6720, // debugfs
        0x7472_6163, // tracefs
        0x7363_6673, // securityfs
        0xCAFE_4A11, // bpf
        0x6165_676C, // pstore
        0x6265_6570, // configfs
        0x1980_0202, // mqueue
        0x9584_58F6, // hugetlbfs
        0x6573_5543, // fusectl
        0x4249_4E4D, // binfmt_misc
        0x0187,      // autofs
        0xDE5E_81E4, // efivarfs
        0x1CD1,      // devpts
    ];
    match kind {
        FsKind::Other(magic) => PSEUDO.contains(&(magic & 0xFFFF_FFFF)),
        FsKind::Ext4 | FsKind::Xfs | FsKind::Btrfs | FsKind::F2fs => false,
    }
}
