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

mod coverage;
mod credibility;
mod merge;
mod range;
mod readahead;
mod record;

use units::Bytes;

pub use coverage::Unseen;
pub use range::{AccessRange, FileAccesses, Observed};
pub use readahead::ReadAhead;
pub use record::{AccessOptions, AccessRecord, Op, READAHEAD};

/// Turn records into per-file ranges. Records of no bytes are ignored.
#[must_use]
pub fn ranges(records: Vec<AccessRecord>, options: &AccessOptions) -> FileAccesses {
    join(records, Vec::new(), options)
}

/// Turn records, and ranges that were counted already, into per-file ranges. Read-ahead is modelled
/// for the records alone. Items without bytes or without counts are ignored.
#[must_use]
pub fn join(
    records: Vec<AccessRecord>,
    counted: Vec<(u32, AccessRange)>,
    options: &AccessOptions,
) -> FileAccesses {
    join_with(records, counted, options, ReadAhead::new(options))
}

/// The same with a model of read-ahead that knows the files.
#[must_use]
pub fn join_with(
    mut records: Vec<AccessRecord>,
    mut counted: Vec<(u32, AccessRange)>,
    options: &AccessOptions,
    mut readahead: ReadAhead,
) -> FileAccesses {
    let options = AccessOptions {
        block_size: Bytes(options.block_size.0.max(1)),
        ..*options
    };
    readahead.apply(&mut records);
    records.sort_unstable_by_key(|r| (r.file, r.offset));
    counted.retain_mut(|(_, r)| {
        // Checked before the alignment: no bytes in the middle of a block would become that block.
        let counts = !r.range.is_empty() && (r.reads, r.writes) != (0, 0);
        r.range = r.range.align_outward(options.block_size);
        counts
    });
    counted.sort_unstable_by_key(|(file, r)| (*file, r.range.start));
    merge::merge(&records, &counted, &options)
}

#[cfg(test)]
mod tests;
