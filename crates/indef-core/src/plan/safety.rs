//! Promise 3: a file never ends with more fragments than it had.
//!
//! Relocating a run leaves one fragment for each of its hole-free pieces, and a remainder of every
//! fragment that one of its ends cuts. With `b` fragments that intersect the run, `p` pieces and
//! `c` cuts (0 to 2), the file's count changes by `p + c − b`. Runs are never neighbours, so the
//! changes of several runs add up: a fragment that reaches from one run to the next is counted in
//! both `b` and, as the remainder between them, in both `c`.

use units::FileRange;

use super::{Chunk, Decision};
use crate::{SkipReason, layout::Layout};

/// The number of fragments that the file will have once each of `runs` (ordered, disjoint, not
/// touching) is contiguous between its holes.
#[must_use]
pub fn predicted_fragments(layout: &Layout, runs: &[FileRange]) -> u64 {
    let change: i64 = runs.iter().map(|run| change(layout, *run)).sum();
    layout.fragments().saturating_add_signed(change)
}

/// By how much relocating `run` changes the number of fragments.
fn change(layout: &Layout, run: FileRange) -> i64 {
    let cuts = u64::from(layout.is_cut_by(run.start)) + u64::from(layout.is_cut_by(run.end()));
    (layout.ideal_fragments_in(run) + cuts) as i64 - layout.fragments_in(run) as i64
}

/// Turn runs that would leave more fragments into skips. With the layout at hand the count is exact.
pub(super) fn keep_promise(layout: &Layout, chunks: &mut [Chunk]) {
    for_each_run(chunks, |run| {
        let range = FileRange::between(run[0].range.start, run[run.len() - 1].range.end());
        if change(layout, range) > 0 {
            skip(run, SkipReason::NoGain);
        }
    });
}

/// The same without the layout, from what the chunks know of their edges: `excess` fragments go
/// away for certain, and only the outer ends of the run can cut. Never claims too much safety.
pub(super) fn keep_promise_from_edges(chunks: &mut [Chunk], reason: SkipReason) {
    for_each_run(chunks, |run| {
        let excess = run
            .iter()
            .fold(0u64, |sum, chunk| sum.saturating_add(chunk.edges.excess));
        let (first, last) = (run[0].edges, run[run.len() - 1].edges);
        if excess < u64::from(first.cuts_start) + u64::from(last.cuts_end) {
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
        let (run, behind) = rest.split_at_mut(joined + 1);
        visit(run);
        rest = behind;
    }
}
