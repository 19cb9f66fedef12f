//! The properties of a file that must not change, recorded before and compared afterwards.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::Read,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use indef_core::layout::{ExtentFlags, Layout};
use indef_fs::{Mapper, map};
use rustix::fs::OFlags;
use sha2::{Digest, Sha256};
use units::FileRange;

/// The recorded properties of a file.
#[derive(Clone, Debug)]
pub(crate) struct State {
    path: PathBuf,
    hash: Vec<u8>,
    size: u64,
    mode: (u32, u32, u32),
    links: u64,
    times: [(i64, i64); 3],
    xattrs: BTreeMap<String, Vec<u8>>,
    /// Allocated at all, unwritten, shared, compressed: the ranges of each kind.
    ranges: [(&'static str, Vec<FileRange>); 4],
    pub(crate) fragments: u64,
    pub(crate) layout: Layout,
}

/// Open without touching the access time.
pub(crate) fn open(path: &Path) -> File {
    OpenOptions::new()
        .read(true)
        .custom_flags((OFlags::NOATIME | OFlags::NOFOLLOW).bits() as i32)
        .open(path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// SHA-256 of a file's contents; holes of a huge file are passed over (they are compared by range).
pub(crate) fn hash(file: &File, layout: &Layout) -> Vec<u8> {
    let mut digest = Sha256::new();
    let huge = file.metadata().unwrap().len() > 4 << 30;
    if huge {
        use std::os::unix::fs::FileExt;
        for extent in layout.extents() {
            let mut bytes = vec![0; extent.len.get() as usize];
            let read = file.read_at(&mut bytes, extent.file.get()).unwrap();
            digest.update(&bytes[..read]);
        }
    } else {
        let mut bytes = vec![0; 1 << 20];
        let mut file = file;
        loop {
            match file.read(&mut bytes).unwrap() {
                0 => break,
                count => digest.update(&bytes[..count]),
            }
        }
    }
    digest.finalize().to_vec()
}

impl State {
    pub(crate) fn of(path: &Path) -> Self {
        let file = open(path);
        let mut mapper = Mapper::default();
        let whole = FileRange::new(0, u64::MAX);
        let layout = map(&file, path, whole, true, &mut mapper).unwrap();
        let meta = file.metadata().unwrap();
        Self {
            path: path.to_owned(),
            hash: hash(&file, &layout),
            size: meta.len(),
            mode: (meta.mode(), meta.uid(), meta.gid()),
            links: meta.nlink(),
            times: [
                (meta.atime(), meta.atime_nsec()),
                (meta.mtime(), meta.mtime_nsec()),
                (meta.ctime(), meta.ctime_nsec()),
            ],
            xattrs: xattrs(&file),
            ranges: [
                ("allocated", ranges(&layout, ExtentFlags::empty())),
                ("unwritten", ranges(&layout, ExtentFlags::UNWRITTEN)),
                ("shared", ranges(&layout, ExtentFlags::SHARED)),
                ("compressed", ranges(&layout, ExtentFlags::ENCODED)),
            ],
            fragments: layout.fragments(),
            layout,
        }
    }

    /// Compare with the present state of the file; returns the present state.
    #[track_caller]
    pub(crate) fn check(&self) -> Self {
        let mut now = Self::of(&self.path);
        // XFS frees the blocks of a deleted donor in the background; until then they are shared.
        for _ in 0..400 {
            if now.ranges[2] == self.ranges[2] {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
            now = Self::of(&self.path);
        }
        let path = self.path.display();
        assert_eq!(now.hash, self.hash, "{path}: contents");
        assert_eq!(now.size, self.size, "{path}: size");
        assert_eq!(now.mode, self.mode, "{path}: mode, owner, group");
        assert_eq!(now.links, self.links, "{path}: links");
        assert_eq!(now.times, self.times, "{path}: atime, mtime, ctime");
        assert_eq!(now.xattrs, self.xattrs, "{path}: extended attributes");
        assert_eq!(now.ranges, self.ranges, "{path}: kinds of ranges");
        assert!(
            now.fragments <= self.fragments,
            "{path}: {} fragments, {} before",
            now.fragments,
            self.fragments
        );
        now
    }

    /// Compare the contents alone, as a reader has them now.
    #[track_caller]
    pub(crate) fn check_contents(&self) {
        let now = hash(&open(&self.path), &self.layout);
        assert_eq!(now, self.hash, "{}: contents", self.path.display());
    }

    /// As [`Self::check`], but sharing was given up on purpose.
    #[track_caller]
    pub(crate) fn check_unshared(mut self) -> Self {
        self.ranges[2].1.clear();
        self.check()
    }
}

/// Ranges that have all of `flags`, neighbours joined.
fn ranges(layout: &Layout, flags: ExtentFlags) -> Vec<FileRange> {
    let mut ranges: Vec<FileRange> = Vec::new();
    for extent in layout.extents().iter().filter(|e| e.flags.contains(flags)) {
        match ranges.last_mut() {
            Some(last) if last.end() == extent.file => last.len += extent.len,
            _ => ranges.push(extent.range()),
        }
    }
    ranges
}

fn xattrs(file: &File) -> BTreeMap<String, Vec<u8>> {
    let mut names = vec![0; 64 << 10];
    let length = rustix::fs::flistxattr(file, &mut names[..]).unwrap();
    names[..length]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| {
            let mut value = vec![0; 64 << 10];
            let length = rustix::fs::fgetxattr(file, name, &mut value[..]).unwrap();
            value.truncate(length);
            (String::from_utf8_lossy(name).into_owned(), value)
        })
        .collect()
}
