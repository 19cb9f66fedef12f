//! Ranges of one I/O size, where a longer one is given: the whole file when planning without a
//! profile (FragPicker §4.1.4), or an access range that is longer than a request.
//!
//! Only windows that hold extents become chunks, and a series of windows that need no move becomes
//! one chunk: neither a sparse file of many TiB nor a contiguous one is walked window by window.

use units::{Bytes, FileRange};

use super::{Chunk, Decision, FileFacts, PlanOptions, decide::decide};
use crate::{
    SkipReason,
    access::{AccessRange, Observed},
};

/// All windows of `size` bytes in the range of `access` that hold extents, decided, each with its
/// counts. The cost of its reads is not passed on: none of them was a read of a window.
pub(super) fn windows(
    options: &PlanOptions,
    file: &FileFacts<'_>,
    access: &AccessRange,
    size: u64,
) -> Vec<Chunk> {
    let (mut start, end) = (access.range.start.0, access.range.end().0);
    let mut chunks: Vec<Chunk> = Vec::new();
    while start < end {
        let Some((extent_start, extent_end)) = extent_at_or_behind(file, start) else {
            break;
        };
        if extent_start >= start.saturating_add(size) {
            start = extent_start - (extent_start - start) % size;
            continue;
        }
        // One extent fills this window and maybe more: all of them are contiguous.
        let filled = match extent_start <= start {
            true => (extent_end.min(end) - start) / size * size,
            false => 0,
        };
        let len = filled.max(size).min(end - start);
        let window = AccessRange {
            range: FileRange::new(start, len),
            observed: Observed::default(),
            ..*access
        };
        let chunk = decide(options, file, &window);
        // The next extent may lie past the end of the span.
        if chunk.decision != Decision::Skip(SkipReason::Empty) {
            join(&mut chunks, chunk);
        }
        start += len;
    }
    chunks
}

/// The first extent that ends past `start`.
fn extent_at_or_behind(file: &FileFacts<'_>, start: u64) -> Option<(u64, u64)> {
    let extents = file.layout.extents();
    let at = extents.partition_point(|e| e.file_end().0 <= start);
    extents
        .get(at)
        .map(|extent| (extent.file.0, extent.file_end().0))
}

/// Append a chunk, or widen the last one where both are left alone for the same plain reason, one
/// that leaves no gain unused.
fn join(chunks: &mut Vec<Chunk>, chunk: Chunk) {
    let plain = |c: &Chunk| {
        matches!(
            c.decision,
            Decision::Skip(SkipReason::Contiguous | SkipReason::Unwritten | SkipReason::Compressed)
        )
    };
    match chunks.last_mut() {
        Some(last)
            if plain(last)
                && last.decision == chunk.decision
                && last.range.end() == chunk.range.start =>
        {
            last.range.len += chunk.range.len;
            last.cost = Bytes(last.cost.0.saturating_add(chunk.cost.0));
            last.dolf = last.dolf.max(chunk.dolf);
            last.dopf = last.dopf.max(chunk.dopf);
            last.iodp = last.iodp.max(chunk.iodp);
            last.edges = last.edges.join(chunk.edges);
        }
        _ => chunks.push(chunk),
    }
}
