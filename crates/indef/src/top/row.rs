//! What is shown: a row for each hot fragmented range, and what holds for all of them.

use std::{cmp::Ordering, path::Path, sync::Arc, time::Duration};

use indef_core::{SkipReason, layout::Extent};
use indef_fs::TargetId;
use units::Bytes;

use super::ranges::RangeKey;

/// A hot fragmented range. Counts are rates per second where they are live, else sums.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) key: RangeKey,
    pub(super) path: Arc<Path>,
    /// Which file it is now: device numbers may differ from those of a profile.
    pub(super) id: TargetId,
    pub(super) reads: f64,
    pub(super) dolf: u64,
    /// Fragments that a repair would take away from a read.
    pub(super) extra: u64,
    /// Requests that a read became, if they were counted.
    pub(super) requests_per_read: Option<f64>,
    /// Mean device time of a read, if any was timed.
    pub(super) mean_ns: Option<f64>,
    /// Device time that fragments cost.
    pub(super) lost: Lost,
    /// Bytes that a repair writes at most.
    pub(super) cost: Bytes,
    /// Why it cannot be repaired, if so.
    pub(super) skip: Option<SkipReason>,
}

/// Device time that the fragments of a range cost, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Lost {
    /// From the times of its reads.
    Timed(f64),
    /// From the times of other reads.
    Estimated(f64),
    /// Nothing was timed.
    Unknown,
}

impl Lost {
    pub(super) fn ns(self) -> Option<f64> {
        match self {
            Self::Timed(ns) | Self::Estimated(ns) => Some(ns),
            Self::Unknown => None,
        }
    }
}

impl Row {
    /// Fragments too many that were read, which is the rank where nothing was timed.
    pub(super) fn extra_reads(&self) -> f64 {
        self.reads * self.extra as f64
    }
}

/// By what rows are ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SortBy {
    #[default]
    Lost,
    Reads,
    Dolf,
    Requests,
    Time,
    Size,
    Path,
}

impl SortBy {
    /// In the order of the columns.
    pub(super) const ALL: [Self; 7] = [
        Self::Lost,
        Self::Reads,
        Self::Dolf,
        Self::Requests,
        Self::Time,
        Self::Size,
        Self::Path,
    ];

    /// The next column to the right, or the first one again.
    pub(super) fn next(self) -> Self {
        let at = Self::ALL.iter().position(|by| *by == self).unwrap_or(0);
        Self::ALL[(at + 1) % Self::ALL.len()]
    }

    /// Largest first; paths by the alphabet. What cannot be told apart is ordered by place, so that
    /// rows do not dance.
    pub(super) fn order(self, a: &Row, b: &Row) -> Ordering {
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

/// What there is to show at one time.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot {
    /// Fragmented ranges, the most costly ones first.
    pub(super) rows: Vec<Row>,
    /// How many there are; not all may be in `rows`.
    pub(super) fragmented: u64,
    /// Hot ranges that are watched.
    pub(super) ranges: u64,
    /// Those of them that were not looked at yet.
    pub(super) waiting: u64,
    /// Those of them that cannot be looked at: gone, replaced, without a name, not permitted, or
    /// not below the paths asked for.
    pub(super) out_of_reach: u64,
    /// Whether counts are rates.
    pub(super) live: bool,
    /// Whether any read was timed.
    pub(super) timed: bool,
    /// Reads in all: a second if live, else the sum.
    pub(super) reads: f64,
    /// Bytes read, likewise.
    pub(super) read: f64,
    /// Events lost.
    pub(super) lost: u64,
    /// Time since the beginning.
    pub(super) elapsed: Duration,
    /// Extents of the selected range, if its file can be reached.
    pub(super) details: Option<(RangeKey, Option<Vec<Extent>>)>,
}
