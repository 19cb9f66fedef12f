//! The plan of one file, and the sums over many.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use units::{Bytes, FileRange};

use super::Chunk;
use crate::SkipReason;

/// The time of a file's creation. A file that gets the inode number of a deleted one has another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BirthTime {
    /// Seconds since 1970.
    pub seconds: i64,
    /// And nanoseconds.
    pub nanos: u32,
}

/// The most files that are [named](FilePlan::named) with one. With more holders no engine moves a range.
pub const MOST_NAMED: usize = 256;

/// The plan of one file.
#[derive(Clone, Debug, PartialEq)]
pub struct FilePlan {
    /// The path at which it was found.
    pub path: PathBuf,
    /// Length in bytes of the *root* within the path: the given directory, which is resolved as it
    /// was typed. Beneath it, no symbolic link is followed. `None` in plans of format 1.
    pub root_len: Option<usize>,
    /// Device number (`st_dev`): with the inode it tells whether the path still means this file.
    pub dev: u64,
    /// Inode number.
    pub inode: u64,
    /// The time of the file's creation, where its file system knows it.
    pub born: Option<BirthTime>,
    /// Size when it was planned.
    pub size: Bytes,
    /// File system block size.
    pub block_size: Bytes,
    /// The file system's name. Shared, because a million plans hold the same few names.
    pub fs: Arc<str>,
    /// The engine that the plan was made for.
    pub engine: Option<Arc<str>>,
    /// Fragments of the whole file when it was planned.
    pub extents_before: u64,
    /// Inode numbers of other files that were named with this one and may share blocks with it, where the file system
    /// does not tell who does: at most [`MOST_NAMED`]. `None` where nobody named any.
    pub named: Option<Arc<[u64]>>,
    /// The reason for which the whole file is left alone, if it is.
    pub skip: Option<SkipReason>,
    /// The chunks, ordered and disjoint.
    pub chunks: Vec<Chunk>,
}

impl FilePlan {
    /// The path in two parts: the root, and the path beneath it. Where the root is not known, it
    /// is the part without which the rest cannot be resolved: `/`, or the beginning up to the last
    /// `..`.
    ///
    /// `None` if the path has no such root.
    #[must_use]
    pub fn place(&self) -> Option<(&Path, &Path)> {
        let len = self.root_len.unwrap_or_else(|| least_root(&self.path));
        split_at_root(&self.path, len)
    }

    /// The same plan with another path of the same root.
    #[must_use]
    pub fn with_root(&self, root: &Path) -> Option<Self> {
        let (_, below) = self.place()?;
        Some(Self {
            path: root.join(below),
            root_len: Some(root.as_os_str().len()),
            ..self.clone()
        })
    }

    /// The chunks that migrate; none if the whole file is skipped.
    pub fn migrating(&self) -> impl Iterator<Item = &Chunk> {
        let skipped = self.skip.is_some();
        self.chunks
            .iter()
            .filter(move |chunk| !skipped && chunk.migrates())
    }

    /// The ranges to relocate: migrating chunks, neighbours joined. Each is meant to become
    /// contiguous.
    #[must_use]
    pub fn runs(&self) -> Vec<FileRange> {
        let mut runs: Vec<FileRange> = Vec::new();
        for chunk in self.migrating() {
            match runs.last_mut() {
                Some(run) if run.end() == chunk.range.start => run.len += chunk.range.len,
                _ => runs.push(chunk.range),
            }
        }
        runs
    }

    /// Bytes that running the plan writes.
    #[must_use]
    pub fn cost(&self) -> Bytes {
        self.migrating().map(|chunk| chunk.cost).sum()
    }

    /// Metadata in its cost, which other files get that share what moves.
    #[must_use]
    pub fn metadata(&self) -> Bytes {
        self.migrating().map(Chunk::metadata).sum()
    }

    /// Other files that move along, at most at one place.
    #[must_use]
    pub fn holders(&self) -> u64 {
        let shared = self.migrating().filter_map(|chunk| chunk.shared);
        shared.map(|shared| shared.holders).max().unwrap_or(0)
    }

    /// IODP that each byte of data takes away. Files are moved in this order, and shared ones priced.
    #[must_use]
    pub fn gain_per_byte(&self) -> f64 {
        let data = self.cost().saturating_sub(self.metadata());
        self.gain() / data.get().max(1) as f64
    }

    /// IODP that running the plan removes.
    #[must_use]
    pub fn gain(&self) -> f64 {
        self.migrating().map(|chunk| chunk.gain).sum()
    }
}

/// A path in two parts: a root of `len` bytes, and the path beneath it. `None` if no directory
/// ends there.
#[must_use]
pub fn split_at_root(path: &Path, len: usize) -> Option<(&Path, &Path)> {
    let (root, below) = path.as_os_str().as_bytes().split_at_checked(len)?;
    let begins = below.iter().take_while(|byte| **byte == b'/').count();
    let apart = match root.last() {
        None => begins == 0,
        Some(last) => *last == b'/' || begins > 0,
    };
    let below = &below[begins..];
    let as_path = |bytes| Path::new(OsStr::from_bytes(bytes));
    (apart && !below.is_empty()).then(|| (as_path(root), as_path(below)))
}

/// Length of the shortest beginning of a path without which the rest has no meaning.
fn least_root(path: &Path) -> usize {
    let mut components = path.components();
    let whole = path.as_os_str().len();
    let mut len = 0;
    while let Some(part) = components.next() {
        if !matches!(part, Component::Normal(_)) {
            let rest = components.as_path().as_os_str().len();
            len = whole - rest;
        }
    }
    len
}

/// Sums over the files of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PlanTotals {
    /// Files looked at.
    pub files: u64,
    /// Files of which at least one chunk moves.
    pub files_to_move: u64,
    /// Chunks decided on.
    pub chunks: u64,
    /// Chunks that move.
    pub chunks_to_move: u64,
    /// Bytes that will be written.
    pub cost: Bytes,
    /// Metadata in that, which files get that share what moves, at most.
    pub metadata: Bytes,
    /// IODP that the plan removes.
    pub gain: f64,
    /// IODP that moving every fragmented chunk would remove.
    pub total_gain: f64,
    /// Reads of the chunks that move.
    pub reads_to_move: u64,
    /// Their IODP now.
    pub iodp_to_move: f64,
}

impl PlanTotals {
    /// The sums over `files`.
    #[must_use]
    pub fn of<'a>(files: impl IntoIterator<Item = &'a FilePlan>) -> Self {
        let mut totals = Self::default();
        for file in files {
            totals.add(file);
        }
        totals
    }

    /// Add one file.
    pub fn add(&mut self, file: &FilePlan) {
        let to_move = file.migrating().count() as u64;
        self.files += 1;
        self.files_to_move += u64::from(to_move > 0);
        self.chunks += file.chunks.len() as u64;
        self.chunks_to_move += to_move;
        self.cost = self.cost.saturating_add(file.cost());
        self.metadata = self.metadata.saturating_add(file.metadata());
        self.gain += file.gain();
        for chunk in file.migrating() {
            self.reads_to_move = self.reads_to_move.saturating_add(chunk.reads);
            self.iodp_to_move += chunk.iodp;
        }
        self.total_gain += file.chunks.iter().map(|chunk| chunk.gain).sum::<f64>();
    }
}
