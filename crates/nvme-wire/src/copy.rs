//! Source ranges of Copy (NVM §3.2.2).

use linux_abi::nvme::command::{SourceHead, SourceRange};
use zerocopy::little_endian::{U16, U32};

use crate::{Status, range::BlockRange};

codes! {
    /// DESFMT: the format of a source range. Formats differ in the protection information that they
    /// carry, which has no meaning here, and in whether they name a namespace (2h and 3h: NVM 1.1).
    pub enum CopyFormat: u8 {
        /// 0h: 32 bytes, the command's namespace, reference tags of 32 bits.
        Same32 = 0,
        /// 1h: 40 bytes, the command's namespace, storage and reference tags of 80 bits.
        Same40 = 1,
        /// 2h: as 0h, with a namespace of its own.
        Other32 = 2,
        /// 3h: as 1h, with a namespace of its own.
        Other40 = 3,
    }
}

/// SOPT, FCO: Fast Copy Only.
pub const FAST_COPY_ONLY: u16 = 1 << 15;

/// A source to copy from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopySource {
    /// SNSID; `None` if the format has none.
    pub nsid: Option<u32>,
    /// The blocks.
    pub blocks: BlockRange,
    /// FCO: fail if the device cannot copy faster than the host would.
    pub fast_only: bool,
}

impl CopyFormat {
    /// Bytes of a source range; `None` for an unknown format.
    #[must_use]
    pub const fn entry_len(self) -> Option<usize> {
        match self {
            Self::Same32 | Self::Other32 => Some(SourceRange::LEN),
            Self::Same40 | Self::Other40 => Some(40),
            Self::Unknown(_) => None,
        }
    }

    /// Whether a source range names a namespace.
    #[must_use]
    pub const fn names_namespace(self) -> bool {
        matches!(self, Self::Other32 | Self::Other40)
    }

    /// The `ranges` source ranges in a command's data.
    ///
    /// # Errors
    ///
    /// Invalid Field in Command for an unknown format, Data SGL Length Invalid if the data is too
    /// short.
    pub fn sources(
        self,
        data: &[u8],
        ranges: usize,
    ) -> Result<impl Iterator<Item = CopySource>, Status> {
        let entry = self.entry_len().ok_or(Status::InvalidField)?;
        let data = ranges
            .checked_mul(entry)
            .and_then(|len| data.get(..len))
            .ok_or(Status::SglLengthInvalid)?;
        Ok(data
            .chunks_exact(entry)
            .filter_map(SourceHead::first_of)
            .map(move |head| CopySource {
                nsid: self.names_namespace().then(|| head.nsid.get()),
                blocks: BlockRange {
                    start: head.start.get(),
                    count: u32::from(head.blocks.get()) + 1,
                },
                fast_only: self.names_namespace() && head.options.get() & FAST_COPY_ONLY != 0,
            }))
    }

    /// Append a source range of this format to a command's data. Append nothing for an unknown
    /// format; `blocks.count` has to be 1 to 65536.
    pub fn put(self, source: &CopySource, data: &mut Vec<u8>) {
        let Some(entry) = self.entry_len() else {
            return;
        };
        let mut head = SourceHead::new(source.blocks.start, source.blocks.count);
        head.nsid = U32::new(source.nsid.unwrap_or(0));
        if source.fast_only {
            head.options = U16::new(FAST_COPY_ONLY);
        }
        let end = data.len() + entry;
        data.extend_from_slice(zerocopy::IntoBytes::as_bytes(&head));
        data.resize(end, 0);
    }
}
