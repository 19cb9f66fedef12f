//! Ranges that are moved, written back and checked together.

use std::time::Instant;

use indef_core::layout::{Extent, Layout};
use units::{Bytes, FileRange};

use super::{call::CALL, compression::CompressionWay};
use crate::{CacheRecord, Target};

/// A part of a piece inside a batch.
#[derive(Debug)]
pub(super) struct CalledRange {
    pub(super) range: FileRange,
    pub(super) way: CompressionWay,
    pub(super) encoded: bool,
    pub(super) before: Layout,
    pub(super) mapped: Instant,
    pub(super) cached: CacheRecord,
}

impl CalledRange {
    /// Only so many bytes of it are rewritten.
    pub(super) fn end_at(&mut self, len: Bytes) {
        self.range.len = len;
        self.before = Layout::new(self.before.clipped(self.range).collect());
    }

    /// The way of the call for `len` bytes from `at` on: none of it writes back before the last one, so that the allocator
    /// sees all of it.
    pub(super) fn way_of(&self, at: Bytes, len: Bytes) -> CompressionWay {
        let is_last = at + len >= self.range.len;
        // Before an extent of the greatest length the kernel leaves one out.
        let is_small = |extent: &Extent| extent.len < CALL;
        match !is_last && self.before.extents().iter().all(is_small) {
            true => self.way.with_more_to_come(),
            false => self.way,
        }
    }
}

/// Ranges that are moved, written back and checked together.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) parts: Vec<CalledRange>,
    /// The number of ranges that the reader had been asked for when the batch was closed.
    pub(super) asked: u64,
}

impl Batch {
    pub(super) fn len(&self) -> Bytes {
        self.parts.iter().map(|part| part.range.len).sum()
    }

    pub(super) fn restore_cache(&self, target: &Target) {
        for part in &self.parts {
            part.cached.restore(&target.file);
        }
    }
}

/// The outcome of a batch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Defragmented {
    pub(super) before: u64,
    pub(super) after: u64,
    pub(super) relocated: Bytes,
}

/// Bytes of `before` that have another place in `now`.
pub(super) fn moved_bytes(before: &Layout, now: &Layout) -> Bytes {
    let mut moved = Bytes::ZERO;
    for old in before.extents() {
        for new in now.clipped(old.range()) {
            let same = old.phys + (new.file - old.file) == new.phys;
            if !same {
                moved += new.len;
            }
        }
    }
    moved
}
