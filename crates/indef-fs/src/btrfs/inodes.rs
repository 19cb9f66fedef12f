//! The extents of many files of a subvolume, from its tree: which files are in one piece, and where.
//!
//! Of a file's inode the tree has the state of some time before (fs/btrfs/delayed-inode.c, v6.18), so that a
//! file is believed where its extents cover just the size and the blocks that `statx` reports.

use std::{
    fmt,
    os::fd::{AsFd, OwnedFd},
};

use indef_core::layout::{Extent, ExtentFlags, Layout};
use linux_abi::btrfs::{FileExtent, FileExtents, Place};
use units::{Bytes, FileOffset, PhysOffset};

use crate::inodes::{Expected, Window};

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
}

/// A file whose extents follow each other in the file and on the device, from its beginning on. A
/// compressed one has a single extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    inode: u64,
    /// Its place; `None` where an extent did not follow.
    place: Option<u64>,
    len: u64,
    is_encoded: bool,
    /// Each extent is referred to as a whole.
    reaches_all: bool,
}

/// The files that were read last.
#[derive(Default)]
pub(crate) struct Chunk {
    buffer: FileExtents,
    /// The files with extents in `from..end`.
    runs: Vec<Run>,
    from: u64,
    end: u64,
    /// All extents of the files in `from..read_to` are among them.
    read_to: u64,
    window: Window,
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chunk")
            .field("runs", &self.runs)
            .finish_non_exhaustive()
    }
}

impl Chunk {
    pub(crate) fn clear(&mut self) {
        (self.from, self.end, self.read_to) = (0, 0, 0);
    }
}

impl TreeInodes {
    pub(crate) fn open(file: impl AsFd) -> Option<Self> {
        // Whether we may.
        FileExtents::new().read(&file, FIRST, 1, drop).ok()?;
        Some(Self {
            within: file.as_fd().try_clone_to_owned().ok()?,
        })
    }

    pub(crate) fn layout(&self, expected: &Expected, chunk: &mut Chunk) -> Option<Layout> {
        let run = self.run(expected.inode, chunk)?;
        // Sizes are rounded up to sectors of at least 4 KiB, which only the blocks tell.
        let is_whole = run.len == expected.allocated.get() && run.len >= expected.size.get();
        let extent = Extent {
            file: FileOffset(0),
            phys: PhysOffset(run.place?),
            len: Bytes(run.len),
            flags: match run.is_encoded {
                true => ExtentFlags::ENCODED,
                false => ExtentFlags::empty(),
            },
        };
        is_whole.then(|| Layout::new(vec![extent]))
    }

    /// Whether a file reaches all of each extent that it holds; `None` if that is not known of it
    /// yet.
    pub(crate) fn reaches_all(&self, inode: u64, chunk: &mut Chunk) -> Option<bool> {
        match self.run(inode, chunk) {
            Some(run) => Some(run.reaches_all),
            None if (chunk.from..chunk.read_to).contains(&inode) => {
                chunk.window.ask();
                Some(true)
            }
            None => None,
        }
    }

    fn run(&self, inode: u64, chunk: &mut Chunk) -> Option<Run> {
        if !(chunk.from..chunk.end).contains(&inode) {
            let files = match chunk.end {
                0 => chunk.window.again(),
                _ => chunk.window.next(4, MOST),
            };
            chunk.runs.clear();
            let (runs, items) = (&mut chunk.runs, (files * ITEMS) as u32);
            let read = (chunk.buffer).read(&self.within, inode, items, |extent| add(runs, &extent));
            // Of the last file there may be more. One that fills the buffer has to be mapped.
            let last = read.ok().flatten().unwrap_or(inode);
            chunk.runs.retain(|run| run.inode < last);
            (chunk.from, chunk.end) = (inode, last.max(inode + 1));
            chunk.read_to = last;
        }
        let found = chunk.runs.binary_search_by_key(&inode, |run| run.inode);
        let run = chunk.runs.get(found.ok()?).copied();
        chunk.window.ask();
        run
    }
}

/// Add the next extent in the order of the tree.
fn add(runs: &mut Vec<Run>, extent: &FileExtent) {
    let reaches_all = extent
        .backing
        .is_none_or(|of| of.from == 0 && extent.len >= of.data_len);
    match runs.last_mut() {
        Some(run) if run.inode == extent.inode => {
            run.reaches_all &= reaches_all;
            let next = run.place.and_then(|at| at.checked_add(run.len));
            let follows = next.is_some_and(|next| extent.place == Place::At(next));
            if follows && !run.is_encoded && run.len == extent.offset {
                run.len = run.len.saturating_add(extent.len);
            } else {
                run.place = None;
            }
        }
        _ => {
            let place = match extent.place {
                Place::At(place) | Place::Encoded(place) => Some(place),
                Place::Hole | Place::Other => None,
            };
            runs.push(Run {
                inode: extent.inode,
                place: place.filter(|_| extent.offset == 0),
                len: extent.len,
                is_encoded: matches!(extent.place, Place::Encoded(_)),
                reaches_all,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use linux_abi::btrfs::Backing;

    use super::*;

    fn runs(extents: &[(u64, u64, u64, Place)]) -> Vec<Run> {
        let mut runs = Vec::new();
        for (inode, offset, len, place) in extents.iter().copied() {
            let extent = FileExtent {
                inode,
                offset,
                len,
                place,
                backing: None,
            };
            add(&mut runs, &extent);
        }
        runs
    }

    #[test]
    fn only_extents_that_follow_each_other_are_one_run() {
        let at = Place::At;
        let run = |place, len| Run {
            inode: 300,
            place,
            len,
            is_encoded: false,
            reaches_all: true,
        };
        let whole = runs(&[(300, 0, 10, at(1000)), (300, 10, 5, at(1010))]);
        assert_eq!(whole, [run(Some(1000), 15)]);
        for second in [
            (300, 10, 5, at(1011)),
            (300, 11, 5, at(1010)),
            (300, 10, 5, Place::Hole),
            (300, 10, 5, Place::Other),
            (300, 10, 5, Place::Encoded(1010)),
        ] {
            let found = runs(&[(300, 0, 10, at(1000)), second, (300, 15, 5, at(1015))]);
            assert_eq!((found.len(), found[0].place), (1, None), "{second:?}");
        }
        assert_eq!(
            runs(&[(300, 8, 10, at(1000))]),
            [run(None, 10)],
            "a hole first"
        );
        let encoded = [(300, 0, 10, Place::Encoded(7)), (300, 10, 5, at(17))];
        assert!(runs(&encoded[..1])[0].is_encoded && runs(&encoded[..1])[0].place.is_some());
        assert_eq!(runs(&encoded)[0].place, None, "where it ends is not known");
        let two = runs(&[(300, 0, 10, at(1000)), (301, 0, 10, at(1010))]);
        assert_eq!(two.len(), 2);
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
        let extent = |offset, len, backing| FileExtent {
            inode: 300,
            offset,
            len,
            place: Place::Hole,
            backing,
        };
        for (second, all) in [
            (extent(10, 10, Some(backing(0))), true),
            (extent(10, 10, None), true),
            (extent(10, 9, Some(backing(0))), false),
            (extent(10, 9, Some(backing(1))), false),
        ] {
            let mut runs = Vec::new();
            add(&mut runs, &extent(0, 10, Some(backing(0))));
            add(&mut runs, &second);
            assert_eq!(runs[0].reaches_all, all, "{second:?}");
        }
    }
}
