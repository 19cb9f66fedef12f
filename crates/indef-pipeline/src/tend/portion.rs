//! What a trace or a portion of moves has done.

use std::{collections::BTreeMap, time::Duration};

use indef_core::SkipReason;
use units::{Bytes, Nanos};

/// What a trace has shown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traced {
    /// Reads that it counted.
    pub reads: u64,
    /// Mean device time of a read, where some were timed.
    pub read_time: Option<Nanos>,
    /// Requests for a read, where they were counted.
    pub requests_per_read: Option<f64>,
}

/// The size of a portion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortionLimit {
    /// Bytes that it may write.
    pub bytes: Bytes,
    /// The time that it may take.
    pub time: Duration,
}

/// How a portion ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum PortionEnd {
    /// Nothing is left to be moved.
    #[default]
    Done,
    /// More is left.
    More,
    /// The next range writes so many bytes in one go, more than the portion had.
    TooSmall(Bytes),
    /// Another run works on the file system.
    Claimed(String),
}

/// What a portion has done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Portion {
    /// How it ended.
    pub end: PortionEnd,
    /// Bytes that were written, or may have been.
    pub written: Bytes,
    /// Bytes that have new blocks.
    pub relocated: Bytes,
    /// Files that came to their end with something moved.
    pub files_moved: u64,
    /// Errors of files.
    pub failed: Vec<String>,
    /// Files of which nothing was moved, by reason.
    pub skipped: BTreeMap<SkipReason, u64>,
    /// Extents that the moved files have less.
    pub extents_removed: u64,
    /// Extents that they have now.
    pub extents_left: u64,
    /// The longest time for which a step held a file's locks.
    pub longest_step: Nanos,
    /// Steps beyond the longest stall.
    pub stalls: u64,
}
