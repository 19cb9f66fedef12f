//! Where the data of all files of an XFS lies, by its reverse mapping: for who wants to know it of most of them, one look at
//! the device instead of one at each file.
//!
//! The look takes a while, so that parts of it are of different moments. A file is believed if all that it owns comes to the
//! blocks that it has now, if its extents do not overlap, and if it has not changed since a second before the look; others
//! are to be mapped. Times of files are those of the wall clock: once somebody has set that, no file is believed. Programs that move blocks without a change of the file can still outdate an answer, as they can any
//! map: it is for a choice, and who moves anything looks at the file again.

use std::os::fd::AsFd;

use indef_core::layout::{Extent, ExtentFlags, Layout};
use linux_abi::{
    fsmap::{Owned, owned},
    xfs::{Features, geometry},
};
use rustix::time::{ClockId, clock_gettime};
use units::{Bytes, FileOffset, FileRange, PhysOffset};

use crate::{Filesystem, inodes::Expected};

/// Of more extents (some 200 MiB here) there is no answer.
const MOST: usize = 4 << 20;

/// All extents of all files.
#[derive(Debug)]
pub(crate) struct OwnedExtents {
    /// By their files, and in these by their places; what is no data comes last.
    extents: Vec<Owned>,
    block_size: Bytes,
    /// When the look began.
    began: WallClock,
}

/// What the wall clock said.
#[derive(Clone, Copy, Debug)]
struct WallClock {
    /// Seconds since 1970.
    seconds: i64,
    /// Milliseconds by which it was ahead of a clock that nobody sets.
    ahead_ms: i64,
}

impl WallClock {
    fn now() -> Self {
        let [wall, steady] = [ClockId::Realtime, ClockId::Boottime].map(clock_gettime);
        let ms = (wall.tv_nsec - steady.tv_nsec) / 1_000_000;
        Self {
            seconds: wall.tv_sec,
            ahead_ms: (wall.tv_sec - steady.tv_sec) * 1000 + ms,
        }
    }

    /// Whether somebody has set it since then. Both clocks run alike, so that a slower or faster one shows nothing.
    fn is_set_since(self, then: Self) -> bool {
        self.ahead_ms.abs_diff(then.ahead_ms) >= 500
    }
}

impl OwnedExtents {
    /// Those of the file system that `file` is on; `None` where it does not tell.
    pub(crate) fn read(fs: &Filesystem, file: impl AsFd) -> Option<Self> {
        let has_owners = geometry(&file).ok()?.features.contains(Features::RMAPBT);
        if !has_owners {
            return None;
        }
        let began = WallClock::now();
        let mut extents = Vec::new();
        owned(&file, fs.dev, |it| {
            extents.push(it);
            extents.len() <= MOST
        })
        .ok()?;
        extents.sort_unstable_by_key(|it| (it.inode, it.data.unwrap_or(u64::MAX)));
        (1..=MOST).contains(&extents.len()).then_some(Self {
            extents,
            block_size: fs.block_size,
            began,
        })
    }

    /// The layout of a regular file, up to its size, if all of it is known.
    pub(crate) fn layout(&self, expected: &Expected) -> Option<Layout> {
        let from = (self.extents).partition_point(|it| it.inode < expected.inode);
        let behind = self.extents[from..].partition_point(|it| it.inode == expected.inode);
        let own = &self.extents[from..from + behind];
        let allocated: u64 = own.iter().map(|it| it.len).sum();
        let is_older =
            expected.ctime.0 < self.began.seconds - 1 && !WallClock::now().is_set_since(self.began);
        if allocated != expected.allocated.get() || !is_older {
            return None;
        }
        let end = FileOffset(expected.size.get()).align_up(self.block_size);
        let inside = FileRange::between(FileOffset(0), end);
        let extents: Vec<_> = own.iter().filter_map(extent).collect();
        let in_order = extents.is_sorted_by(|one, next| one.file_end() <= next.file);
        let extents = extents.into_iter().filter_map(|it| it.clip(inside));
        in_order.then(|| Layout::new(extents.collect()))
    }
}

/// The extent, if it is of data.
fn extent(owned: &Owned) -> Option<Extent> {
    let mut flags = ExtentFlags::empty();
    flags.set(ExtentFlags::UNWRITTEN, !owned.is_written);
    flags.set(ExtentFlags::SHARED, owned.is_shared);
    Some(Extent {
        file: FileOffset(owned.data?),
        phys: PhysOffset(owned.start),
        len: Bytes(owned.len),
        flags,
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::MetadataExt};

    use rustix::fs::{FallocateFlags, XattrFlags, fallocate, ioctl_ficlone, setxattr};
    use scratch_fs::{FragmentOptions, ScratchFs, fragment, require};

    use super::*;
    use crate::{Mapper, detect, map};

    fn expected(status: &fs::Metadata) -> Expected {
        Expected {
            inode: status.ino(),
            size: Bytes(status.size()),
            allocated: Bytes(status.blocks() * 512),
            ctime: (status.ctime(), status.ctime_nsec() as u32),
        }
    }

    /// Whether another file has some of it.
    fn shared(layout: &Layout) -> bool {
        let mut extents = layout.extents().iter();
        extents.any(|it| it.flags.contains(ExtentFlags::SHARED))
    }

    /// A file that is changed after the clock was set back looks older than the look.
    #[test]
    fn nothing_is_believed_once_the_clock_was_set() {
        let extent = Owned {
            start: 8192,
            len: 4096,
            inode: 7,
            data: Some(0),
            is_written: true,
            is_shared: false,
        };
        let began = WallClock::now();
        let known_since = |began| OwnedExtents {
            extents: vec![extent],
            block_size: Bytes(4096),
            began,
        };
        let old = Expected {
            inode: 7,
            size: Bytes(4096),
            allocated: Bytes(4096),
            ctime: (began.seconds - 3, 0),
        };
        assert!(known_since(began).layout(&old).is_some());
        for set_by in [-3_600_000, 1000] {
            let began = WallClock {
                ahead_ms: began.ahead_ms - set_by,
                ..began
            };
            assert_eq!(known_since(began).layout(&old), None, "{set_by}");
        }
    }

    #[test]
    fn loop_the_owners_of_space_have_what_their_maps_say() {
        let made =
            ScratchFs::builder("xfs", Bytes::mib(512)).mkfs_args(["-m", "rmapbt=1,reflink=1"]);
        let Some(scratch) = require(made.build()) else {
            return;
        };
        let path = |name: &str| scratch.path().join(name);
        for (name, blocks) in [("some", 8), ("many", 400)] {
            let options = FragmentOptions {
                size: Bytes(blocks * 4096),
                piece: Bytes::kib(4),
                seed: 1,
            };
            fragment(&path(name), options).unwrap();
        }
        fs::write(path("one"), [1; 50_000]).unwrap();
        fs::write(path("attributes"), [1; 9000]).unwrap();
        let value = [b'v'; 3000];
        setxattr(path("attributes"), "user.long", &value, XattrFlags::empty()).unwrap();
        let sparse = fs::File::create(path("sparse")).unwrap();
        fallocate(&sparse, FallocateFlags::empty(), 0, 8192).unwrap();
        fallocate(&sparse, FallocateFlags::empty(), 65_536, 8192).unwrap();
        // Blocks past the end are not in a layout.
        fallocate(&sparse, FallocateFlags::KEEP_SIZE, 131_072, 65_536).unwrap();
        let copy = fs::File::create(path("copy")).unwrap();
        ioctl_ficlone(&copy, fs::File::open(path("one")).unwrap()).unwrap();
        drop((sparse, copy));
        scratch.sync().unwrap();

        let root = fs::File::open(scratch.path()).unwrap();
        let fs = detect(&root, scratch.path()).unwrap();
        let owners = OwnedExtents::read(&fs, &root).expect("root may");
        // How long all of this takes says nothing about a file.
        let changed = |status: &fs::Metadata, before: i64| Expected {
            ctime: (owners.began.seconds - before, 0),
            ..expected(status)
        };
        for name in ["some", "many", "one", "attributes", "sparse", "copy"] {
            let file = fs::File::open(path(name)).unwrap();
            let status = file.metadata().unwrap();
            let old = changed(&status, 2);
            let whole = FileRange::new(0, status.size()).align_outward(Bytes(4096));
            let mapped = map(&file, &path(name), whole, false, &mut Mapper::default()).unwrap();
            let known = owners.layout(&old);
            let known = known.unwrap_or_else(|| panic!("{name} is not known"));
            assert_eq!(known.extents(), mapped.extents(), "{name}");
            assert_eq!(shared(&known), ["one", "copy"].contains(&name), "{name}");
            let other = Expected {
                allocated: old.allocated + Bytes::kib(4),
                ..old
            };
            assert_eq!(owners.layout(&other), None, "{name}");
            let new = changed(&status, 1);
            assert_eq!(owners.layout(&new), None, "{name} is too new");
        }
    }
}
