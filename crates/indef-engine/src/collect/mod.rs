//! Walk directories in parallel and map every file that could be fragmented.
//!
//! Speed comes from what is *not* done: no path is resolved (everything is found relative to its
//! directory), a file with at most one block is never opened, on ext4 (where its device may be read)
//! one with at most four extents neither, and most others cost seven system calls (`statx`; `openat`,
//! `statx` and `close` to be sure of the file without opening it; `openat`, one FIEMAP, `close`). Memory stays small because nothing is remembered
//! of a file: what is found goes to the visitor by value. Only hard links (files with more than one
//! name) leave a trace, so that each is counted once.
//!
//! The walk keeps to the file systems of the paths that it was given, follows no symbolic link
//! except one named itself, and opens only directories, regular files and the device of an ext4. Entries
//! that vanish during the walk are counted and otherwise ignored; what cannot be read is reported,
//! and the walk goes on.

mod directory;
mod entry;
mod names;
mod queue;
mod root;
mod walker;

#[cfg(test)]
mod tests;

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use indef_core::{
    layout::Layout,
    plan::{BirthTime, split_at_root},
};
use indef_fs::{Filesystem, Refusal, Roots, TargetId};
use units::Bytes;

use crate::Cancel;

/// How to walk.
#[derive(Clone, Copy, Debug)]
pub struct CollectOptions {
    /// Threads that walk; 0 for one on each CPU, at most 16.
    pub jobs: usize,
    /// Write dirty data back before mapping, so that every byte has a place. Costs I/O; a scan can
    /// do without.
    pub sync: bool,
    /// Stay on the file systems of the given paths. Otherwise mount points are entered, but never
    /// those of pseudo file systems like `/proc`.
    pub one_file_system: bool,
}

impl Default for CollectOptions {
    fn default() -> Self {
        Self {
            jobs: 0,
            sync: false,
            one_file_system: true,
        }
    }
}

/// A regular file, with where its data lies.
#[derive(Debug)]
pub struct Found {
    /// Its path, beginning with the path that was given (with a given symbolic link resolved, so
    /// that the path leads to the file itself).
    pub path: PathBuf,
    /// How many bytes of the path are the directory that was given, or that of a file that was.
    pub root_len: usize,
    /// Which file.
    pub id: TargetId,
    /// When it came into being, where that was asked for and its file system knows.
    pub born: Option<BirthTime>,
    /// Its size.
    pub size: Bytes,
    /// Allocated bytes, metadata of the file included where the file system counts it.
    pub allocated: Bytes,
    /// Block size of its file system.
    pub block_size: Bytes,
    /// Its file system.
    pub fs: Arc<Filesystem>,
    /// Whether the layout was asked for. It was not where the file has at most one block and so
    /// cannot be fragmented; the layout then has at most one extent, without a place.
    pub mapped: bool,
    /// Where the data up to its size lies, or why that is not known.
    pub result: Result<Layout, Refusal>,
}

impl Found {
    /// Its path in two parts: the root, and what is beneath it.
    #[must_use]
    pub fn place(&self) -> Option<(&Path, &Path)> {
        split_at_root(&self.path, self.root_len)
    }
}

/// Something that could not be looked into: a directory, or a path that was given.
#[derive(Debug)]
pub struct Problem {
    /// Which.
    pub path: PathBuf,
    /// Why.
    pub refusal: Refusal,
}

/// What a walk sees.
#[derive(Debug)]
pub enum Seen {
    /// A regular file.
    File(Found),
    /// A directory or given path that is left out.
    Problem(Problem),
}

/// What a walk saw, in numbers.
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
    /// Entries that vanished between being listed and being looked at.
    pub vanished: u64,
    /// Problems handed to the visitor.
    pub problems: u64,
    /// Whether the walk was cancelled: the rest of the numbers are then of a part.
    pub cancelled: bool,
}

/// Walk `paths` (files and directories) and hand everything to `visit`, which is called from many
/// threads at once, in no particular order.
pub fn collect(
    paths: &[PathBuf],
    options: &CollectOptions,
    cancel: &Cancel,
    visit: &(dyn Fn(Seen) + Sync),
) -> CollectSummary {
    collect_beneath(&Roots::new(), paths, options, cancel, visit)
}

/// The same, keeping the directories that `paths` lead to in `roots`: a run that is given them
/// resolves no given path again.
pub fn collect_beneath(
    roots: &Roots,
    paths: &[PathBuf],
    options: &CollectOptions,
    cancel: &Cancel,
    visit: &(dyn Fn(Seen) + Sync),
) -> CollectSummary {
    let jobs = match options.jobs {
        0 => std::thread::available_parallelism().map_or(1, |n| n.get().min(16)),
        jobs => jobs,
    };
    let walk = walker::Walk::new(roots, paths, options, cancel, visit, jobs);
    std::thread::scope(|scope| {
        for _ in 1..jobs {
            scope.spawn(|| walker::Walker::new(&walk).work());
        }
        walker::Walker::new(&walk).work();
    });
    walk.counts.summary(cancel.is_cancelled())
}

#[derive(Default)]
struct Counts {
    files: AtomicU64,
    directories: AtomicU64,
    hard_links: AtomicU64,
    others: AtomicU64,
    other_file_systems: AtomicU64,
    vanished: AtomicU64,
    problems: AtomicU64,
}

impl Counts {
    fn summary(&self, cancelled: bool) -> CollectSummary {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        CollectSummary {
            files: get(&self.files),
            directories: get(&self.directories),
            hard_links: get(&self.hard_links),
            others: get(&self.others),
            other_file_systems: get(&self.other_file_systems),
            vanished: get(&self.vanished),
            problems: get(&self.problems),
            cancelled,
        }
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
