//! The entries of a file that policies rank: their size, their order, and leaving some of them alone.

use units::{Bytes, FileOffset};

use super::{Chunk, Decision, PlanOptions};
use crate::{
    SkipReason,
    priority::{IodpTree, PriorityEntry},
};

/// A size in whole blocks, at least one.
pub(super) fn in_blocks(block: Bytes, size: Bytes) -> u64 {
    FileOffset(size.0.max(1)).align_up(Bytes(block.0.max(1))).0
}

/// Bytes of one entry of `indef`: a request where accesses are known, else a sequential read.
pub(super) fn entry_unit(options: &PlanOptions, block: Bytes, profiled: bool) -> u64 {
    in_blocks(
        block,
        match profiled {
            true => options.max_request,
            false => options.io_size,
        },
    )
}

/// The chunks by their rank; those without one are left out. A chunk that stands for several ranges
/// of `unit` bytes counts as many.
pub(super) fn tree(chunks: &[Chunk], unit: u64, rank: impl Fn(&Chunk) -> Option<f64>) -> IodpTree {
    let entry = |(index, chunk): (usize, &Chunk)| {
        Some(PriorityEntry {
            iodp: rank(chunk)?,
            start: chunk.range.start,
            weight: chunk.range.len.0.div_ceil(unit),
            index,
        })
    };
    IodpTree::new(chunks.iter().enumerate().filter_map(entry).collect())
}

/// Turn the migrations among `entries` into skips.
pub(super) fn leave(chunks: &mut [Chunk], entries: &[PriorityEntry], reason: SkipReason) {
    for entry in entries {
        let chunk = &mut chunks[entry.index];
        if chunk.migrates() {
            chunk.decision = Decision::Skip(reason);
        }
    }
}
