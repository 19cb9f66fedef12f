//! Ranges that move together with the other files that share them: which they are was found by asking the file
//! system, and this applies it to the chunks of a plan. Pure.
//!
//! What other files get for themselves is metadata. All that a file costs of it stands with the first of its chunks
//! that others share ([`SharedMove::metadata`]): whatever is left out of the file later, that one is needed by the
//! others ([`limit`](super::limit())).

use units::{Bytes, FileRange};

use super::{Chunk, Decision, SharedMove, safety::keep_promise_from_edges};
use crate::SkipReason;

/// What was found about a part of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedWindow {
    /// The ranges that were looked at, ordered, disjoint.
    pub asked: Vec<FileRange>,
    /// Parts that move together with all files that share them, ordered, disjoint.
    pub together: Vec<FileRange>,
    /// Parts that nobody shares, and that move alone, likewise.
    pub alone: Vec<FileRange>,
    /// Shared parts that stay, and why, ordered by place.
    pub staying: Vec<(FileRange, SkipReason)>,
    /// Other files that have a part of `together`.
    pub holders: u64,
    /// Metadata that they get for themselves, at most.
    pub metadata: Bytes,
}

/// Decide about the chunks that migrate, as the file system was found: those of which nothing moves stay, with the
/// most telling reason; and the first one that moves with others has the metadata of all in its cost.
pub fn share(chunks: &mut [Chunk], windows: &[SharedWindow]) {
    // Both are in the order of the file.
    let mut first = 0;
    for chunk in chunks.iter_mut().filter(|chunk| chunk.migrates()) {
        let is_past = |window: &SharedWindow| {
            let last = window.asked.last();
            last.is_none_or(|last| last.end() <= chunk.range.start)
        };
        first += windows[first..]
            .iter()
            .take_while(|one| is_past(one))
            .count();
        let begins = |window: &&SharedWindow| {
            let asked = window.asked.first();
            asked.is_some_and(|asked| asked.start < chunk.range.end())
        };
        let around = || windows[first..].iter().take_while(begins);
        let holders = { around() }.filter(|one| overlaps(&one.together, chunk.range));
        if let Some(holders) = holders.map(|one| one.holders).max() {
            let shared = SharedMove {
                holders,
                metadata: Bytes::ZERO,
            };
            // There are none where an engine moves what nobody shares in the same way.
            chunk.shared = (holders > 0).then_some(shared);
        } else if !around().any(|one| overlaps(&one.alone, chunk.range)) {
            let reasons = around().flat_map(|one| &one.staying);
            let here = reasons.filter(|(range, _)| range.overlaps(chunk.range));
            let reason = here.map(|(_, reason)| *reason).max_by_key(weight);
            chunk.decision = Decision::Skip(reason.unwrap_or(SkipReason::NoGain));
        }
    }
    keep_promise_from_edges(chunks, SkipReason::NoGain);
    let add = |sum: Bytes, window: &SharedWindow| sum.saturating_add(window.metadata);
    pay(chunks, windows.iter().fold(Bytes::ZERO, add));
}

/// Let the first chunk that moves with others have so much more metadata in its cost.
fn pay(chunks: &mut [Chunk], metadata: Bytes) {
    let mut moving = chunks.iter_mut().filter(|chunk| chunk.migrates());
    if let Some(chunk) = moving.find(|chunk| chunk.shared.is_some()) {
        chunk.cost = chunk.cost.saturating_add(metadata);
        if let Some(shared) = &mut chunk.shared {
            shared.metadata = shared.metadata.saturating_add(metadata);
        }
    }
}

/// Let another chunk pay where the one that does stays, and others move that need it.
pub(super) fn pay_again(chunks: &mut [Chunk]) {
    let mut left = Bytes::ZERO;
    for chunk in chunks.iter_mut().filter(|chunk| !chunk.migrates()) {
        if let Some(shared) = &mut chunk.shared {
            let metadata = std::mem::take(&mut shared.metadata);
            chunk.cost = chunk.cost.saturating_sub(metadata);
            left = left.saturating_add(metadata);
        }
    }
    pay(chunks, left);
}

/// Whether one of `ranges` (ordered, disjoint) has a part of `range`.
fn overlaps(ranges: &[FileRange], range: FileRange) -> bool {
    let index = ranges.partition_point(|one| one.end() <= range.start);
    ranges.get(index).is_some_and(|one| one.overlaps(range))
}

fn weight(reason: &SkipReason) -> u8 {
    match reason {
        SkipReason::Contiguous | SkipReason::Unwritten => 0,
        SkipReason::NoGain => 1,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Edges, *};

    const KIB: u64 = 1 << 10;

    fn chunk(start: u64) -> Chunk {
        Chunk {
            range: FileRange::new(start * KIB, 128 * KIB),
            reads: 1,
            writes: 0,
            dolf: 32,
            dopf: 0.0,
            iodp: 32.0,
            decision: Decision::Migrate,
            cost: Bytes::kib(128),
            gain: 31.0,
            edges: Edges {
                excess: 31,
                cuts_start: false,
                cuts_end: false,
            },
            lets_go: None,
            shared: None,
        }
    }

    fn range(start: u64, len: u64) -> FileRange {
        FileRange::new(start * KIB, len * KIB)
    }

    #[test]
    fn the_first_chunk_that_others_share_pays_for_all_and_what_stays_is_told() {
        let mut chunks: Vec<Chunk> = (0..6).map(|number| chunk(number * 128)).collect();
        let windows = [
            SharedWindow {
                asked: vec![range(0, 256)],
                alone: vec![range(0, 100)],
                staying: vec![
                    (range(128, 4), SkipReason::Contiguous),
                    (range(132, 100), SkipReason::HoldersDiffer),
                ],
                ..SharedWindow::default()
            },
            SharedWindow {
                asked: vec![range(256, 200)],
                together: vec![range(300, 100)],
                holders: 3,
                metadata: Bytes::kib(64),
                ..SharedWindow::default()
            },
            SharedWindow {
                asked: vec![range(456, 312)],
                together: vec![range(456, 56)],
                staying: vec![(range(512, 128), SkipReason::MetadataCost)],
                holders: 5,
                metadata: Bytes::kib(32),
                ..SharedWindow::default()
            },
        ];
        share(&mut chunks, &windows);
        let decisions: Vec<Decision> = chunks.iter().map(|chunk| chunk.decision).collect();
        let skip = Decision::Skip;
        assert_eq!(
            decisions,
            [
                Decision::Migrate,
                skip(SkipReason::HoldersDiffer),
                Decision::Migrate,
                Decision::Migrate,
                skip(SkipReason::MetadataCost),
                skip(SkipReason::NoGain),
            ]
        );
        let costs = chunks.iter().map(|chunk| chunk.cost.get() / KIB);
        assert_eq!(
            costs.collect::<Vec<_>>(),
            [128, 128, 128 + 96, 128, 128, 128]
        );
        let shared = |holders, metadata| {
            let metadata = Bytes::kib(metadata);
            Some(SharedMove { holders, metadata })
        };
        assert_eq!(chunks[0].shared, None);
        assert_eq!(chunks[2].shared, shared(3, 96));
        assert_eq!(chunks[3].shared, shared(5, 0));
        chunks[2].decision = skip(SkipReason::NoGain);
        pay_again(&mut chunks);
        assert_eq!(chunks[2].cost, Bytes::kib(128));
        assert_eq!(chunks[3].cost, Bytes::kib(128 + 96));
        assert_eq!(chunks[3].shared, shared(5, 96));
    }
}
