//! The files of a subvolume from its tree, many at once: where they lie.
//!
//! Of a file's inode the tree has the state of some time before (fs/btrfs/delayed-inode.c, v6.18), and of its
//! data only what has a place. So a file is believed
//!
//! - alone ([`TreeInodes::file`]) while [nothing is kept from the trees](super::settled),
//! - else ([`TreeInodes::layout`]) where its extents follow each other and cover just the size and the blocks that
//!   `statx` reports.
//!
//! A file in several pieces is told only if [nobody shares](super::sharing) them: what of the others is shared, only
//! the kernel's map tells.

use std::{
    fmt,
    os::fd::{AsFd, OwnedFd},
};

use indef_core::layout::{Extent, ExtentFlags, Layout};
use linux_abi::{
    btrfs::{FileExtent, FileExtents, FileItem, InodeItem, Place},
    handle::{self, FileHandle},
};
use rustix::fs::{FileType, OFlags};
use units::{Bytes, FileOffset, FileRange, PhysOffset};

use super::{
    settled::Held,
    sharing::{References, Subvolume},
};
use crate::{
    Filesystem,
    inodes::{Expected, InodeFacts, InodePlace, Window, hides_files},
    map::join_encoded,
    root::reopen,
};

/// The first inode number of a file.
const FIRST: u64 = 256;
/// Items of a small file: its inode, its name, an attribute, its extent.
const ITEMS: usize = 4;
/// The most files that are looked at in one go; more than fit into a buffer are none.
const MOST: usize = 192;

/// The inodes of a subvolume.
#[derive(Debug)]
pub(crate) struct TreeInodes {
    /// A file or directory in it.
    within: OwnedFd,
    subvolume: Subvolume,
    block_size: Bytes,
    /// The space that tells whether something waits; `None` where a file could be hidden below a mount.
    held: Option<Held>,
}

/// The extents of a file that follow each other in the file and on the device, from its beginning on. A
/// compressed one is alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    place: u64,
    len: u64,
    is_encoded: bool,
}

impl Run {
    /// The run that begins with the first extent of a file.
    fn begin(extent: &FileExtent) -> Option<Self> {
        let (place, is_encoded) = match extent.place {
            Place::At(place) => (place, false),
            Place::Encoded(place) => (place, true),
            Place::Hole | Place::Other => return None,
        };
        (extent.offset == 0).then_some(Self {
            place,
            len: extent.len,
            is_encoded,
        })
    }

    /// The run with another extent; `None` where this does not follow.
    fn and(self, extent: &FileExtent) -> Option<Self> {
        let next = self.place.checked_add(self.len)?;
        let follows =
            extent.place == Place::At(next) && !self.is_encoded && self.len == extent.offset;
        follows.then(|| Self {
            len: self.len.saturating_add(extent.len),
            ..self
        })
    }
}

/// A file, or something else that has an inode.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) inode: u64,
    /// `None` if what was read begins after it.
    pub(super) item: Option<InodeItem>,
    /// A directory that has a name of it.
    pub(super) parent: Option<u64>,
    /// Its first extent among those that were read, and how many follow with it.
    first: usize,
    pub(super) extents: usize,
    /// All of its extents, where they are one run.
    run: Option<Run>,
    /// Each extent is referred to as a whole.
    pub(super) reaches_all: bool,
}

/// Files in the order of the tree.
#[derive(Debug, Default)]
pub(super) struct Files {
    pub(super) known: Vec<Known>,
    extents: Vec<FileExtent>,
}

impl Files {
    pub(super) fn clear(&mut self) {
        self.known.clear();
        self.extents.clear();
    }

    /// Whether all data of a file lies in the tree.
    pub(super) fn is_inline(&self, known: &Known) -> bool {
        let first = self.extents.get(known.first);
        known.extents == 1
            && first
                .is_some_and(|it| it.len == 0 && it.backing.is_none() && it.place == Place::Other)
    }

    /// Whether all of a file is one run, from its beginning to its end.
    pub(super) fn is_one_run(known: &Known, size: u64, allocated: u64) -> bool {
        let run = known.run;
        run.is_some_and(|run| run_layout(run, size, allocated).is_some())
    }

    /// Add the next item in the order of the tree.
    pub(super) fn add(&mut self, item: FileItem) {
        match item {
            FileItem::Inode(item) => self.of(item.inode).item = Some(item),
            FileItem::Named { inode, parent } => {
                self.of(inode).parent.get_or_insert(parent);
            }
            FileItem::Extent(extent) => {
                let known = self.of(extent.inode);
                known.run = match (known.extents, known.run) {
                    (0, _) => Run::begin(&extent),
                    (_, run) => run.and_then(|run| run.and(&extent)),
                };
                known.extents += 1;
                known.reaches_all &= extent
                    .backing
                    .is_none_or(|of| of.from == 0 && extent.len >= of.data_len);
                self.extents.push(extent);
            }
        }
    }

    fn of(&mut self, inode: u64) -> &mut Known {
        if self.known.last().is_none_or(|known| known.inode != inode) {
            self.known.push(Known {
                inode,
                item: None,
                parent: None,
                first: self.extents.len(),
                extents: 0,
                run: None,
                reaches_all: true,
            });
        }
        let last = self.known.len() - 1;
        &mut self.known[last]
    }
}

/// The files that were read last.
#[derive(Default)]
pub(crate) struct Chunk {
    buffer: FileExtents,
    /// The files in `from..end`.
    files: Files,
    from: u64,
    end: u64,
    /// All items of the files in `from..read_to` are among them.
    read_to: u64,
    window: Window,
    references: References,
    /// The transaction of the subvolume's last snapshot, asked for with what was read last.
    last_snapshot: Option<u64>,
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chunk")
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}

impl Chunk {
    pub(crate) fn clear(&mut self) {
        (self.from, self.end, self.read_to) = (0, 0, 0);
        self.references.clear();
    }
}

impl TreeInodes {
    pub(crate) fn open(fs: &Filesystem, file: impl AsFd) -> Option<Self> {
        // Whether we may.
        FileExtents::new().read(&file, FIRST, 1, drop).ok()?;
        Some(Self {
            within: file.as_fd().try_clone_to_owned().ok()?,
            subvolume: Subvolume::of(&file)?,
            block_size: fs.block_size,
            held: match hides_files(fs) {
                true => None,
                false => Held::open(&file),
            },
        })
    }

    /// Open a file by its number, so that no path has to be found.
    pub(crate) fn open_file(&self, inode: u64) -> Option<OwnedFd> {
        let mut generation = None;
        let note = |item: FileItem| match item {
            FileItem::Inode(item) if item.inode == inode => generation = Some(item.generation),
            _ => {}
        };
        FileExtents::new().read(&self.within, inode, 1, note).ok()?;
        let handle = FileHandle::Btrfs {
            inode,
            subvolume: self.subvolume.number(),
            // The kernel compares the lower half (fs/btrfs/inode.c, `btrfs_read_locked_inode`, v6.18).
            generation: generation? as u32,
        };
        // As a walk opens it: for a short time, a lease is waited for.
        let named = handle::open(&self.within, handle).ok()?;
        reopen(named, OFlags::RDONLY | OFlags::NOATIME).ok()
    }

    /// A file or directory in the subvolume.
    pub(super) fn within(&self) -> &OwnedFd {
        &self.within
    }

    /// Its number.
    pub(super) fn subvolume(&self) -> u64 {
        self.subvolume.number()
    }

    /// The space that tells whether something waits.
    pub(super) fn held(&self) -> Option<&Held> {
        self.held.as_ref()
    }

    /// Whether the tree has everything of every file, right now. Changes at any moment, so it is to be
    /// asked again and again.
    pub(crate) fn is_settled(&self) -> bool {
        self.held.as_ref().is_some_and(Held::is_nothing)
    }

    /// The facts of a regular file. They are true only while the file system
    /// [is settled](Self::is_settled).
    pub(crate) fn file(&self, inode: u64, chunk: &mut Chunk) -> Option<InodeFacts> {
        let known = self.known(inode, chunk)?;
        let item = known.item?;
        let is_regular = FileType::from_raw_mode(item.mode) == FileType::RegularFile;
        // As the kernel rounds it for `statx`.
        let allocated = FileOffset(item.bytes).align_up(self.block_size).get();
        let layout = match known.run {
            Some(run) => run_layout(run, item.size, allocated),
            None => self.pieces(&known, item.size, chunk),
        };
        (is_regular && item.links > 0).then_some(InodeFacts {
            size: Bytes(item.size),
            allocated: Bytes(allocated),
            links: item.links,
            place: layout.map_or(InodePlace::Unknown, InodePlace::Known),
        })
    }

    pub(crate) fn layout(&self, expected: &Expected, chunk: &mut Chunk) -> Option<Layout> {
        let run = self.known(expected.inode, chunk)?.run?;
        run_layout(run, expected.size.get(), expected.allocated.get())
    }

    /// Whether a file reaches all of each extent that it holds; `None` if that is not known of it
    /// yet.
    pub(crate) fn reaches_all(&self, inode: u64, chunk: &mut Chunk) -> Option<bool> {
        match self.known(inode, chunk) {
            Some(known) => Some(known.reaches_all),
            None if (chunk.from..chunk.read_to).contains(&inode) => {
                chunk.window.ask();
                Some(true)
            }
            None => None,
        }
    }

    /// The layout of a file in several pieces, as the kernel maps it, if nobody else has any of them.
    fn pieces(&self, known: &Known, size: u64, chunk: &mut Chunk) -> Option<Layout> {
        let last_snapshot = chunk.last_snapshot?;
        let whole = FileRange::new(0, size).align_outward(self.block_size);
        let mut pieces: Vec<Extent> = Vec::with_capacity(known.extents);
        for extent in chunk
            .files
            .extents
            .get(known.first..)?
            .get(..known.extents)?
        {
            if extent.place == Place::Hole {
                continue;
            }
            let references = &mut chunk.references;
            if !references.is_alone(extent, last_snapshot, &self.within) {
                return None;
            }
            let Some(piece) = piece(extent)?.clip(whole) else {
                continue;
            };
            // The kernel joins these before it tells them.
            match pieces.last_mut() {
                Some(last) if last.flags == piece.flags && last.touches(&piece) => {
                    last.len += piece.len;
                }
                _ => pieces.push(piece),
            }
        }
        join_encoded(&mut pieces);
        Some(Layout::new(pieces))
    }

    fn known(&self, inode: u64, chunk: &mut Chunk) -> Option<Known> {
        if !(chunk.from..chunk.end).contains(&inode) {
            let files = match chunk.end {
                0 => chunk.window.again(),
                _ => chunk.window.next(4, MOST),
            };
            chunk.files.clear();
            let (read, items) = (&mut chunk.files, (files * ITEMS) as u32);
            let read = (chunk.buffer).read(&self.within, inode, items, |item| read.add(item));
            // Of the last file there may be more. One that fills the buffer has to be mapped.
            let last = read.ok().flatten().unwrap_or(inode);
            chunk.files.known.retain(|known| known.inode < last);
            (chunk.from, chunk.end) = (inode, last.max(inode + 1));
            chunk.read_to = last;
            // Asked for afterwards: newer than what was read is no harm.
            chunk.last_snapshot = self.subvolume.last_snapshot(&self.within);
        }
        let known = &chunk.files.known;
        let found = known.binary_search_by_key(&inode, |known| known.inode);
        let known = known.get(found.ok()?).copied();
        chunk.window.ask();
        known
    }
}

/// The layout of a file that is one run, if this is all of it.
fn run_layout(run: Run, size: u64, allocated: u64) -> Option<Layout> {
    // Sizes are rounded up to sectors of at least 4 KiB, which only the blocks tell.
    let is_whole = run.len == allocated && run.len >= size;
    let extent = Extent {
        file: FileOffset(0),
        phys: PhysOffset(run.place),
        len: Bytes(run.len),
        flags: match run.is_encoded {
            true => ExtentFlags::ENCODED,
            false => ExtentFlags::empty(),
        },
    };
    is_whole.then(|| Layout::new(vec![extent]))
}

/// An extent as FIEMAP tells it (fs/btrfs/fiemap.c, `extent_fiemap`, v6.18); `None` for anything unusual.
fn piece(extent: &FileExtent) -> Option<Extent> {
    let backing = extent.backing?;
    let (place, flags) = match extent.place {
        Place::At(place) if !backing.is_encoded => (place, ExtentFlags::empty()),
        Place::Encoded(place) => (place, ExtentFlags::ENCODED),
        Place::Other if !backing.is_encoded => (
            backing.address.checked_add(backing.from)?,
            ExtentFlags::UNWRITTEN,
        ),
        Place::At(_) | Place::Hole | Place::Other => return None,
    };
    // None that arithmetic cannot rely on.
    place.checked_add(extent.len)?;
    extent.offset.checked_add(extent.len)?;
    Some(Extent {
        file: FileOffset(extent.offset),
        phys: PhysOffset(place),
        len: Bytes(extent.len),
        flags,
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::MetadataExt, path::Path, process::Command};

    use linux_abi::btrfs::Backing;
    use scratch_fs::{FragmentOptions, ScratchFs, fragment, reflink, require};

    use super::*;
    use crate::{Mapper, detect, map};

    fn files(extents: &[(u64, u64, u64, Place)]) -> Vec<Known> {
        let mut files = Files::default();
        for (inode, offset, len, place) in extents.iter().copied() {
            files.add(FileItem::Extent(FileExtent {
                inode,
                offset,
                len,
                place,
                backing: None,
                generation: 1,
            }));
        }
        files.known
    }

    #[test]
    fn only_extents_that_follow_each_other_are_one_run() {
        let at = Place::At;
        let run = |place, len| {
            let is_encoded = false;
            Some(Run {
                place,
                len,
                is_encoded,
            })
        };
        let whole = files(&[(300, 0, 10, at(1000)), (300, 10, 5, at(1010))]);
        assert_eq!((whole.len(), whole[0].run), (1, run(1000, 15)));
        for second in [
            (300, 10, 5, at(1011)),
            (300, 11, 5, at(1010)),
            (300, 10, 5, Place::Hole),
            (300, 10, 5, Place::Other),
            (300, 10, 5, Place::Encoded(1010)),
        ] {
            let found = files(&[(300, 0, 10, at(1000)), second, (300, 15, 5, at(1015))]);
            assert_eq!((found.len(), found[0].run), (1, None), "{second:?}");
        }
        assert_eq!(
            files(&[(300, 8, 10, at(1000))])[0].run,
            None,
            "a hole first"
        );
        let encoded = [(300, 0, 10, Place::Encoded(7)), (300, 10, 5, at(17))];
        assert!(files(&encoded[..1])[0].run.unwrap().is_encoded);
        assert_eq!(files(&encoded)[0].run, None, "where it ends is not known");
        let two = files(&[(300, 0, 10, at(1000)), (301, 0, 10, at(1010))]);
        assert_eq!((two.len(), two[1].first, two[1].extents), (2, 1, 1));
    }

    #[test]
    fn a_file_reaches_all_only_if_it_does_so_of_each_extent() {
        let backing = |from| Backing {
            address: 1000,
            allocated: 10,
            data_len: 10,
            from,
            is_written: true,
            is_encoded: false,
        };
        let extent = |offset, len, backing| {
            FileItem::Extent(FileExtent {
                inode: 300,
                offset,
                len,
                place: Place::Hole,
                backing,
                generation: 1,
            })
        };
        for (second, all) in [
            (extent(10, 10, Some(backing(0))), true),
            (extent(10, 10, None), true),
            (extent(10, 9, Some(backing(0))), false),
            (extent(10, 9, Some(backing(1))), false),
        ] {
            let mut files = Files::default();
            files.add(extent(0, 10, Some(backing(0))));
            files.add(second);
            assert_eq!(files.known[0].reaches_all, all, "{second:?}");
        }
    }

    /// The facts of a file once nothing waits, which must be those of the kernel; the layout as the kernel
    /// maps it.
    fn told(path: &Path) -> (Option<Layout>, Layout) {
        let file = fs::File::open(path).unwrap();
        let fs = detect(&file, path).unwrap();
        let inodes = TreeInodes::open(&fs, &file).unwrap();
        while !inodes.is_settled() {
            rustix::fs::syncfs(&file).unwrap();
        }
        let status = file.metadata().unwrap();
        let facts = inodes.file(status.ino(), &mut Chunk::default()).unwrap();
        assert_eq!(facts.size, Bytes(status.len()));
        assert_eq!(facts.allocated, Bytes(status.blocks() * 512));
        assert_eq!(u64::from(facts.links), status.nlink());
        let whole = FileRange::new(0, status.len()).align_outward(fs.block_size);
        let mapped = map(&file, path, whole, false, &mut Mapper::default()).unwrap();
        let layout = match facts.place {
            InodePlace::Known(layout) => Some(layout),
            InodePlace::Unknown | InodePlace::InFile(_) => None,
        };
        (layout, mapped)
    }

    #[test]
    fn loop_pieces_are_told_unless_somebody_shares_them() {
        let Some(scratch) = require(ScratchFs::builder("btrfs", Bytes::mib(512)).build()) else {
            return;
        };
        let path = |name: &str| scratch.path().join(name);
        for (name, seed) in [("alone", 1), ("cloned", 2), ("other", 3), ("last", 4)] {
            let options = FragmentOptions {
                size: Bytes::kib(256),
                piece: Bytes::kib(8),
                seed,
            };
            fragment(&path(name), options).unwrap();
        }
        reflink(&path("cloned"), &path("clone")).unwrap();
        // The last file that is read may go on.
        fs::write(path("end"), "x").unwrap();
        let (layout, mapped) = told(&path("alone"));
        assert_eq!((layout, mapped.fragments()), (Some(mapped.clone()), 32));
        let (layout, mapped) = told(&path("cloned"));
        assert!(layout.is_none() && mapped.extents()[0].flags.contains(ExtentFlags::SHARED));
        // What waits is not in the trees.
        fs::write(path("new"), vec![1; 100_000]).unwrap();
        let file = fs::File::open(path("new")).unwrap();
        let fs = detect(&file, scratch.path()).unwrap();
        assert!(!TreeInodes::open(&fs, &file).unwrap().is_settled());
        // A snapshot has all that is there; what is written afterwards it has not.
        let made = Command::new("btrfs")
            .args(["-q", "subvolume", "snapshot"])
            .args([scratch.path(), &path("snapshot")])
            .status();
        assert!(made.unwrap().success());
        assert_eq!(told(&path("alone")).0, None);
        let options = FragmentOptions {
            size: Bytes::kib(256),
            piece: Bytes::kib(8),
            seed: 5,
        };
        fragment(&path("newer"), options).unwrap();
        fs::write(path("new end"), "x").unwrap();
        let (layout, mapped) = told(&path("newer"));
        assert_eq!(layout, Some(mapped));
        let (layout, mapped) = told(&path("snapshot/alone"));
        assert!(layout.is_none() && mapped.extents()[0].flags.contains(ExtentFlags::SHARED));
    }
}
