//! The page cache of the target: an exchange drops it, also one that is refused in the end.

use linux_abi::cache::cachestat;
use units::{Bytes, FileOffset, FileRange};

use crate::{CacheRecord, Target, cache::cached_pages};

/// Records are made for windows of this size, so that parts that are not cached take no memory.
const WINDOW: Bytes = Bytes::mib(16);

/// The cached parts of a range.
#[derive(Debug)]
pub(super) struct Cached(Vec<CacheRecord>);

impl Cached {
    /// Look, before anything is dropped.
    pub(super) fn of(target: &Target, range: FileRange) -> Self {
        let mut records = Vec::new();
        let mut place = range.start;
        if cached_pages(&target.file, range) == Some(0) {
            place = range.end();
        }
        while place < range.end() {
            let next = FileOffset(place.get().saturating_add(WINDOW.get())).min(range.end());
            let record = CacheRecord::of(target, FileRange::between(place, next));
            if record.any() {
                records.push(record);
            }
            place = next;
        }
        Self(records)
    }

    /// Begin to read back the parts that are not cached any more.
    pub(super) fn restore(&self, target: &Target) {
        for record in &self.0 {
            record.restore(&target.file);
        }
    }
}

/// Whether the range has pages that are to be written back; `None` where the kernel does not say
/// (before Linux 6.5).
pub(super) fn is_dirty(target: &Target, range: FileRange) -> Option<bool> {
    cachestat(&target.file, range.start.get(), range.len.get())
        .ok()
        .map(|pages| pages.nr_dirty + pages.nr_writeback > 0)
}
