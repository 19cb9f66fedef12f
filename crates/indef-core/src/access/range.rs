//! Ranges with their counts: of one file, and of all.

use std::ops::AddAssign;

use units::{FileRange, Nanos};

/// A block-aligned file range with its counts, after read-ahead modelling and merging.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessRange {
    /// The bytes.
    pub range: FileRange,
    /// Number of reads that touched it.
    pub reads: u64,
    /// Number of writes that touched it.
    pub writes: u64,
    /// The cost of its reads, if it was observed.
    pub observed: Observed,
}

/// The cost of a range's reads on the device, where a collector observed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Requests that the device got for all reads of the range; 0 if they were not counted.
    pub requests: u64,
    /// Number of reads that were timed.
    pub timed: u64,
    /// Sum of the time from the first request of a timed read to the end of its last.
    pub time: Nanos,
    /// Sum over the timed reads of the requests that the device had in flight when they began; `None`
    /// where that was not counted for all of them.
    pub ahead: Option<u64>,
}

impl Observed {
    /// The mean number of requests that were in flight when a timed read began, where it is known.
    #[must_use]
    pub fn mean_ahead(&self) -> Option<f64> {
        let ahead = self.ahead.filter(|_| self.timed > 0)?;
        Some(ahead as f64 / self.timed as f64)
    }

    /// The mean time of a timed read in nanoseconds, if there is one.
    #[must_use]
    pub fn mean_ns(&self) -> Option<f64> {
        (self.timed > 0).then(|| self.time.0 as f64 / self.timed as f64)
    }
}

impl AddAssign for Observed {
    fn add_assign(&mut self, other: Self) {
        self.ahead = match (self.timed, other.timed) {
            (_, 0) => self.ahead,
            (0, _) => other.ahead,
            (..) => self
                .ahead
                .zip(other.ahead)
                .map(|(a, b)| a.saturating_add(b)),
        };
        self.requests = self.requests.saturating_add(other.requests);
        self.timed = self.timed.saturating_add(other.timed);
        self.time = Nanos(self.time.0.saturating_add(other.time.0));
    }
}

/// The ranges of all files: for each file ordered by offset, without overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileAccesses {
    /// Each file that has ranges, ascending, with the end of its ranges.
    pub(super) files: Vec<(u32, usize)>,
    pub(super) ranges: Vec<AccessRange>,
}

impl FileAccesses {
    /// The ranges of a file; empty if it was not accessed.
    #[must_use]
    pub fn of(&self, file: u32) -> &[AccessRange] {
        match self.files.binary_search_by_key(&file, |(f, _)| *f) {
            Ok(at) => self.slice(at),
            Err(_) => &[],
        }
    }

    /// Every accessed file with its ranges, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &[AccessRange])> {
        (0..self.files.len()).map(|at| (self.files[at].0, self.slice(at)))
    }

    /// Number of ranges of all files.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether nothing was accessed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    fn slice(&self, at: usize) -> &[AccessRange] {
        let start = at.checked_sub(1).map_or(0, |before| self.files[before].1);
        &self.ranges[start..self.files[at].1]
    }
}
