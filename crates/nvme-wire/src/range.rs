//! Ranges of blocks, and those of Dataset Management (NVM §3.2.3).

use zerocopy::little_endian::{U32, U64};

use crate::Status;

/// Blocks of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRange {
    /// SLBA: the first.
    pub start: u64,
    /// Number of blocks: 1 to 65536 (NLB, zero-based on the wire), or up to 2^32 − 1 and 0 in a
    /// range of Dataset Management.
    pub count: u32,
}

impl BlockRange {
    /// The block after the last one; `None` if its number overflows.
    #[must_use]
    pub const fn end(self) -> Option<u64> {
        self.start.checked_add(self.count as u64)
    }
}

wire! {
    /// A range.
    pub struct DatasetRange [16] {
        /// Context Attributes: advice.
        pub attributes: U32,
        /// Length in blocks, not zero-based.
        pub blocks: U32,
        /// SLBA.
        pub start: U64,
    }
}

/// The `ranges` ranges in a command's data.
///
/// # Errors
///
/// Data SGL Length Invalid if the data is too short.
pub fn ranges(data: &[u8], ranges: usize) -> Result<impl Iterator<Item = BlockRange>, Status> {
    let data = ranges
        .checked_mul(DatasetRange::LEN)
        .and_then(|len| data.get(..len))
        .ok_or(Status::SglLengthInvalid)?;
    Ok(data
        .chunks_exact(DatasetRange::LEN)
        .filter_map(DatasetRange::first_of)
        .map(|range| BlockRange {
            start: range.start.get(),
            count: range.blocks.get(),
        }))
}
