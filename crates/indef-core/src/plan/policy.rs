//! The four policies: which ranges of a file become chunks, and which of them move.

use units::{Bytes, FileOffset, FileRange};

use super::{
    Chunk, Decision, PlanOptions, Policy,
    decide::decide,
    safety::keep_promise,
    windows::{window_size, windows},
};
use crate::{
    SkipReason,
    access::AccessRange,
    layout::Layout,
    priority::{Entry, IodpTree, share},
};

/// What planning has to know of a file.
#[derive(Clone, Copy, Debug)]
pub struct FileFacts<'a> {
    /// Size in bytes.
    pub size: Bytes,
    /// File system block size.
    pub block_size: Bytes,
    /// Where its bytes lie.
    pub layout: &'a Layout,
    /// What was accessed, ordered; `None` without a profile. `indef` and `fragpicker` then take
    /// sequential reads of the whole file for granted.
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

/// Decide about every range of a file that the policy considers.
#[must_use]
pub fn plan_file(options: &PlanOptions, file: &FileFacts<'_>) -> Vec<Chunk> {
    let mut chunks = match (options.policy, file.accesses) {
        (Policy::Whole, _) => whole(options, file),
        (Policy::Indef | Policy::Fragpicker, Some(accesses)) => accessed(options, file, accesses),
        (Policy::Indef | Policy::Fragpicker, None) | (Policy::Sequential, _) => {
            windows(options, file)
        }
    };
    match options.policy {
        Policy::Indef => truncate(options, file, &mut chunks),
        Policy::Fragpicker => keep_hottest(options, file, &mut chunks),
        Policy::Whole | Policy::Sequential => {}
    }
    keep_promise(file.layout, &mut chunks);
    chunks
}

/// The file as one chunk.
fn whole(options: &PlanOptions, file: &FileFacts<'_>) -> Vec<Chunk> {
    match file.end() {
        0 => Vec::new(),
        end => vec![decide(options, file, FileRange::new(0, end), (1, 0))],
    }
}

/// A chunk for each access range, cut to the file.
fn accessed(options: &PlanOptions, file: &FileFacts<'_>, accesses: &[AccessRange]) -> Vec<Chunk> {
    let mut chunks = Vec::with_capacity(accesses.len());
    let mut from = FileOffset(0);
    for access in accesses {
        let range = access.range.align_outward(Bytes(file.block()));
        let range = FileRange::between(
            range.start.max(from),
            range.end().min(FileOffset(file.end())),
        );
        if !range.is_empty() {
            chunks.push(decide(options, file, range, (access.reads, access.writes)));
            from = range.end();
        }
    }
    chunks
}

/// InDeF §III-C: leave the entries with the lowest IODP alone. Entries are the ranges that reach the
/// device, contiguous ones included: they fill the lowest places.
fn truncate(options: &PlanOptions, file: &FileFacts<'_>, chunks: &mut [Chunk]) {
    let window = window_size(options, file);
    let entries = chunks
        .iter()
        .enumerate()
        .filter(|(_, chunk)| chunk.dolf > 0 && chunk.reads > 0)
        .map(|(index, chunk)| Entry {
            iodp: chunk.iodp,
            start: chunk.range.start,
            weight: weight(file, chunk, window),
            index,
        })
        .collect();
    for entry in IodpTree::new(entries).truncated(options.truncate_pct) {
        let chunk = &mut chunks[entry.index];
        if chunk.migrates() {
            chunk.decision = Decision::Skip(SkipReason::Truncated);
        }
    }
}

/// How many ranges a chunk stands for.
fn weight(file: &FileFacts<'_>, chunk: &Chunk, window: u64) -> u64 {
    match file.accesses {
        Some(_) => 1,
        None => chunk.range.len.0.div_ceil(window),
    }
}

/// FragPicker §4.1.3: only the hottest ranges stay, at least one if any percentage is asked for.
fn keep_hottest(options: &PlanOptions, file: &FileFacts<'_>, chunks: &mut [Chunk]) {
    if file.accesses.is_none() {
        return;
    }
    let count = chunks.len() as u64;
    let cold = share(count, 100.0 - options.hot_pct) as usize;
    let mut order: Vec<usize> = (0..chunks.len()).collect();
    order.sort_by_key(|&i| chunks[i].reads.saturating_add(chunks[i].writes));
    for &index in order.iter().take(cold) {
        let chunk = &mut chunks[index];
        if chunk.migrates() {
            chunk.decision = Decision::Skip(SkipReason::Cold);
        }
    }
}
