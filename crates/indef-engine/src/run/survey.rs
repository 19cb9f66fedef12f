//! Count a file's fragments and judge ranges of it, in one pass over its map and in little memory
//! however many extents it has.
//!
//! The map is taken in windows. Each window begins a little before the end of the one before, so
//! that what is known only from two neighbours (whether they touch) is seen at every place.

use indef_core::layout::{Extent, ExtentFlags};
use indef_fs::{Mapper, Refusal, Target};
use units::{Bytes, FileOffset, FileRange};

use super::{
    backend::Backend,
    extent_maps::{MapBuilder, MapEntry},
};

/// The smallest window: 65,536 extents of 4 KiB at most, a few MiB.
const WINDOW: u64 = 256 << 20;
/// A window with fewer extents than this lets the next one be twice as long.
const SPARSE: usize = 16 << 10;
/// How far a window reaches back over the border: the largest extent of which the place is
/// understood only beside its neighbour (a compressed one of Btrfs).
const OVERLAP: u64 = 128 << 10;

/// What a pass over a file found.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// Fragments of the file.
    pub(super) fragments: u64,
    /// Some data has no place yet (it is being written right now).
    pub(super) unplaced: bool,
    /// The ranges that were asked about, in order.
    pub(super) ranges: Vec<Judged>,
    /// The map, if it was asked for.
    pub(super) map: Vec<MapEntry>,
}

/// What is known of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Judged {
    pub(super) range: FileRange,
    /// Fragments that intersect it.
    pub(super) fragments: u64,
    /// The fewest that it could have: runs of bytes without a hole.
    pub(super) ideal: u64,
    /// Ends at which a fragment reaches across.
    pub(super) cuts: u64,
    /// Allocated bytes: new place that moving it needs.
    pub(super) allocated: Bytes,
    /// Bytes that moving it writes: allocated and written ones.
    pub(super) cost: Bytes,
    /// The end of its first fragment.
    lead_end: FileOffset,
    /// What moving the first fragment would write.
    lead_cost: Bytes,
}

impl Judged {
    /// The range without its first fragment, if that is still worth moving. It begins where a
    /// fragment begins, so it has no more cuts than the whole.
    pub(super) fn without_lead(&self) -> Option<Self> {
        let tail = Self {
            range: FileRange::between(self.lead_end, self.range.end()),
            fragments: self.fragments.checked_sub(1)?,
            cost: self.cost.saturating_sub(self.lead_cost),
            ..*self
        };
        (tail.fragments > tail.ideal && tail.change() <= 0).then_some(tail)
    }

    /// By how much moving it changes the file's number of fragments: each hole-free part becomes
    /// one, and each cut leaves a remainder.
    pub(super) fn change(&self) -> i64 {
        (self.ideal + self.cuts) as i64 - self.fragments as i64
    }
}

/// Go over the map of the file up to `end` and judge `ranges` (ordered, disjoint).
pub(super) fn survey(
    backend: &dyn Backend,
    target: &Target,
    end: Bytes,
    sync: bool,
    ranges: &[FileRange],
    keep_map: bool,
    mapper: &mut Mapper,
) -> Result<Survey, Refusal> {
    let mut pass = Pass {
        survey: Survey::default(),
        map: keep_map.then(MapBuilder::default),
        ranges,
        next: 0,
    };
    let (mut start, mut fresh_from, mut length, mut sync) = (0, 0, WINDOW, sync);
    while fresh_from < end.get() {
        let window_end = fresh_from.saturating_add(length).min(end.get());
        let window = FileRange::between(FileOffset(start), FileOffset(window_end));
        let layout = backend.map(target, window, sync, mapper)?;
        // Once for the whole file.
        sync = false;
        let mut previous: Option<Extent> = None;
        for extent in layout.extents() {
            if extent.file_end().get() > fresh_from {
                let known = extent.file.get() < fresh_from;
                let range = FileRange::between(FileOffset(fresh_from), FileOffset(window_end));
                if let Some(fresh) = extent.clip(range) {
                    let before = if known {
                        extent.clip(FileRange::new(0, fresh_from))
                    } else {
                        previous
                    };
                    pass.extent(&fresh, before.as_ref());
                }
            }
            previous = Some(*extent);
        }
        if layout.extents().len() < SPARSE {
            length = length.saturating_mul(2);
        } else {
            length = WINDOW;
        }
        fresh_from = window_end;
        start = window_end.saturating_sub(OVERLAP);
    }
    Ok(pass.finish())
}

struct Pass<'a> {
    survey: Survey,
    map: Option<MapBuilder>,
    ranges: &'a [FileRange],
    /// The first of them that does not lie wholly behind.
    next: usize,
}

impl Pass<'_> {
    /// The next extent, and what lies right before it.
    fn extent(&mut self, extent: &Extent, before: Option<&Extent>) {
        let continues = before.is_some_and(|before| before.touches(extent));
        let borders = before.is_some_and(|before| before.file_end() == extent.file);
        self.survey.fragments += u64::from(!continues);
        self.survey.unplaced |= extent.flags.contains(ExtentFlags::UNPLACED);
        if let Some(map) = &mut self.map {
            map.add(extent, continues);
        }
        if continues
            && let Some(last) = self.survey.ranges.last_mut()
            && last.range.end() == extent.file
        {
            last.cuts += 1;
        }
        while let Some(range) = self.ranges.get(self.next) {
            if range.start >= extent.file_end() {
                break;
            }
            self.judge(*range, extent, continues, borders);
            if range.end() > extent.file_end() {
                break;
            }
            self.next += 1;
        }
    }

    /// Add what `extent` says about `range`, if they meet.
    fn judge(&mut self, range: FileRange, extent: &Extent, continues: bool, borders: bool) {
        let Some(part) = extent.clip(range) else {
            return;
        };
        let ranges = &mut self.survey.ranges;
        if ranges.last().is_none_or(|last| last.range != range) {
            ranges.push(Judged {
                range,
                fragments: 0,
                ideal: 0,
                cuts: 0,
                allocated: Bytes::ZERO,
                cost: Bytes::ZERO,
                lead_end: range.start,
                lead_cost: Bytes::ZERO,
            });
        }
        let Some(judged) = ranges.last_mut() else {
            return;
        };
        let begins_inside = extent.file > range.start;
        judged.fragments += u64::from(!(begins_inside && continues));
        judged.ideal += u64::from(!(begins_inside && borders));
        let reaches_in = extent.file < range.start || (extent.file == range.start && continues);
        judged.cuts += u64::from(reaches_in);
        judged.cuts += u64::from(extent.file_end() > range.end());
        judged.allocated += part.len;
        let cost = match extent.flags.contains(ExtentFlags::UNWRITTEN) {
            true => Bytes::ZERO,
            false => part.len,
        };
        judged.cost += cost;
        if judged.fragments == 1 {
            judged.lead_end = part.file_end();
            judged.lead_cost += cost;
        }
    }

    fn finish(mut self) -> Survey {
        if let Some(map) = self.map {
            self.survey.map = map.finish();
        }
        self.survey
    }
}

#[cfg(test)]
mod tests {
    use indef_core::layout::Layout;
    use proptest::prelude::*;
    use units::PhysOffset;

    use super::*;

    fn judge(layout: &Layout, ranges: &[FileRange]) -> Survey {
        let mut pass = Pass {
            survey: Survey::default(),
            map: None,
            ranges,
            next: 0,
        };
        let mut previous = None;
        for extent in layout.extents() {
            pass.extent(extent, previous.as_ref());
            previous = Some(*extent);
        }
        pass.finish()
    }

    prop_compose! {
        fn layouts()(
            parts in prop::collection::vec((1u64..4, 0u64..2, 0u64..3, any::<bool>()), 0..24)
        ) -> Layout {
            let (mut file, mut phys) = (0, 1000);
            let mut extents = Vec::new();
            for (len, hole, gap, unwritten) in parts {
                file += hole;
                phys += gap;
                let mut flags = ExtentFlags::empty();
                flags.set(ExtentFlags::UNWRITTEN, unwritten);
                extents.push(Extent {
                    file: FileOffset(file),
                    phys: PhysOffset(phys),
                    len: Bytes(len),
                    flags,
                });
                file += len;
                phys += len;
            }
            Layout::new(extents)
        }
    }

    proptest! {
        #[test]
        fn one_pass_says_what_the_layout_says(
            layout in layouts(),
            ends in prop::collection::btree_set(0u64..80, 0..10),
        ) {
            let ends: Vec<_> = ends.into_iter().collect();
            let ranges: Vec<_> = ends
                .chunks_exact(2)
                .map(|pair| FileRange::between(FileOffset(pair[0]), FileOffset(pair[1])))
                .collect();
            let survey = judge(&layout, &ranges);
            prop_assert_eq!(survey.fragments, layout.fragments());
            for range in ranges {
                let judged = survey.ranges.iter().find(|j| j.range == range);
                let fragments = layout.fragments_in(range);
                prop_assert_eq!(judged.map_or(0, |j| j.fragments), fragments);
                let Some(judged) = judged else { continue };
                let predicted = indef_core::plan::predicted_fragments(&layout, &[range]);
                prop_assert_eq!(
                    layout.fragments().saturating_add_signed(judged.change()),
                    predicted
                );
                let written: Bytes = layout
                    .clipped(range)
                    .filter(|e| !e.flags.contains(ExtentFlags::UNWRITTEN))
                    .map(|e| e.len)
                    .sum();
                prop_assert_eq!(judged.cost, written);
                if let Some(tail) = judged.without_lead() {
                    prop_assert_eq!(tail.fragments, layout.fragments_in(tail.range));
                    let written: Bytes = layout
                        .clipped(tail.range)
                        .filter(|e| !e.flags.contains(ExtentFlags::UNWRITTEN))
                        .map(|e| e.len)
                        .sum();
                    prop_assert_eq!(tail.cost, written);
                    let predicted = indef_core::plan::predicted_fragments(&layout, &[tail.range]);
                    prop_assert!(predicted <= layout.fragments());
                }
            }
        }
    }
}
