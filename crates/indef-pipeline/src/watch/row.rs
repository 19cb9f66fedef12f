//! A snapshot: a row for each hot fragmented range, and sums over all ranges.

use std::{cmp::Ordering, path::Path, sync::Arc, time::Duration};

use indef_core::{SkipReason, layout::Extent};
use indef_fs::TargetId;
use units::Bytes;

use super::ranges::RangeKey;
use crate::rate_error::RateError;

/// A hot fragmented range. Counts are rates per second where they are live, else sums.
#[derive(Clone, Debug)]
pub struct RangeRow {
    /// The range.
    pub key: RangeKey,
    /// Its file.
    pub path: Arc<Path>,
    /// The present identity of the file: device numbers may differ from those of a profile.
    pub id: TargetId,
    /// Reads of it.
    pub reads: f64,
    /// Fragments in it.
    pub dolf: u64,
    /// Fragments that a repair would remove from a read.
    pub extra: u64,
    /// Requests of a read on average, if they were counted.
    pub requests_per_read: Option<f64>,
    /// Mean device time of a read, if any was timed.
    pub mean_ns: Option<f64>,
    /// Device time that fragments cost.
    pub lost: Lost,
    /// Bytes that a repair writes at most.
    pub cost: Bytes,
    /// The reason for which it cannot be repaired, if it cannot.
    pub skip: Option<SkipReason>,
}

/// Device time that the fragments of a range cost, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lost {
    /// From the times of its reads.
    Timed(f64),
    /// From the times of other reads.
    Estimated(f64),
    /// Nothing was timed.
    Unknown,
}

impl Lost {
    /// The number, if there is one.
    #[must_use]
    pub fn ns(self) -> Option<f64> {
        match self {
            Self::Timed(ns) | Self::Estimated(ns) => Some(ns),
            Self::Unknown => None,
        }
    }
}

impl RangeRow {
    /// Excess fragments that were read, which is the rank where nothing was timed.
    #[must_use]
    pub fn extra_reads(&self) -> f64 {
        self.reads * self.extra as f64
    }
}

/// The order of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortBy {
    /// Device time lost.
    #[default]
    Lost,
    /// Reads.
    Reads,
    /// Fragments.
    Dolf,
    /// Requests of a read.
    Requests,
    /// Mean time of a read.
    Time,
    /// Length.
    Size,
    /// Path and place.
    Path,
}

impl SortBy {
    /// All orders, in the order of the columns.
    pub const ALL: [Self; 7] = [
        Self::Lost,
        Self::Reads,
        Self::Dolf,
        Self::Requests,
        Self::Time,
        Self::Size,
        Self::Path,
    ];

    /// The next column to the right, or the first one again.
    #[must_use]
    pub fn next(self) -> Self {
        let at = Self::ALL.iter().position(|by| *by == self).unwrap_or(0);
        Self::ALL[(at + 1) % Self::ALL.len()]
    }

    /// Largest first; paths alphabetically. Equal rows are ordered by place, so that rows do not
    /// change places at random.
    #[must_use]
    pub fn order(self, a: &RangeRow, b: &RangeRow) -> Ordering {
        let larger = |a: Option<f64>, b: Option<f64>| {
            b.unwrap_or(f64::NEG_INFINITY)
                .total_cmp(&a.unwrap_or(f64::NEG_INFINITY))
        };
        let order = match self {
            Self::Lost => larger(a.lost.ns(), b.lost.ns())
                .then_with(|| b.extra_reads().total_cmp(&a.extra_reads())),
            Self::Reads => b.reads.total_cmp(&a.reads),
            Self::Dolf => b.dolf.cmp(&a.dolf),
            Self::Requests => larger(a.requests_per_read, b.requests_per_read),
            Self::Time => larger(a.mean_ns, b.mean_ns),
            Self::Size => b.key.range.len.cmp(&a.key.range.len),
            Self::Path => Ordering::Equal,
        };
        order
            .then_with(|| a.path.cmp(&b.path))
            .then_with(|| a.key.cmp(&b.key))
    }
}

/// All hot ranges at one time.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Fragmented ranges, the most costly ones first.
    pub rows: Vec<RangeRow>,
    /// The number of fragmented ranges; not all may be in `rows`.
    pub fragmented: u64,
    /// Hot ranges that are watched.
    pub ranges: u64,
    /// Those of them that were not examined yet.
    pub waiting: u64,
    /// Those of them that cannot be examined: gone, replaced, without a name, not permitted, or not
    /// below the requested paths.
    pub out_of_reach: u64,
    /// Whether counts are rates.
    pub live: bool,
    /// Whether any read was timed.
    pub timed: bool,
    /// Total reads: per second if live, else the sum.
    pub reads: f64,
    /// Bytes read, likewise.
    pub read: f64,
    /// How exact the rates are; `None` where they are none.
    pub error: Option<RateError>,
    /// Events lost.
    pub lost: u64,
    /// Time since the beginning.
    pub elapsed: Duration,
    /// Extents of the selected range, if its file can be reached.
    pub details: Option<(RangeKey, Option<Vec<Extent>>)>,
}
