//! Count a file's fragments and judge ranges of it, in one pass over its map and in little memory
//! however many extents it has.
//!
//! The map is taken in windows. Each window begins a little before the end of the one before, so
//! that facts that are known only from two neighbours (whether they touch) are seen at every place.

use indef_core::layout::{Extent, ExtentFlags, FragmentCount, FragmentCounter};
use indef_fs::{CountedRange, Mapper, Refusal, Target};
use units::{Bytes, FileOffset, FileRange, PhysRange};

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

/// The findings of a pass over a file.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// Fragments of the file.
    pub(super) fragments: u64,
    /// Bytes of the file that are allocated and written.
    pub(super) written: Bytes,
    /// Some data has no place yet (it is being written right now).
    pub(super) unplaced: bool,
    /// Somebody else has some of it.
    pub(super) is_shared: bool,
    /// The ranges that were asked about and have data, in order; for each way in which they were cut.
    pub(super) ways: Vec<Vec<Judged>>,
    /// The map, if it was asked for.
    pub(super) map: Vec<MapEntry>,
}

/// A fragment as long as this costs readers next to nothing.
const LONG: Bytes = Bytes::mib(1);

/// A range as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Judged {
    pub(super) range: FileRange,
    pub(super) count: FragmentCount,
    /// Allocated bytes: as many bytes of new blocks as a move needs.
    pub(super) allocated: Bytes,
    /// Allocated and written bytes.
    pub(super) written: Bytes,
    /// The part of the device from its first to its last block.
    pub(super) hull: PhysRange,
    /// Its first fragment, with those that follow as long as they are [`LONG`].
    lead: Lead,
}

/// The first fragments of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lead {
    fragments: u64,
    end: FileOffset,
    /// Bytes that a move writes.
    written: Bytes,
}

impl Judged {
    /// Whether the first fragments are as long as what runs leave that were stopped.
    pub(super) fn has_long_lead(&self) -> bool {
        self.lead.written >= LONG
    }

    /// Whether fragments are long on average.
    pub(super) fn is_long(&self) -> bool {
        self.written.get() >= LONG.get().saturating_mul(self.count.fragments)
    }

    /// The range without its first fragments, if that is still worth moving.
    pub(super) fn without_lead(&self) -> Option<Self> {
        let tail = Self {
            range: FileRange::between(self.lead.end, self.range.end()),
            count: self.count.without_lead(self.lead.fragments),
            written: self.written.saturating_sub(self.lead.written),
            ..*self
        };
        (!tail.count.is_contiguous() && tail.is_safe()).then_some(tail)
    }

    /// Whether the file has no more fragments once the range is contiguous.
    pub(super) fn is_safe(&self) -> bool {
        self.count.change(1) <= 0
    }

    /// The range and its counts, for the engine.
    pub(super) fn counted(&self) -> CountedRange {
        CountedRange {
            range: self.range,
            count: self.count,
            written: self.written,
        }
    }
}

/// Go over the map of the file up to `end` and judge ranges: those of each of the `ways` (ordered, disjoint).
pub(super) fn survey(
    backend: &dyn Backend,
    target: &Target,
    end: Bytes,
    sync: bool,
    ways: &[Vec<FileRange>],
    keep_map: bool,
    mapper: &mut Mapper,
) -> Result<Survey, Refusal> {
    let mut pass = RangePass::new(ways, keep_map);
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

struct RangePass {
    survey: Survey,
    map: Option<MapBuilder>,
    ways: Vec<Way>,
}

/// Ranges that are judged.
struct Way {
    ranges: Vec<Judging>,
    /// The first of them that later extents can meet or continue.
    next: usize,
}

impl Way {
    fn new(ranges: &[FileRange]) -> Self {
        Self {
            ranges: ranges.iter().copied().map(Judging::new).collect(),
            next: 0,
        }
    }

    /// Take the next extent, with the one right before it.
    fn extent(&mut self, extent: &Extent, before: Option<&Extent>) {
        let end = extent.file_end();
        for judging in &mut self.ranges[self.next..] {
            if judging.counter.range().start >= end {
                break;
            }
            judging.add(extent, before);
        }
        // One that ends with this extent may be cut by the next.
        self.next += self.ranges[self.next..]
            .iter()
            .take_while(|judging| judging.counter.range().end() < end)
            .count();
    }

    fn finish(&self) -> Vec<Judged> {
        let judged = self.ranges.iter().map(Judging::judged);
        judged.filter(|range| range.count.fragments > 0).collect()
    }
}

impl RangePass {
    fn new(ways: &[Vec<FileRange>], keep_map: bool) -> Self {
        Self {
            survey: Survey::default(),
            map: keep_map.then(MapBuilder::default),
            ways: ways.iter().map(|ranges| Way::new(ranges)).collect(),
        }
    }

    /// Take the next extent, with the one right before it.
    fn extent(&mut self, extent: &Extent, before: Option<&Extent>) {
        let continues = before.is_some_and(|before| before.touches(extent));
        self.survey.fragments += u64::from(!continues);
        self.survey.written += written(extent);
        self.survey.unplaced |= extent.flags.contains(ExtentFlags::UNPLACED);
        self.survey.is_shared |= extent.flags.contains(ExtentFlags::SHARED);
        if let Some(map) = &mut self.map {
            map.add(extent, continues);
        }
        for way in &mut self.ways {
            way.extent(extent, before);
        }
    }

    fn finish(mut self) -> Survey {
        if let Some(map) = self.map {
            self.survey.map = map.finish();
        }
        self.survey.ways = self.ways.iter().map(Way::finish).collect();
        self.survey
    }
}

/// A range while the file's extents go by.
struct Judging {
    counter: FragmentCounter,
    allocated: Bytes,
    written: Bytes,
    hull: PhysRange,
    /// The fragments that are long, and the last one, which may go on.
    lead: Lead,
    last: Lead,
}

impl Judging {
    fn new(range: FileRange) -> Self {
        let none = Lead {
            fragments: 0,
            end: range.start,
            written: Bytes::ZERO,
        };
        Self {
            counter: FragmentCounter::new(range),
            allocated: Bytes::ZERO,
            written: Bytes::ZERO,
            hull: PhysRange::default(),
            lead: none,
            last: none,
        }
    }

    fn add(&mut self, extent: &Extent, before: Option<&Extent>) {
        self.counter.add(extent, before);
        let Some(part) = extent.clip(self.counter.range()) else {
            return;
        };
        self.allocated += part.len;
        self.written += written(&part);
        if !part.flags.contains(ExtentFlags::UNPLACED) {
            let place = PhysRange {
                start: part.phys,
                len: part.len,
            };
            self.hull = match self.hull.is_empty() {
                true => place,
                false => PhysRange::between(
                    self.hull.start.min(place.start),
                    self.hull.end().max(place.end()),
                ),
            };
        }
        let fragments = self.counter.count().fragments;
        if fragments > self.last.fragments {
            self.lead = self.lead();
        }
        self.last = Lead {
            fragments,
            end: part.file_end(),
            written: self.written,
        };
    }

    /// The first fragments, if the last one so far has ended.
    fn lead(&self) -> Lead {
        let (lead, last) = (self.lead, self.last);
        let is_long = last.written.saturating_sub(lead.written) >= LONG;
        match lead.fragments + 1 == last.fragments && (last.fragments == 1 || is_long) {
            true => last,
            false => lead,
        }
    }

    fn judged(&self) -> Judged {
        Judged {
            range: self.counter.range(),
            count: self.counter.count(),
            allocated: self.allocated,
            written: self.written,
            hull: self.hull,
            lead: self.lead(),
        }
    }
}

/// The part of an extent that moving it writes.
fn written(extent: &Extent) -> Bytes {
    match extent.flags.contains(ExtentFlags::UNWRITTEN) {
        true => Bytes::ZERO,
        false => extent.len,
    }
}

#[cfg(test)]
mod tests {
    use indef_core::layout::Layout;
    use proptest::prelude::*;
    use units::PhysOffset;

    use super::*;

    fn judge(layout: &Layout, ranges: &[FileRange]) -> Survey {
        let mut pass = RangePass::new(&[ranges.to_vec()], false);
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

    /// What stopped runs leave at the beginning of a range is its lead, as far as it is long.
    #[test]
    fn long_fragments_at_the_beginning_are_left_out() {
        const MIB: u64 = 1 << 20;
        let layout = |lens: &[u64]| {
            let mut file = 0;
            let extents = lens.iter().enumerate().map(|(i, len)| {
                file += len;
                Extent {
                    file: FileOffset(file - len),
                    phys: PhysOffset((i as u64 + 1) << 40),
                    len: Bytes(*len),
                    flags: ExtentFlags::empty(),
                }
            });
            Layout::new(extents.collect())
        };
        let (small, range) = (4096, FileRange::new(0, 8 * MIB));
        for (lens, lead, left) in [
            (
                &[2 * MIB, 3 * MIB, small, small, 2 * MIB, small][..],
                5 * MIB,
                4,
            ),
            (&[small, 2 * MIB, small, small], 2 * MIB + small, 2),
            (&[2 * MIB, small, 3 * MIB, small], 2 * MIB, 3),
        ] {
            let judged = judge(&layout(lens), &[range]).ways[0][0];
            let tail = judged.without_lead().unwrap();
            assert_eq!(tail.range.start.get(), lead, "{lens:?}");
            assert_eq!(tail.count.fragments, left, "{lens:?}");
            assert!(judged.has_long_lead());
        }
        // Nothing but long ones.
        let judged = judge(&layout(&[2 * MIB, 3 * MIB]), &[range]).ways[0][0];
        assert_eq!(judged.without_lead(), None);
        let judged = judge(&layout(&[small, small, 2 * MIB]), &[range]).ways[0][0];
        assert!(!judged.has_long_lead());
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
                let judged = survey.ways[0].iter().find(|j| j.range == range);
                let fragments = layout.fragments_in(range);
                prop_assert_eq!(judged.map_or(0, |j| j.count.fragments), fragments);
                let Some(judged) = judged else { continue };
                prop_assert_eq!(judged.count, layout.count(range));
                let predicted = indef_core::plan::predicted_fragments(&layout, &[range]);
                prop_assert_eq!(
                    layout.fragments().saturating_add_signed(judged.count.change(1)),
                    predicted
                );
                let written: Bytes = layout
                    .clipped(range)
                    .filter(|e| !e.flags.contains(ExtentFlags::UNWRITTEN))
                    .map(|e| e.len)
                    .sum();
                prop_assert_eq!(judged.written, written);
                if let Some(tail) = judged.without_lead() {
                    prop_assert_eq!(tail.count.fragments, layout.fragments_in(tail.range));
                    let written: Bytes = layout
                        .clipped(tail.range)
                        .filter(|e| !e.flags.contains(ExtentFlags::UNWRITTEN))
                        .map(|e| e.len)
                        .sum();
                    prop_assert_eq!(tail.written, written);
                    let predicted = indef_core::plan::predicted_fragments(&layout, &[tail.range]);
                    prop_assert!(predicted <= layout.fragments());
                }
            }
        }
    }
}
