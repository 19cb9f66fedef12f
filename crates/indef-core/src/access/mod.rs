//! From access records to per-file ranges with their heat.
//!
//! The steps are those of FragPicker §4.1.2 and of InDeF's information management (§III-A):
//! requests are aligned outward to file system blocks, buffered sequential reads grow to the windows
//! that the kernel's read-ahead fetches, and overlapping requests merge to the widest range and add
//! up, as long as that does not make a chain of them.
//!
//! Ranges that were counted at the device ([`join`]) have passed the page cache and read-ahead
//! already: they are only merged.
//!
//! Sorting dominates: n records take O(n log n) time, 32 bytes each, plus 56 bytes for each resulting
//! range. The order in which records are given does not matter; their `time` does.

mod merge;
mod readahead;

use std::ops::AddAssign;

use units::{Bytes, FileOffset, FileRange, Nanos};

pub use readahead::ReadAhead;

/// A block-aligned file range with its counts, after read-ahead modelling and merging.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessRange {
    /// The bytes.
    pub range: FileRange,
    /// How many reads touched it.
    pub reads: u64,
    /// How many writes touched it.
    pub writes: u64,
    /// The cost of its reads, if it was observed.
    pub observed: Observed,
}

/// The cost of the reads of a range for the device, if a collector observed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Requests that the device got for all reads of the range; 0 if they were not counted.
    pub requests: u64,
    /// How many of the reads were timed.
    pub timed: u64,
    /// Sum of the time from the first request of a timed read to the end of its last.
    pub time: Nanos,
}

impl AddAssign for Observed {
    fn add_assign(&mut self, other: Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.timed = self.timed.saturating_add(other.timed);
        self.time = Nanos(self.time.0.saturating_add(other.time.0));
    }
}

/// The direction of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// Read.
    Read,
    /// Write.
    Write,
}

/// One read or write, as it was observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessRecord {
    /// Which file: the index in the profile's list of files.
    pub file: u32,
    /// First byte.
    pub offset: FileOffset,
    /// Number of bytes.
    pub len: Bytes,
    /// Read or write.
    pub op: Op,
    /// Whether it bypassed the page cache (`O_DIRECT`), and so read-ahead.
    pub direct: bool,
    /// When, on any clock; only the order counts.
    pub time: Nanos,
}

const _: () = assert!(size_of::<AccessRecord>() == 32);

/// How records become ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessOptions {
    /// File system block size: ranges are aligned to it.
    pub block_size: Bytes,
    /// How far the kernel reads ahead of a sequential buffered reader; zero turns the model off.
    pub readahead: Bytes,
    /// Merging makes no range longer than this, unless the same accesses span all of it; zero lets it
    /// merge all ranges that overlap, as the papers do.
    pub max_range: Bytes,
}

impl Default for AccessOptions {
    /// 4 KiB blocks, Linux' default read-ahead of 128 KiB, and ranges of the largest request that
    /// plans assume (256 KiB, InDeF §II-A).
    fn default() -> Self {
        Self {
            block_size: Bytes::kib(4),
            readahead: Bytes::kib(128),
            max_range: Bytes::kib(256),
        }
    }
}

/// The ranges of all files: for each file ordered by offset, without overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileAccesses {
    /// Each file that has ranges, ascending, with the end of its ranges.
    files: Vec<(u32, usize)>,
    ranges: Vec<AccessRange>,
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

/// Turn records into per-file ranges. Records of no bytes are ignored.
#[must_use]
pub fn ranges(records: Vec<AccessRecord>, options: &AccessOptions) -> FileAccesses {
    join(records, Vec::new(), options)
}

/// Turn records, and ranges that were counted already, into per-file ranges. Read-ahead is modelled
/// for the records alone. Records and ranges without bytes or counts are ignored.
#[must_use]
pub fn join(
    mut records: Vec<AccessRecord>,
    mut counted: Vec<(u32, AccessRange)>,
    options: &AccessOptions,
) -> FileAccesses {
    let options = AccessOptions {
        block_size: Bytes(options.block_size.0.max(1)),
        ..*options
    };
    ReadAhead::apply_to_all(&mut records, &options);
    records.sort_unstable_by_key(|r| (r.file, r.offset));
    counted.retain_mut(|(_, r)| {
        // Before it is aligned: an empty range in the middle of a block would become that block.
        let counts = !r.range.is_empty() && (r.reads, r.writes) != (0, 0);
        r.range = r.range.align_outward(options.block_size);
        counts
    });
    counted.sort_unstable_by_key(|(file, r)| (*file, r.range.start));
    merge::merge(&records, &counted, &options)
}

#[cfg(test)]
mod tests;
