//! From access records to per-file ranges with their heat.

use units::FileRange;

/// A block-aligned file range with its counts, after read-ahead modelling and merging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessRange {
    /// The bytes.
    pub range: FileRange,
    /// How many reads touched it.
    pub reads: u64,
    /// How many writes touched it.
    pub writes: u64,
}
