//! Truncation (InDeF §III-C): the entries with the lowest IODP are left alone, by the percentage of
//! each file's number of entries.
//!
//! Few files have so many entries that the percentage gives a whole number, so the remainder is
//! carried: with 20 %, of five files of four entries each, four lose one. [`plan_file`] sees one
//! file and rounds down; [`truncate_on`] goes on with the remainders once all files are known, in
//! their order. Files of which nothing would move carry nothing.
//!
//! [`plan_file`]: super::plan_file

use super::{
    Chunk, FilePlan, PlanOptions, Policy,
    entries::{entry_unit, leave, tree},
    safety::keep_promise_from_edges,
};
use crate::{
    SkipReason,
    priority::{IodpTree, Remainder},
};

/// The entries of a file, in units of `unit` bytes. Entries are the ranges that reach the device,
/// contiguous ones included: they fill the lowest places.
fn entries(chunks: &[Chunk], unit: u64) -> IodpTree {
    tree(chunks, unit, |chunk| {
        (chunk.dolf > 0 && chunk.reads > 0).then_some(chunk.iodp)
    })
}

/// Truncate one file by itself.
pub(super) fn truncate(options: &PlanOptions, unit: u64, chunks: &mut [Chunk]) {
    let tree = entries(chunks, unit);
    let lowest = tree.truncated(options.truncate_pct);
    leave(chunks, lowest, SkipReason::Truncated);
}

/// Truncate by what rounding down left of the files, planned one by one, in their order. `profiled`
/// tells whether they were planned with accesses.
pub fn truncate_on(files: &mut [FilePlan], options: &PlanOptions, profiled: bool) {
    if options.policy != Policy::Indef || options.truncate_pct <= 0.0 {
        return;
    }
    let mut remainder = Remainder::default();
    for file in files.iter_mut().filter(|file| file.skip.is_none()) {
        let tree = entries(&file.chunks, entry_unit(options, file.block_size, profiled));
        let count = remainder.share(tree.weight(), options.truncate_pct);
        let moved = file.migrating().count();
        let cost = file.cost();
        leave(&mut file.chunks, tree.lowest(count), SkipReason::Truncated);
        if file.migrating().count() == moved {
            continue;
        }
        keep_promise_from_edges(&mut file.chunks, SkipReason::Truncated);
        // A range that moves has bytes to write, but where the engine can only move whole files the
        // first one pays for all. It may be one of those that are left.
        let first = file.chunks.iter_mut().find(|chunk| chunk.migrates());
        if let Some(first) = first.filter(|first| first.cost.0 == 0) {
            first.cost = cost;
        }
    }
}
