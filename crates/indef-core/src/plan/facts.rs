//! The facts about a file on which a plan is based.

use units::{Bytes, FileOffset};

use crate::{access::AccessRange, layout::Layout};

/// A file as planning sees it.
#[derive(Clone, Copy, Debug)]
pub struct FileFacts<'a> {
    /// Size in bytes.
    pub size: Bytes,
    /// File system block size.
    pub block_size: Bytes,
    /// The places of its bytes.
    pub layout: &'a Layout,
    /// The accessed ranges, ordered; `None` without a profile. `indef` and `fragpicker` then
    /// assume sequential reads of the whole file.
    pub accesses: Option<&'a [AccessRange]>,
}

impl FileFacts<'_> {
    pub(super) fn block(&self) -> u64 {
        self.block_size.0.max(1)
    }

    /// The end of the last block that holds bytes of the file.
    pub(super) fn end(&self) -> u64 {
        FileOffset(self.size.0).align_up(Bytes(self.block())).0
    }
}
