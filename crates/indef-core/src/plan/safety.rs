//! Promise 3: a file never ends with more fragments than it had.
//!
//! The account is [`FragmentCount`]'s. Runs never touch, so their changes add up.

use units::FileRange;

use super::{Chunk, Decision, Edges};
use crate::{
    SkipReason,
    layout::{FragmentCount, Layout},
};

/// The number of fragments that the file will have once each of `runs` (ordered, disjoint, not
/// touching) is contiguous between its holes.
#[must_use]
pub fn predicted_fragments(layout: &Layout, runs: &[FileRange]) -> u64 {
    let change: i64 = runs.iter().map(|run| layout.count(*run).change(1)).sum();
    layout.fragments().saturating_add_signed(change)
}

/// Turn runs that would leave more fragments into skips. With the layout at hand the count is exact.
pub(super) fn keep_promise(layout: &Layout, chunks: &mut [Chunk]) {
    for_each_run(chunks, |run| {
        let range = FileRange::between(run[0].range.start, run[run.len() - 1].range.end());
        if layout.count(range).change(1) > 0 {
            skip(run, SkipReason::NoGain);
        }
    });
}

/// The same without the layout, from the parts of the count that the chunks keep: joined, they
/// never promise too much, except where a fragment of encoded bytes lies on both sides of a border.
/// The executor of the plan counts the run anew.
pub(super) fn keep_promise_from_edges(chunks: &mut [Chunk], reason: SkipReason) {
    for_each_run(chunks, |run| {
        let edges = run.iter().map(|chunk| chunk.edges).reduce(Edges::join);
        if edges.is_some_and(|edges| FragmentCount::from(edges).change(1) > 0) {
            skip(run, reason);
        }
    });
}

fn skip(run: &mut [Chunk], reason: SkipReason) {
    for chunk in run {
        chunk.decision = Decision::Skip(reason);
    }
}

/// Call `visit` with each series of migrating chunks that touch.
fn for_each_run(chunks: &mut [Chunk], mut visit: impl FnMut(&mut [Chunk])) {
    let mut rest = chunks;
    while let Some(start) = rest.iter().position(Chunk::migrates) {
        rest = &mut rest[start..];
        let joined = rest
            .windows(2)
            .take_while(|pair| pair[1].migrates() && pair[0].range.end() == pair[1].range.start)
            .count();
        let (run, after) = rest.split_at_mut(joined + 1);
        visit(run);
        rest = after;
    }
}
