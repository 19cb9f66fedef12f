//! Of the extents that a plan lets go, those that the file still holds, and in which order they go. Pure.
//!
//! A plan may be old. Between planning and moving, an extent may have come free by itself, the file may refer to
//! more of it, or a balance may have moved it elsewhere. So a plan says which ranges of the file may be written
//! anew, and the extents are those that the file holds now: each that it reaches only within these ranges.
//!
//! An extent comes free only when all that is reached of it is written anew. So they go in small groups of
//! whole extents, the best ratio first: a stop, or a snapshot that is made meanwhile, leaves at most one group
//! of each worker written of which nothing comes free.

use std::collections::HashSet;

use indef_core::{SkipReason, layout::HeldExtent, plan::keeps_extent};
use units::{Bytes, FileOffset, FileRange, PhysOffset};

/// An extent to let go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LetGo {
    pub(super) extent: PhysOffset,
    /// All that the file reaches of it, in order.
    pub(super) parts: Vec<FileRange>,
    /// Bytes that then come free.
    pub(super) frees: Bytes,
}

impl LetGo {
    fn frees_per_byte(&self) -> f64 {
        let written: Bytes = self.parts.iter().map(|part| part.len).sum();
        self.frees.get() as f64 / written.get().max(1) as f64
    }
}

/// The extents that can be let go by writing no more than the `planned` ranges (ordered, disjoint), the best ratio
/// first, and a reason for which others cannot. `held` is of now, `end` the end of the file, and `ratio` the least
/// number of bytes that come free for each byte written.
pub(super) fn still_held(
    planned: &[FileRange],
    held: Vec<HeldExtent>,
    end: FileOffset,
    ratio: f64,
) -> (Vec<LetGo>, Option<SkipReason>) {
    let (mut chosen, mut reason) = (Vec::new(), None);
    for extent in held {
        match still(planned, extent, end, ratio) {
            Some(Ok(extent)) => chosen.push(extent),
            Some(Err(why)) => {
                reason.get_or_insert(why);
            }
            None => {}
        }
    }
    if chosen.is_empty() {
        reason.get_or_insert(SkipReason::AllReached);
    }
    chosen.sort_by(|a: &LetGo, b| b.frees_per_byte().total_cmp(&a.frees_per_byte()));
    (chosen, reason)
}

/// The bytes that came free, as the file holds these extents no more: neither where they were, nor the same parts of
/// them elsewhere, to where a balance may have moved them meanwhile.
pub(super) fn came_free(let_go: &[LetGo], held: &[HeldExtent]) -> Bytes {
    let places: HashSet<_> = held.iter().map(|one| one.extent).collect();
    let parts: HashSet<_> = held.iter().map(|one| &*one.parts).collect();
    let gone = let_go
        .iter()
        .filter(|one| !places.contains(&one.extent) && !parts.contains(&*one.parts));
    gone.map(|one| one.frees).sum()
}

/// Extents are written anew in groups of this many bytes: a batch of the engine has room for it.
const GROUP: Bytes = Bytes::mib(8);

/// Groups of extents with their costs, each of at most [`GROUP`] bytes and a fourth of `room` or a single extent, in
/// the given order; but those for which there is no room come last, as others come free by then.
pub(super) fn groups<T>(extents: impl IntoIterator<Item = (T, Bytes)>, room: Bytes) -> Vec<Vec<T>> {
    let most = GROUP.min(Bytes(room.get() / 4));
    let (fitting, large): (Vec<_>, Vec<_>) =
        extents.into_iter().partition(|(_, cost)| *cost <= room);
    let mut groups: Vec<(Vec<T>, Bytes)> = Vec::new();
    for (extent, cost) in fitting.into_iter().chain(large) {
        match groups.last_mut() {
            Some((group, size)) if *size + cost <= most => {
                group.push(extent);
                *size += cost;
            }
            _ => groups.push((vec![extent], cost)),
        }
    }
    groups.into_iter().map(|(group, _)| group).collect()
}

/// Whether an extent can be let go; `None` if nothing of it is planned.
fn still(
    planned: &[FileRange],
    held: HeldExtent,
    end: FileOffset,
    ratio: f64,
) -> Option<Result<LetGo, SkipReason>> {
    let at = |part: &FileRange| planned.partition_point(|range| range.end() <= part.start);
    let meets = |part: &FileRange| {
        planned
            .get(at(part))
            .is_some_and(|range| range.overlaps(*part))
    };
    let covers = |part: &FileRange| {
        planned
            .get(at(part))
            .is_some_and(|range| range.start <= part.start && part.end() <= range.end())
    };
    if !held.parts.iter().any(meets) {
        return None;
    }
    Some(match keeps_extent(&held, end, ratio) {
        // The file was cut off.
        Some(SkipReason::OutOfRange) => Err(SkipReason::Changed),
        Some(reason @ (SkipReason::Unwritten | SkipReason::HeldByOthers)) => Err(reason),
        _ if !held.parts.iter().all(covers) => Err(SkipReason::Changed),
        Some(reason) => Err(reason),
        None => Ok(LetGo {
            extent: held.extent,
            frees: held.unreached(),
            parts: held.parts,
        }),
    })
}

#[cfg(test)]
mod tests {
    use indef_core::layout::ExtentFlags;

    use super::*;

    fn ranges(ranges: &[(u64, u64)]) -> Vec<FileRange> {
        let ranges = ranges.iter();
        ranges
            .map(|&(start, len)| FileRange::new(start, len))
            .collect()
    }

    fn held(extent: u64, parts: &[(u64, u64)]) -> HeldExtent {
        let parts = ranges(parts);
        HeldExtent {
            extent: PhysOffset(extent),
            allocated: Bytes(100),
            data_len: Bytes(100),
            reached: parts.iter().map(|part| part.len).sum(),
            flags: ExtentFlags::empty(),
            parts,
        }
    }

    #[test]
    fn what_is_as_planned_is_let_go_the_best_first() {
        let plan = ranges(&[(0, 80)]);
        let now = vec![
            held(2, &[(50, 20)]),
            held(1, &[(0, 50), (70, 10)]),
            held(9, &[(90, 1)]),
        ];
        let (chosen, reason) = still_held(&plan, now, FileOffset(100), 0.25);
        let found: Vec<_> = chosen.iter().map(|one| (one.extent.0, one.frees)).collect();
        assert_eq!(
            (found, reason),
            (vec![(2, Bytes(80)), (1, Bytes(40))], None)
        );
    }

    #[test]
    fn groups_are_small_and_of_whole_extents() {
        let mib = |sizes: &[u64]| -> Vec<(u64, Bytes)> {
            sizes
                .iter()
                .map(|size| (*size, Bytes::mib(*size)))
                .collect()
        };
        let grouped = groups(mib(&[1, 2, 3, 4, 4, 60, 1, 9, 8]), Bytes::gib(1));
        let expected: [&[u64]; 6] = [&[1, 2, 3], &[4, 4], &[60], &[1], &[9], &[8]];
        assert_eq!(grouped, expected);
        assert!(groups(mib(&[]), Bytes::gib(1)).is_empty());
    }

    #[test]
    fn with_little_room_groups_are_smaller_and_large_extents_last() {
        let sizes = [20, 1, 2, 3, 9, 1].map(|size| (size, Bytes::mib(size)));
        let expected: [&[u64]; 5] = [&[1, 2], &[3], &[9], &[1], &[20]];
        assert_eq!(groups(sizes, Bytes::mib(12)), expected);
        assert_eq!(groups(sizes, Bytes::ZERO).len(), 6);
    }

    #[test]
    fn what_changed_since_planning_is_left_or_written_less() {
        let of = |now: HeldExtent, end| {
            let plan = ranges(&[(10, 30), (60, 10)]);
            let (chosen, reason) = still_held(&plan, vec![now], FileOffset(end), 0.25);
            (chosen.len(), reason)
        };
        assert_eq!(of(held(1, &[(10, 30), (60, 10)]), 100), (1, None));
        assert_eq!(
            of(held(1, &[(12, 3)]), 100),
            (1, None),
            "overwritten meanwhile"
        );
        let changed = (0, Some(SkipReason::Changed));
        assert_eq!(of(held(1, &[(10, 31)]), 100), changed);
        assert_eq!(of(held(1, &[(5, 10)]), 100), changed);
        assert_eq!(of(held(1, &[(10, 5), (80, 10)]), 100), changed);
        assert_eq!(of(held(1, &[(60, 10)]), 65), changed, "cut off");
        assert_eq!(
            of(held(2, &[(10, 20)]), 100),
            (1, None),
            "moved by a balance"
        );
        assert_eq!(
            of(held(1, &[(90, 5)]), 100),
            (0, Some(SkipReason::AllReached)),
            "nothing that is planned"
        );
        let unwritten = HeldExtent {
            flags: ExtentFlags::UNWRITTEN,
            ..held(1, &[(10, 20)])
        };
        assert_eq!(of(unwritten, 100), (0, Some(SkipReason::Unwritten)));
    }

    #[test]
    fn what_would_free_too_little_by_now_stays() {
        let plan = ranges(&[(0, 1 << 20)]);
        let of = |now| still_held(&plan, vec![now], FileOffset(1 << 20), 0.5);
        assert_eq!(of(held(1, &[(0, 66)])).0.len(), 1);
        let more = of(held(1, &[(0, 67)]));
        assert_eq!(more.1, Some(SkipReason::FreesLittle));
        // The rest of a compressed extent has become too short to compress.
        let encoded = |len: u64| HeldExtent {
            allocated: Bytes::kib(64),
            data_len: Bytes::kib(128),
            flags: ExtentFlags::ENCODED,
            ..held(1, &[(0, len << 10)])
        };
        assert_eq!(of(encoded(32)).0.len(), 1);
        assert_eq!(of(encoded(28)).1, Some(SkipReason::Compressed));
    }

    #[test]
    fn what_a_balance_moved_did_not_come_free() {
        let now = vec![
            held(1, &[(0, 10)]),
            held(2, &[(20, 30)]),
            held(3, &[(60, 1)]),
        ];
        let (chosen, _) = still_held(&ranges(&[(0, 100)]), now, FileOffset(100), 0.25);
        assert_eq!(came_free(&chosen, &[]), Bytes(90 + 70 + 99));
        let later = [
            held(1, &[(0, 5)]),
            held(7, &[(20, 30)]),
            held(8, &[(60, 2)]),
        ];
        assert_eq!(came_free(&chosen, &later), Bytes(99));
    }
}
