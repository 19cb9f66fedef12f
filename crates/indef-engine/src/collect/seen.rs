//! The options of a walk, and the findings that it hands over.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use indef_core::{
    layout::{HeldExtent, Layout},
    plan::{BirthTime, split_at_root},
};
use indef_fs::{Filesystem, Refusal, TargetId};
use units::Bytes;

use super::{listed::Listed, select::Select};

/// How to walk.
#[derive(Clone, Debug)]
pub struct CollectOptions {
    /// Threads that walk; 0 for one on each CPU, at most 16.
    pub jobs: usize,
    /// Write dirty data back before mapping, so that every byte has a place. Costs I/O; a scan can
    /// do without.
    pub sync: bool,
    /// Tell the places of all data. A walk is faster without those of contiguous files on XFS.
    pub places: bool,
    /// Tell the places of files of one block, too.
    pub blocks: bool,
    /// Nearly all files of the file system are going to be seen: what tells the places of all of them is worth it.
    pub most: bool,
    /// Tell the extents that files hold and reach only in part, where that can be told.
    pub held: bool,
    /// Map each file by the kernel, also where the file system's metadata tells of many at once.
    pub open_all: bool,
    /// Stay on the file systems of the given paths. Otherwise mount points are entered, but never
    /// those of pseudo file systems like `/proc`.
    pub one_file_system: bool,
    /// Entries to leave out.
    pub select: Select,
    /// Look at these regular files alone, of their file system.
    pub listed: Option<Listed>,
}

impl Default for CollectOptions {
    fn default() -> Self {
        Self {
            jobs: 0,
            sync: false,
            places: true,
            blocks: false,
            most: false,
            held: false,
            open_all: false,
            one_file_system: true,
            select: Select::default(),
            listed: None,
        }
    }
}

/// A regular file, with the place of its data.
#[derive(Debug)]
pub struct FoundFile {
    /// Its path, beginning with the path that was given (with a given symbolic link resolved, so
    /// that the path leads to the file itself).
    pub path: PathBuf,
    /// How many bytes of the path are the directory that was given, or that of a file that was.
    pub root_len: usize,
    /// The identity of the file.
    pub id: TargetId,
    /// Birth time, where that was asked for and its file system knows it.
    pub born: Option<BirthTime>,
    /// Its size.
    pub size: Bytes,
    /// Allocated bytes, metadata of the file included where the file system counts it.
    pub allocated: Bytes,
    /// Block size of its file system.
    pub block_size: Bytes,
    /// Its file system.
    pub fs: Arc<Filesystem>,
    /// Whether the layout was asked for. It was not where the file has at most one block, or where its file
    /// system counts one extent, so that it is not fragmented; the layout then has at most one extent,
    /// without a place.
    pub mapped: bool,
    /// The extents that it holds and reaches only in part, as far as it is written back; `None` where
    /// that was not asked for, or cannot be told. Where there are any, the layout was asked for.
    pub held: Option<Vec<HeldExtent>>,
    /// Where the data up to its size lies, or why that is not known.
    pub result: Result<Layout, Refusal>,
}

impl FoundFile {
    /// Its path in two parts: the root, and the path beneath it.
    #[must_use]
    pub fn place(&self) -> Option<(&Path, &Path)> {
        split_at_root(&self.path, self.root_len)
    }
}

/// Something that could not be looked into: a directory, or a path that was given.
#[derive(Debug)]
pub struct WalkProblem {
    /// Its path.
    pub path: PathBuf,
    /// Why.
    pub refusal: Refusal,
}

/// A thing that a walk sees.
#[derive(Debug)]
pub enum Seen {
    /// A regular file.
    File(FoundFile),
    /// A directory or given path that is left out.
    Problem(WalkProblem),
}

/// The numbers of entries that a walk left out as it was told to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Excluded {
    /// Files that a glob matches.
    pub files: u64,
    /// Directories that a glob matches; nothing is known of what lies in them.
    pub directories: u64,
    /// Files smaller than wanted.
    pub small: u64,
}

/// The numbers of things that a walk saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectSummary {
    /// Regular files handed to the visitor.
    pub files: u64,
    /// Directories read.
    pub directories: u64,
    /// Further names of files that were handed over already.
    pub hard_links: u64,
    /// Entries that are neither files nor directories.
    pub others: u64,
    /// Directories and files that were left out because they lie on another file system.
    pub other_file_systems: u64,
    /// Entries that [`CollectOptions::select`] left out.
    pub excluded: Excluded,
    /// Entries that vanished between being listed and being looked at.
    pub vanished: u64,
    /// Problems handed to the visitor, but for a `lost+found` that only root may read, and paths that are too long.
    pub problems: u64,
    /// Whether the walk was cancelled: the rest of the numbers are then of a part.
    pub cancelled: bool,
}
