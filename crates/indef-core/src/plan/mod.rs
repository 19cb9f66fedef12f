//! A plan: every chunk with its decision, its reason, its cost and its gain.

use serde::{Deserialize, Serialize};
use units::{Bytes, FileRange};

use crate::SkipReason;

/// What a plan decided about a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Give it new, contiguous blocks.
    Migrate,
    /// Leave it, because.
    Skip(SkipReason),
}

/// One access range that a plan decided on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chunk {
    /// The bytes of the file, block-aligned.
    pub range: FileRange,
    /// Reads in the profile (1 where the policy works without one).
    pub reads: u64,
    /// Writes in the profile.
    pub writes: u64,
    /// Degree of logical fragmentation: fragments inside the range.
    pub dolf: u64,
    /// Degree of physical fragmentation (eq. 1); 0 where the geometry is unknown.
    pub dopf: f64,
    /// Priority (eq. 2).
    pub iodp: f64,
    /// Migrate or skip.
    pub decision: Decision,
    /// Bytes that migrating writes: the allocated, written bytes of the range.
    pub cost: Bytes,
    /// IODP that migrating takes away: priority now less priority of the ideal layout.
    pub gain: f64,
}

/// Which ranges are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// IODP with truncation (InDeF).
    Indef,
    /// The hottest share, then a fragmentation check (FragPicker).
    Fragpicker,
    /// Every fragmented file as a whole (the conventional tools).
    Whole,
    /// Read-ahead sized ranges from offset 0, without a profile (FragPicker's bypass).
    Sequential,
}
