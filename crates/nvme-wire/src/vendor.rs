//! The extensions that InDeF and FAST'24 need beyond the specifications: the command
//! In_Device_Defragment (C1h) and a log page from which a host learns the device's parallel units.
//! The feature that enables hints is [`Feature::DieHints`](crate::feature::Feature::DieHints), the
//! hints themselves are [`WriteHint`](crate::io::WriteHint).

pub use linux_abi::nvme::geometry::*;
use zerocopy::little_endian::U32;

use crate::Status;

/// Bytes of a block address in In_Device_Defragment (InDeF §III-C: 4 KiB), whatever the namespace's
/// own blocks are.
pub const DEFRAGMENT_BLOCK: u64 = 4096;

wire! {
    /// A move of one block of [`DEFRAGMENT_BLOCK`] bytes, an entry of In_Device_Defragment's data
    /// (InDeF §III-C: two addresses of 4 bytes). The number of entries, zero-based, is in dword 10;
    /// the result's dword 0 is the number of moves that were done, also on failure: the first ones,
    /// in order.
    pub struct DefragmentMove [8] {
        /// Source.
        pub from: U32,
        /// Destination.
        pub to: U32,
    }
}

impl DefragmentMove {
    /// Move block `from` to `to`.
    #[must_use]
    pub const fn new(from: u32, to: u32) -> Self {
        Self {
            from: U32::new(from),
            to: U32::new(to),
        }
    }
}

/// The `count` moves in a command's data.
///
/// # Errors
///
/// Data SGL Length Invalid if the data is too short.
pub fn moves(data: &[u8], count: u64) -> Result<impl Iterator<Item = DefragmentMove>, Status> {
    let data = usize::try_from(count)
        .ok()
        .and_then(|count| count.checked_mul(DefragmentMove::LEN))
        .and_then(|len| data.get(..len))
        .ok_or(Status::SglLengthInvalid)?;
    Ok(data
        .chunks_exact(DefragmentMove::LEN)
        .filter_map(DefragmentMove::first_of))
}
