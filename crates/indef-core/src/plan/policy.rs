//! The four policies: which ranges of a file become chunks, and which of them move.

use units::{Bytes, FileOffset, FileRange};

use super::{
    Chunk, FileFacts, PlanOptions, Policy,
    decide::decide,
    entries::{in_blocks, leave, tree},
    safety::keep_promise,
    truncate::truncate,
    windows::windows,
};
use crate::{SkipReason, access::AccessRange};

/// Decide about every range of a file that the policy considers.
#[must_use]
pub fn plan_file(options: &PlanOptions, file: &FileFacts<'_>) -> Vec<Chunk> {
    let all = AccessRange {
        range: FileRange::new(0, file.end()),
        reads: 1,
        ..AccessRange::default()
    };
    let io_size = in_blocks(file.block_size, options.io_size);
    let request = in_blocks(file.block_size, options.max_request);
    let (mut chunks, unit) = match (options.policy, file.accesses) {
        _ if all.range.is_empty() => return Vec::new(),
        (Policy::Whole, _) => (vec![decide(options, file, &all)], all.range.len.0),
        (Policy::Indef | Policy::Fragpicker, Some(accesses)) => {
            (accessed(options, file, accesses, request), request)
        }
        (Policy::Indef | Policy::Fragpicker, None) | (Policy::Sequential, _) => {
            (windows(options, file, &all, io_size), io_size)
        }
    };
    match options.policy {
        Policy::Indef => truncate(options, unit, &mut chunks),
        // Without a profile nothing is hotter than the rest.
        Policy::Fragpicker if file.accesses.is_some() => keep_hottest(options, unit, &mut chunks),
        Policy::Fragpicker | Policy::Whole | Policy::Sequential => {}
    }
    keep_promise(file.layout, &mut chunks);
    chunks
}

/// The chunks of each access range, cut to the file.
///
/// A range that merging made longer than a device request is decided in pieces of one request: DoLF
/// and DoPF, and the weights that make them comparable, are about the data of one request (InDeF
/// §II-A; DoPF grows with the square of the size), and reading more takes several requests however
/// well it lies. Otherwise unaligned small reads all over a file, which merge to one range, would
/// move all of it for one bad place.
fn accessed(
    options: &PlanOptions,
    file: &FileFacts<'_>,
    accesses: &[AccessRange],
    request: u64,
) -> Vec<Chunk> {
    let mut chunks = Vec::with_capacity(accesses.len());
    let mut from = FileOffset(0);
    for access in accesses {
        let range = access.range.align_outward(Bytes(file.block()));
        let range = FileRange::between(
            range.start.max(from),
            range.end().min(FileOffset(file.end())),
        );
        if range.is_empty() {
            continue;
        }
        from = range.end();
        let access = AccessRange { range, ..*access };
        let hollow = file.layout.clipped(range).next().is_none();
        if range.len.0 <= request || hollow {
            chunks.push(decide(options, file, &access));
        } else {
            chunks.append(&mut windows(options, file, &access, request));
        }
    }
    chunks
}

/// FragPicker §4.1.3: skip all but the hottest ranges. At least one is kept if the percentage is above
/// 1e-10 (the tolerance of `share`).
fn keep_hottest(options: &PlanOptions, unit: u64, chunks: &mut [Chunk]) {
    let heat = |chunk: &Chunk| Some(chunk.reads.saturating_add(chunk.writes) as f64);
    let tree = tree(chunks, unit, heat);
    let coldest = tree.truncated(100.0 - options.hot_pct);
    leave(chunks, coldest, SkipReason::Cold);
}
