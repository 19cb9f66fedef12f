//! The values that a store takes and gives.

use std::time::{Duration, SystemTime};

use indef_core::access::AccessRange;
use units::Bytes;

use crate::tally::TracedFile;

/// How a store behaves. An option that is `None` stays as it is in an existing store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreOptions {
    /// After this time, an access counts half; zero: heat never decays. A new store gets
    /// [`DEFAULT_HALF_LIFE`].
    pub half_life: Option<Duration>,
    /// The file never grows beyond this; at least [`SMALLEST`]. A new store gets
    /// [`DEFAULT_MAX_SIZE`].
    pub max_size: Option<Bytes>,
}

/// Half-life of a new store: a week, so that ranges that are read on workdays outlive the weekend.
pub const DEFAULT_HALF_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);

/// Largest size of a new store: over three million ranges, at 80 bytes for a range whose times decay
/// (`a_range_with_times_takes_about_80_bytes`).
pub const DEFAULT_MAX_SIZE: Bytes = Bytes::mib(256);

/// The smallest [`StoreOptions::max_size`]; smaller ones are raised to it.
pub const SMALLEST: Bytes = Bytes::kib(256);

/// Where accesses were seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionInfo {
    /// The layer, by name: `fs`, `syscall`, or where an import came from.
    pub layer: String,
    /// The command that was traced, for people.
    pub command: String,
    /// Release of the kernel that it ran on.
    pub kernel: String,
}

/// A session's number in its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub i64);

/// A session that a store remembers.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    /// Its number.
    pub id: SessionId,
    /// Its layer, command and kernel.
    pub info: SessionInfo,
    /// When it began.
    pub began: SystemTime,
    /// When it last added something.
    pub latest: SystemTime,
    /// When it ended; `None` while it runs, or if it was killed.
    pub ended: Option<SystemTime>,
    /// Reads that it added, as they were counted then.
    pub reads: u64,
    /// Writes that it added, likewise.
    pub writes: u64,
    /// Events that it knows it missed.
    pub lost: u64,
    /// One in so many accesses was counted, as a mean over the accesses, and `reads` and `writes`
    /// are estimates; 1 if every one was.
    pub one_in: f64,
    /// The part of the relative standard error that all its counts share, because one choice covered many
    /// accesses: it changes no ranking. `None`: a store of version 3 did not keep it.
    pub common_error: Option<f64>,
}

/// The contents of a store at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heat {
    /// Every file that has ranges.
    pub files: Vec<TracedFile>,
    /// Each range with the index of its file; by file, then start, then length. Counts are rounded,
    /// and none has neither reads nor writes.
    pub ranges: Vec<(u32, AccessRange)>,
}
