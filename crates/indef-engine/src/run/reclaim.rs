//! Of the extents that a plan lets go, those that the file still holds. Pure.
//!
//! A plan may be old. Between planning and moving, an extent may have come free by itself, or the
//! file may refer to more of it; so each is looked at again, and no range is moved that the plan does
//! not name.

use std::collections::HashMap;

use indef_core::{
    SkipReason,
    layout::{ExtentFlags, HeldExtent},
    plan::FilePlan,
};
use units::{Bytes, FileOffset, FileRange, PhysOffset};

/// An extent that a plan lets go, and the ranges that the plan moves for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlannedExtent {
    extent: PhysOffset,
    ranges: Vec<FileRange>,
}

impl PlannedExtent {
    /// The extents of a plan, in the order of their first ranges.
    pub(super) fn of(plan: &FilePlan) -> Box<[Self]> {
        let mut extents: Vec<Self> = Vec::new();
        let mut known = HashMap::new();
        for chunk in plan.migrating() {
            let Some(extent) = chunk.lets_go else {
                continue;
            };
            let index = *known.entry(extent).or_insert(extents.len());
            match extents.get_mut(index) {
                Some(planned) => planned.ranges.push(chunk.range),
                None => extents.push(Self {
                    extent,
                    ranges: vec![chunk.range],
                }),
            }
        }
        extents.into()
    }

    /// Whether the plan moves all of `part`.
    fn covers(&self, part: FileRange) -> bool {
        let after = |range: &FileRange| range.end() <= part.start;
        let mut from = part.start;
        for range in &self.ranges[self.ranges.partition_point(after)..] {
            if range.start > from || from >= part.end() {
                break;
            }
            from = range.end();
        }
        from >= part.end()
    }
}

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

/// The planned extents that can still be let go, the best ratio first, and a reason for which others
/// cannot. `held` is of now, and `end` the end of the file.
pub(super) fn still_held(
    planned: &[PlannedExtent],
    held: Vec<HeldExtent>,
    end: FileOffset,
) -> (Vec<LetGo>, Option<SkipReason>) {
    let mut held: HashMap<_, _> = held.into_iter().map(|one| (one.extent, one)).collect();
    let (mut chosen, mut reason) = (Vec::new(), None);
    for planned in planned {
        match still(planned, held.remove(&planned.extent), end) {
            Ok(extent) => chosen.push(extent),
            Err(why) => {
                reason.get_or_insert(why);
            }
        }
    }
    if planned.is_empty() {
        reason = Some(SkipReason::AllReached);
    }
    chosen.sort_by(|a, b| b.frees_per_byte().total_cmp(&a.frees_per_byte()));
    (chosen, reason)
}

fn still(
    planned: &PlannedExtent,
    held: Option<HeldExtent>,
    end: FileOffset,
) -> Result<LetGo, SkipReason> {
    let held = held.ok_or(SkipReason::AllReached)?;
    if held.flags.contains(ExtentFlags::UNWRITTEN) {
        Err(SkipReason::Unwritten)
    } else if held.referring() > held.reached {
        Err(SkipReason::HeldByOthers)
    } else if !(held.parts.iter()).all(|part| part.end() <= end && planned.covers(*part)) {
        Err(SkipReason::Changed)
    } else {
        Ok(LetGo {
            extent: held.extent,
            frees: held.unreached(),
            parts: held.parts,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(extent: u64, ranges: &[(u64, u64)]) -> PlannedExtent {
        PlannedExtent {
            extent: PhysOffset(extent),
            ranges: ranges
                .iter()
                .map(|&(start, len)| FileRange::new(start, len))
                .collect(),
        }
    }

    fn held(extent: u64, parts: &[(u64, u64)]) -> HeldExtent {
        let parts: Vec<_> = parts
            .iter()
            .map(|&(start, len)| FileRange::new(start, len))
            .collect();
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
        let plan = [planned(1, &[(0, 50), (70, 10)]), planned(2, &[(50, 20)])];
        let now = vec![
            held(2, &[(50, 20)]),
            held(1, &[(0, 50), (70, 10)]),
            held(9, &[(90, 1)]),
        ];
        let (chosen, reason) = still_held(&plan, now, FileOffset(100));
        let found: Vec<_> = chosen.iter().map(|one| (one.extent.0, one.frees)).collect();
        assert_eq!(
            (found, reason),
            (vec![(2, Bytes(80)), (1, Bytes(40))], None)
        );
    }

    #[test]
    fn what_changed_since_planning_is_left_or_written_less() {
        let of = |now: HeldExtent, end| {
            let plan = [planned(1, &[(10, 20), (30, 10), (60, 10)])];
            let (chosen, reason) = still_held(&plan, vec![now], FileOffset(end));
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
        assert_eq!(of(held(1, &[(80, 10)]), 100), changed);
        assert_eq!(of(held(1, &[(60, 10)]), 65), changed, "cut off");
        assert_eq!(
            of(held(2, &[(10, 20)]), 100),
            (0, Some(SkipReason::AllReached))
        );
        let unwritten = HeldExtent {
            flags: ExtentFlags::UNWRITTEN,
            ..held(1, &[(10, 20)])
        };
        assert_eq!(of(unwritten, 100), (0, Some(SkipReason::Unwritten)));
    }
}
