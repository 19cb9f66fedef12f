//! Records of single accesses, and the options for turning them into ranges.

use units::{Bytes, FileOffset, Nanos};

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
    /// The file: an index into the profile's list of files.
    pub file: u32,
    /// First byte.
    pub offset: FileOffset,
    /// Number of bytes.
    pub len: Bytes,
    /// Read or write.
    pub op: Op,
    /// Whether it bypassed the page cache (`O_DIRECT`), and so read-ahead.
    pub direct: bool,
    /// The time on any clock; only the order counts.
    pub time: Nanos,
}

const _: () = assert!(size_of::<AccessRecord>() == 32);

/// Options for turning records into ranges.
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

/// How far Linux reads ahead of a sequential reader, unless told otherwise (`VM_READAHEAD_PAGES`,
/// include/linux/pagemap.h, v6.1; FragPicker §4.1.4).
pub const READAHEAD: Bytes = Bytes::kib(128);

impl Default for AccessOptions {
    /// 4 KiB blocks, Linux' default read-ahead, and ranges of the largest request that
    /// plans assume (256 KiB, InDeF §II-A).
    fn default() -> Self {
        Self {
            block_size: Bytes::kib(4),
            readahead: READAHEAD,
            max_range: Bytes::kib(256),
        }
    }
}
