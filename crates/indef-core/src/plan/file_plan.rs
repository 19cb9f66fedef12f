//! The plan of one file, and the sums over many.

use std::{path::PathBuf, sync::Arc};

use units::{Bytes, FileRange};

use super::Chunk;
use crate::SkipReason;

/// When a file came into being. A file that gets the inode number of a deleted one has another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BirthTime {
    /// Seconds since 1970.
    pub seconds: i64,
    /// And nanoseconds.
    pub nanos: u32,
}

/// What is to be done with one file.
#[derive(Clone, Debug, PartialEq)]
pub struct FilePlan {
    /// Where it was found.
    pub path: PathBuf,
    /// Device number (`st_dev`): with the inode it tells whether the path still means this file.
    pub dev: u64,
    /// Inode number.
    pub inode: u64,
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
    /// Why the whole file is left alone, if it is.
    pub skip: Option<SkipReason>,
    /// The chunks, ordered and disjoint.
    pub chunks: Vec<Chunk>,
}

impl FilePlan {
    /// The chunks that migrate; none if the whole file is skipped.
    pub fn migrating(&self) -> impl Iterator<Item = &Chunk> {
        let skipped = self.skip.is_some();
        self.chunks
            .iter()
            .filter(move |chunk| !skipped && chunk.migrates())
    }

    /// The ranges to relocate: migrating chunks, neighbours joined, each of which shall become
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

    /// IODP that running the plan takes away.
    #[must_use]
    pub fn gain(&self) -> f64 {
        self.migrating().map(|chunk| chunk.gain).sum()
    }
}

/// Sums over the files of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PlanTotals {
    /// Files looked at.
    pub files: u64,
    /// Files of which something moves.
    pub files_to_move: u64,
    /// Chunks decided on.
    pub chunks: u64,
    /// Chunks that move.
    pub chunks_to_move: u64,
    /// Bytes that will be written.
    pub cost: Bytes,
    /// IODP that goes away.
    pub gain: f64,
    /// IODP that would go away if every fragmented chunk moved.
    pub total_gain: f64,
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
        self.gain += file.gain();
        self.total_gain += file.chunks.iter().map(|chunk| chunk.gain).sum::<f64>();
    }
}
