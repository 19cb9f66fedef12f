//! All files of a subvolume without a walk, and those that changed since a transaction.
//!
//! A leaf of a tree that changes is written anew, with the number of the transaction, and a search leaves out whole
//! branches without a newer leaf (fs/btrfs/ctree.c, `btrfs_search_forward`, v6.18). So what changed since a
//! transaction costs little to find, whatever changed it: a write, or another mover. Three things a search for
//! the new does not show:
//!
//! - **What is gone** leaves nothing behind. But its directory has changed, or is gone, too.
//! - **Who else has an extent** is not in this tree. So only a [plain](Nature::Plain) file is as it was while its leaf
//!   is: all of it is one extent, which it reaches from end to end, and of which nobody needs to know who shares it.
//! - **Where a balance has put an extent** may be in a leaf of its own tree that is older than the transaction in which
//!   it became one of this tree (fs/btrfs/relocation.c, `replace_path`). So nothing is remembered of places, and a file
//!   of several extents (of 128 MiB at most) is not plain, though they lie next to each other: a balance moves each as a
//!   whole, and may put the next one elsewhere.
//!
//! A number of a transaction means nothing in another history of the file system (one that was put back from a copy). So
//! it counts only as long as the file system [stays mounted](SubvolumeFiles::session).
//!
//! What is answered here has to be what a walk finds. So there is no answer for anything but the whole of a subvolume, and
//! none where a walk might see something else: below a mount, or in a snapshot, where the places of other subvolumes
//! are directories.

use std::{
    collections::HashMap,
    ffi::OsStr,
    fmt,
    fs::{self, File},
    io,
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStrExt, fs::MetadataExt},
    },
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use linux_abi::btrfs::{FIRST_FILE, FileExtents, Origin, committed, fsid, origin};
use rustix::fs::{FileType, syncfs};
use units::{Bytes, FileOffset};

use super::{
    inodes::{Chunk, Files, Known, TreeInodes},
    settled::{folder, hex},
};
use crate::{
    Filesystem, FsKind,
    covered::covered,
    in_threads::in_threads,
    inodes::{InodeFacts, Window},
    nature::Nature,
};

/// Data that waits is written back for an answer, up to so much.
const LITTLE: u64 = 64 << 20;
/// How often to look whether nothing waits, after that.
const LOOKS: u32 = 20;
/// Parts for each thread, so that none waits long for the others.
const PARTS: u64 = 32;
/// Items of a small file, and the most files of a read for a few of them.
const ITEMS: usize = 4;
const MOST: usize = 192;
/// Parts of a path.
const DEEPEST: usize = 4096;

/// An inode of a subvolume that has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbered {
    /// Its number.
    pub inode: u64,
    /// A directory that has a name of it.
    pub parent: u64,
    /// Its names.
    pub links: u32,
    /// The transaction in which the inode itself changed last.
    pub changed: u64,
    /// What it is.
    pub nature: Nature,
}

/// A number, and the inode that it is of now, if it has a name.
pub type Change = (u64, Option<Numbered>);

/// The files of a subvolume by their numbers.
#[derive(Debug)]
pub struct SubvolumeFiles {
    tree: TreeInodes,
    block_size: Bytes,
    origin: Origin,
    fsid: [u8; 16],
    covered: u64,
}

impl SubvolumeFiles {
    /// Those of the subvolume of which `directory` is the topmost directory; `None` where there is no way to them, or a
    /// walk might see others.
    #[must_use]
    pub fn open(fs: &Filesystem, directory: &File) -> Option<Self> {
        if fs.kind != FsKind::Btrfs || directory.metadata().ok()?.ino() != FIRST_FILE {
            return None;
        }
        let tree = TreeInodes::open(fs, directory)?;
        tree.held()?;
        let origin = origin(directory, tree.subvolume()).ok()??;
        if origin.is_snapshot {
            return None;
        }
        Some(Self {
            tree,
            block_size: fs.block_size,
            origin,
            fsid: fsid(directory).ok()?,
            covered: covered(fs, directory)?,
        })
    }

    /// The facts of a regular file, where the tree has them.
    pub fn file(&self, inode: u64, chunk: &mut TreeChunk) -> Option<InodeFacts> {
        self.tree.file(inode, &mut chunk.0)
    }

    /// Whether a regular file reaches all of each extent that it holds; `None` if that is not known without a
    /// look at it.
    pub fn reaches_all(&self, inode: u64, chunk: &mut TreeChunk) -> Option<bool> {
        self.tree.reaches_all(inode, &mut chunk.0)
    }

    /// Its directories on which other file systems are mounted; they are empty.
    #[must_use]
    pub const fn covered(&self) -> u64 {
        self.covered
    }

    /// Subvolumes that have a name in it.
    #[must_use]
    pub const fn subvolumes(&self) -> u64 {
        self.origin.subvolumes
    }

    /// The subvolume, in one text that is the same only as long as its file system stays mounted: the kernel has a
    /// new node for each that it mounts (fs/btrfs/sysfs.c, `btrfs_sysfs_add_fsid`; the number of a node is not used
    /// again, fs/kernfs/dir.c, v6.18).
    #[must_use]
    pub fn session(&self) -> Option<String> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let node = fs::metadata(folder(&self.fsid)).ok()?.ino();
        Some(format!(
            "{} {} {} {} {node}",
            hex(&self.fsid),
            self.tree.subvolume(),
            hex(&self.origin.uuid),
            boot.trim(),
        ))
    }

    /// A name for the subvolume that it keeps.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}-{}", hex(&self.fsid), self.tree.subvolume())
    }

    /// Whether the tree has everything of every file, right now.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.tree.is_settled()
    }

    /// A transaction since which [changes](Self::changed) will be seen of all that is read from now on; `None` while
    /// something waits outside of the tree. A little is written back for that.
    #[must_use]
    pub fn settle(&self) -> Option<u64> {
        let tree = &self.tree;
        let settled = || {
            // Asked for first: what changes afterwards is newer.
            let last = committed(tree.within(), tree.subvolume()).ok()??;
            tree.is_settled().then_some(last.saturating_add(1))
        };
        if let Some(now) = settled() {
            return Some(now);
        }
        if tree.held()?.data_bytes()? > LITTLE {
            return None;
        }
        syncfs(tree.within()).ok()?;
        for _ in 0..LOOKS {
            if let Some(now) = settled() {
                return Some(now);
            }
            thread::sleep(Duration::from_millis(1));
        }
        None
    }

    /// Visit all inodes that have a name, from many threads; each part of their numbers in order, with a value of its
    /// own that `begin` makes. Returns these in the order of the parts. `stop` is asked between reads.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn all<P: Send>(
        &self,
        threads: usize,
        stop: &(dyn Fn() -> bool + Sync),
        begin: &(dyn Fn() -> P + Sync),
        visit: &(dyn Fn(&mut P, Numbered) + Sync),
    ) -> io::Result<Vec<P>> {
        let threads = threads.max(1) as u64;
        let last = self.last()?;
        let each = (last - FIRST_FILE + 1).div_ceil(PARTS * threads).max(1024);
        let next = AtomicU64::new(0);
        let work = || -> io::Result<Vec<(u64, P)>> {
            let (mut reader, mut parts) = (Reader::new(self), Vec::new());
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let from = FIRST_FILE.saturating_add(index.saturating_mul(each));
                if from > last {
                    return Ok(parts);
                }
                let end = from.saturating_add(each);
                let mut part = begin();
                reader.next = from;
                while reader.next < end && !stop() && reader.read(reader.next, u32::MAX)? {
                    let known = reader.files.known.iter();
                    for known in known.take_while(|known| known.inode < end) {
                        let numbered = reader.numbered(known);
                        numbered.into_iter().for_each(|it| visit(&mut part, it));
                    }
                }
                parts.push((index, part));
            }
        };
        in_threads(threads, &work)
    }

    /// The largest number.
    fn last(&self) -> io::Result<u64> {
        let within = self.tree.within();
        let mut buffer = FileExtents::new();
        let (mut there, mut beyond) = (FIRST_FILE, u64::MAX - 256);
        // One item at or after a number shows that there is one.
        while there < beyond {
            let middle = there + (beyond - there).div_ceil(2);
            match buffer.read(within, middle, 1, drop)? {
                Some(found) => there = found.max(middle),
                None => beyond = middle - 1,
            }
        }
        Ok(there)
    }

    /// All inodes, in the order of their numbers, that changed since a transaction and are there, and others near them, as
    /// they are now; without an inode, what has no name any more. `None` if they are more than `most`.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn changed(&self, since: u64, most: usize) -> io::Result<Option<Vec<Change>>> {
        let (mut reader, mut changed) = (Reader::new(self), Vec::new());
        // Of these some items may lie in leaves that did not change.
        let mut unsure = Vec::new();
        while reader.read_since(reader.next, since, u32::MAX)? {
            for known in &reader.files.known {
                let numbered = reader.numbered(known);
                if !reader.is_sure(known, numbered.as_ref()) {
                    unsure.push((changed.len(), known.inode));
                }
                changed.push((known.inode, numbered));
            }
            if changed.len() > most {
                return Ok(None);
            }
        }
        let numbers: Vec<u64> = unsure.iter().map(|(_, inode)| *inode).collect();
        let mut places = unsure.iter().map(|(at, _)| *at);
        self.look(&numbers, |_, numbered| {
            if let Some(at) = places.next() {
                changed[at].1 = numbered;
            }
        })?;
        Ok(Some(changed))
    }

    /// The inodes with these numbers, which are in order; `None` for one that has no name.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn look(
        &self,
        numbers: &[u64],
        mut visit: impl FnMut(u64, Option<Numbered>),
    ) -> io::Result<()> {
        let mut reader = Reader::new(self);
        for &inode in numbers {
            visit(inode, reader.find(inode)?);
        }
        Ok(())
    }

    /// A path of an inode, from the topmost directory on.
    #[must_use]
    pub fn path(&self, inode: u64, folders: &mut Folders) -> Option<PathBuf> {
        let mut names: Vec<Box<[u8]>> = Vec::new();
        let mut at = inode;
        // Directories that are moved meanwhile could lead around in a circle.
        while at != FIRST_FILE && names.len() < DEEPEST {
            let (parent, name) = match folders.known.get(&at) {
                Some(known) => known.clone(),
                None => {
                    let found = folders.buffer.name(self.tree.within(), at).ok()??;
                    let found = (found.parent, found.name.into());
                    if at != inode {
                        folders.known.insert(at, found.clone());
                    }
                    found
                }
            };
            names.push(name);
            at = parent;
        }
        let parts = names.iter().rev().map(|name| OsStr::from_bytes(name));
        (at == FIRST_FILE).then(|| parts.collect())
    }

    /// Open a regular file by its number.
    #[must_use]
    pub fn open_file(&self, inode: u64) -> Option<OwnedFd> {
        self.tree.open_file(inode)
    }
}

/// The files that were read last. One for each thread.
#[derive(Debug, Default)]
pub struct TreeChunk(Chunk);

impl TreeChunk {
    /// Forget all, so that they are not taken for newer ones.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// Names of directories that were asked for, with the directories that have them. One for each thread.
#[derive(Default)]
pub struct Folders {
    known: HashMap<u64, (u64, Box<[u8]>)>,
    buffer: FileExtents,
}

impl fmt::Debug for Folders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Folders")
            .field("known", &self.known.len())
            .finish_non_exhaustive()
    }
}

/// Reads inodes in the order of their numbers.
struct Reader<'a> {
    of: &'a SubvolumeFiles,
    buffer: FileExtents,
    files: Files,
    /// All items of the inodes in `from..next` are in `files`, unless there is but one of them.
    from: u64,
    next: u64,
    /// There are more items of the inode than were read.
    cut: bool,
    window: Window,
}

impl<'a> Reader<'a> {
    fn new(of: &'a SubvolumeFiles) -> Self {
        Self {
            of,
            buffer: FileExtents::new(),
            files: Files::default(),
            from: 0,
            next: 0,
            cut: false,
            window: Window::default(),
        }
    }

    /// Read so many items from a number on; `false` if there are no more.
    fn read(&mut self, from: u64, items: u32) -> io::Result<bool> {
        self.read_since(from, 0, items)
    }

    /// The same of leaves that are as new as a transaction.
    fn read_since(&mut self, from: u64, since: u64, items: u32) -> io::Result<bool> {
        self.files.clear();
        let within = self.of.tree.within();
        let files = &mut self.files;
        let last = self
            .buffer
            .read_since(within, from, since, items, |item| files.add(item))?;
        self.from = from;
        self.cut = false;
        let Some(last) = last else {
            self.next = u64::MAX;
            return Ok(false);
        };
        // Of the last one there may be more.
        if last == from {
            self.cut = true;
            self.next = from + 1;
        } else {
            files.known.retain(|known| known.inode < last);
            self.next = last;
        }
        Ok(true)
    }

    fn find(&mut self, inode: u64) -> io::Result<Option<Numbered>> {
        if !(self.from..self.next).contains(&inode) {
            let files = match self.next {
                0 => self.window.again(),
                _ => self.window.next(ITEMS, MOST),
            };
            self.read(inode, (files * ITEMS) as u32)?;
            if self.cut {
                self.read(inode, u32::MAX)?;
            }
        }
        let known = &self.files.known;
        let found = known.binary_search_by_key(&inode, |known| known.inode);
        self.window.ask();
        Ok(found.ok().and_then(|at| self.numbered(&known[at])))
    }

    /// Whether what an inode is follows from the items that were read, also if there are others of it: the inode itself and
    /// a name, and all data that it counts.
    fn is_sure(&self, known: &Known, numbered: Option<&Numbered>) -> bool {
        let has_no_name = known.item.is_some_and(|item| item.links == 0);
        let is_known = |it: &Numbered| it.nature != Nature::Notable && known.parent.is_some();
        has_no_name || numbered.is_some_and(is_known)
    }

    fn numbered(&self, known: &Known) -> Option<Numbered> {
        let item = known.item?;
        let nature = match FileType::from_raw_mode(item.mode) {
            FileType::Directory => Nature::Directory,
            FileType::RegularFile => {
                // As the kernel rounds it for `statx`.
                let block_size = self.of.block_size;
                let allocated = FileOffset(item.bytes).align_up(block_size).get();
                let is_plain = known.reaches_all
                    && !self.cut
                    && match (item.size, allocated) {
                        (0, _) => allocated == 0 && known.extents == 0,
                        // Of a file that has nothing but holes.
                        (_, 0) => true,
                        (size, _) => {
                            known.extents == 1 && Files::is_one_run(known, size, allocated)
                                || self.files.is_inline(known) && allocated <= block_size.get()
                        }
                    };
                match is_plain {
                    true => Nature::Plain {
                        size: Bytes(item.size),
                        allocated: Bytes(allocated),
                    },
                    false => Nature::Notable,
                }
            }
            _ => Nature::Other,
        };
        (item.links > 0).then_some(Numbered {
            inode: known.inode,
            parent: known.parent.unwrap_or(0),
            links: item.links,
            changed: item.changed,
            nature,
        })
    }
}

#[cfg(test)]
mod tests;
