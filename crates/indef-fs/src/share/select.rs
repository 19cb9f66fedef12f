//! Selects the runs of a window that can move together with all their holders, and computes the layouts
//! afterwards. Pure.
//!
//! An extent is freed when nobody refers to any part of it any more. So it moves only if every part of it that
//! anybody refers to moves: it is *whole*. An extent of which somebody keeps a part, however small, would stay
//! allocated, and the copy would come on top of it.

use std::collections::{BTreeMap, btree_map::Entry};

use indef_core::{
    SkipReason,
    layout::{Extent, ExtentFlags, Layout},
};
use units::{Bytes, FileOffset, FileRange, PhysOffset};

/// Longer parts stay, since hardly any read meets the end of one, and two of them would be compared in one call.
pub(crate) const LONG: u64 = 8 << 20;

/// The most that one call compares: longer ones only hold the locks longer. Each unit gets a place of its own, near the
/// last or not.
pub(crate) const UNIT: Bytes = Bytes::mib(2);

/// A part of an extent that a file refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The first byte in the file.
    pub(crate) offset: u64,
    /// Bytes of the file.
    pub(crate) len: u64,
    /// The address of the extent: the same for all parts of it.
    pub(crate) extent: u64,
    /// Where in the extent the part begins.
    pub(crate) into: u64,
    pub(crate) state: PartState,
}

/// The state of the data of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartState {
    /// It lies there as it is.
    Written,
    /// Compressed.
    Encoded,
    /// Allocated, and not written.
    Unwritten,
}

/// A file that refers to extents of a window.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileParts {
    /// Its parts, ordered. Of the target, those that begin in the window.
    pub(crate) parts: Vec<Part>,
    /// Its layout, with a bit on either side.
    pub(crate) layout: Layout,
    pub(crate) size: Bytes,
}

/// Bytes of a file that get their blocks from the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Where the bytes are in the copy, and so in the target.
    pub(crate) copy: FileOffset,
    /// Where they are in the file.
    pub(crate) file: FileOffset,
    pub(crate) len: Bytes,
}

impl Segment {
    /// The segment of the target itself.
    pub(crate) fn of_target(range: FileRange) -> Self {
        Self {
            copy: range.start,
            file: range.start,
            len: range.len,
        }
    }

    /// Its range in the file.
    pub(crate) fn range(&self) -> FileRange {
        FileRange {
            start: self.file,
            len: self.len,
        }
    }

    /// The part of it whose copy is inside of `range`.
    pub(crate) fn clip(&self, range: FileRange) -> Option<Self> {
        let whole = FileRange {
            start: self.copy,
            len: self.len,
        };
        let part = whole.intersect(range);
        (!part.is_empty()).then(|| Self {
            copy: part.start,
            file: self.file + (part.start - self.copy),
            len: part.len,
        })
    }

    /// The part of it that lies in `range` of the file.
    pub(crate) fn clip_in_file(&self, range: FileRange) -> Option<Self> {
        let part = self.range().intersect(range);
        (!part.is_empty()).then(|| Self {
            copy: self.copy + (part.start - self.file),
            file: part.start,
            len: part.len,
        })
    }

    /// The length to compare: a file ends with a part of a block.
    pub(crate) fn compared(&self, size: Bytes) -> Bytes {
        Bytes(size.get().saturating_sub(self.file.get())).min(self.len)
    }
}

/// The parts of a window that move.
#[derive(Debug, Default)]
pub(crate) struct Selected {
    /// Runs of the target without holes, ordered.
    pub(crate) runs: Vec<FileRange>,
    /// For each holder its segments of these runs, by their place in the copy.
    pub(crate) segments: Vec<Vec<Segment>>,
    /// The other parts of the target, in order, and why they stay.
    pub(crate) staying: Vec<(FileRange, SkipReason)>,
}

/// Select the runs of `asked` (ordered, disjoint) that can move and have fewer fragments afterwards, in no file more.
/// `staying` are extents that must stay, with the reason. Without `unshared`, only runs that somebody shares.
pub(crate) fn select(
    asked: &[FileRange],
    target: &FileParts,
    holders: &[FileParts],
    mut staying: BTreeMap<u64, SkipReason>,
    unshared: bool,
) -> Selected {
    let whole = whole_extents(asked, target, holders, &mut staying);
    let segments: Vec<Vec<Segment>> = holders
        .iter()
        .map(|holder| segments(holder, &whole))
        .collect();
    // A run that stays keeps its extents, also their parts in other runs.
    loop {
        let (runs, found) = runs(asked, target, &staying);
        let mut dropped = false;
        for run in &runs {
            let is_shared = segments
                .iter()
                .any(|all| clipped(all, *run).next().is_some());
            let reason = match is_shared || unshared {
                true => judge(*run, target, holders, &segments),
                false => Some(SkipReason::NoGain),
            };
            if let Some(reason) = reason {
                dropped = true;
                for part in parts_in(target, *run) {
                    staying.entry(part.extent).or_insert(reason);
                }
            }
        }
        if dropped {
            continue;
        }
        let inside = |all: &Vec<Segment>| {
            let inside = runs.iter().flat_map(|run| clipped(all, *run));
            join(inside.collect())
        };
        return Selected {
            segments: segments.iter().map(inside).collect(),
            staying: found,
            runs,
        };
    }
}

/// The parts of `segments` whose copies are in `range`.
pub(crate) fn clipped(
    segments: &[Segment],
    range: FileRange,
) -> impl Iterator<Item = Segment> + '_ {
    segments
        .iter()
        .filter_map(move |segment| segment.clip(range))
}

/// Join segments that continue each other in the copy and in the file.
pub(crate) fn join(mut segments: Vec<Segment>) -> Vec<Segment> {
    segments.sort_by_key(|segment| (segment.copy, segment.file));
    segments.dedup_by(|next, last| {
        let continues = last.copy + last.len == next.copy && last.file + last.len == next.file;
        if continues {
            last.len += next.len;
        }
        continues
    });
    segments
}

/// Places of a whole extent in the target: where each part begins in the extent, and in the file; and its length.
type Places = Vec<(u64, u64, u64)>;

/// The extents of which every part that anybody refers to lies in `asked` of the target, each once. All others are
/// added to `staying`.
fn whole_extents(
    asked: &[FileRange],
    target: &FileParts,
    holders: &[FileParts],
    staying: &mut BTreeMap<u64, SkipReason>,
) -> BTreeMap<u64, Places> {
    let mut whole: BTreeMap<u64, Places> = BTreeMap::new();
    for part in &target.parts {
        match stays(part, asked) {
            Some(reason) => {
                staying.entry(part.extent).or_insert(reason);
            }
            None => whole
                .entry(part.extent)
                .or_default()
                .push((part.into, part.offset, part.len)),
        }
    }
    for (extent, places) in &mut whole {
        places.sort_unstable();
        if places.is_sorted_by(|a, b| a.0 + a.2 <= b.0) {
            continue;
        }
        // The target has the same bytes at two places.
        staying.entry(*extent).or_insert(SkipReason::HoldersDiffer);
    }
    for holder in holders {
        for part in &holder.parts {
            if let Entry::Vacant(entry) = staying.entry(part.extent)
                && let Some(places) = whole.get(&part.extent)
                && !is_covered(part, places, holder.size, target.size)
            {
                entry.insert(SkipReason::HoldersDiffer);
            }
        }
    }
    whole.retain(|extent, _| !staying.contains_key(extent));
    whole
}

/// Why a part of the target stays.
fn stays(part: &Part, asked: &[FileRange]) -> Option<SkipReason> {
    let range = FileRange::new(part.offset, part.len);
    let index = asked.partition_point(|asked| asked.end() <= range.start);
    let is_inside = (asked.get(index))
        .is_some_and(|asked| asked.start <= range.start && range.end() <= asked.end());
    match part.state {
        PartState::Encoded => Some(SkipReason::Compressed),
        PartState::Unwritten => Some(SkipReason::Unwritten),
        PartState::Written if part.len > LONG => Some(SkipReason::Contiguous),
        // It would keep what is outside.
        PartState::Written if !is_inside => Some(SkipReason::HoldersDiffer),
        PartState::Written => None,
    }
}

/// Whether a holder's part is in the target as a whole, and can be compared with it.
fn is_covered(part: &Part, places: &Places, size: Bytes, target_size: Bytes) -> bool {
    let mut next = part.into;
    let end = part.into + part.len;
    for segment in overlaps(part, places) {
        let into = part.into + (segment.file.get() - part.offset);
        let (ours, theirs) = (
            target_size.get().saturating_sub(segment.copy.get()),
            size.get().saturating_sub(segment.file.get()),
        );
        let len = segment.len.get();
        // A block that is cut by the end of a file has to be so in both.
        let is_comparable = (ours >= len && theirs >= len) || (ours == theirs && ours > 0);
        if into != next || !is_comparable {
            return false;
        }
        next += len;
    }
    part.state == PartState::Written && next == end
}

/// The segments of a holder's part, in order.
fn overlaps<'a>(part: &'a Part, places: &'a Places) -> impl Iterator<Item = Segment> + 'a {
    let end = part.into + part.len;
    places.iter().filter_map(move |(into, offset, len)| {
        let (first, last) = (part.into.max(*into), end.min(into + len));
        (first < last).then(|| Segment {
            copy: FileOffset(offset + (first - into)),
            file: FileOffset(part.offset + (first - part.into)),
            len: Bytes(last - first),
        })
    })
}

fn segments(holder: &FileParts, whole: &BTreeMap<u64, Places>) -> Vec<Segment> {
    let parts = holder.parts.iter();
    let segments = parts.filter_map(|part| Some(overlaps(part, whole.get(&part.extent)?)));
    join(segments.flatten().collect())
}

/// The parts of the target that follow each other without one that stays, and those that do, with their reasons.
fn runs(
    asked: &[FileRange],
    target: &FileParts,
    staying: &BTreeMap<u64, SkipReason>,
) -> (Vec<FileRange>, Vec<(FileRange, SkipReason)>) {
    let mut runs: Vec<FileRange> = Vec::new();
    let mut left: Vec<(FileRange, SkipReason)> = Vec::new();
    for range in asked {
        let mut begins = true;
        for part in parts_in(target, *range) {
            match staying.get(&part.extent) {
                Some(reason) => {
                    match left.last_mut() {
                        Some((range, same))
                            if same == reason && range.end().get() == part.offset =>
                        {
                            range.len += Bytes(part.len);
                        }
                        _ => left.push((FileRange::new(part.offset, part.len), *reason)),
                    }
                    begins = true;
                }
                None => {
                    match runs.last_mut() {
                        Some(run) if !begins && run.end().get() == part.offset => {
                            run.len += Bytes(part.len);
                        }
                        _ => runs.push(FileRange::new(part.offset, part.len)),
                    }
                    begins = false;
                }
            }
        }
    }
    (runs, left)
}

/// The parts of the target that begin in `range`.
fn parts_in(target: &FileParts, range: FileRange) -> impl Iterator<Item = &Part> {
    let parts = &target.parts;
    let first = parts.partition_point(|part| part.offset < range.start.get());
    let inside = move |part: &&Part| part.offset < range.end().get();
    parts[first..].iter().take_while(inside)
}

/// Why a run stays although it could move, or none.
fn judge(
    run: FileRange,
    target: &FileParts,
    holders: &[FileParts],
    segments: &[Vec<Segment>],
) -> Option<SkipReason> {
    // In one piece, far from everything.
    let copy = Layout::new(vec![Extent {
        file: FileOffset(0),
        phys: PhysOffset(1 << 62),
        len: Bytes(1 << 62),
        flags: ExtentFlags::empty(),
    }]);
    if target.layout.fragments_in(run) <= run.len.div_ceil(UNIT) {
        return Some(SkipReason::Contiguous);
    }
    if change(&target.layout, &[Segment::of_target(run)], &copy) > 0 {
        return Some(SkipReason::NoGain);
    }
    let is_harmed = |(holder, segments): (&FileParts, &Vec<Segment>)| {
        let segments: Vec<_> = clipped(segments, run).collect();
        change(&holder.layout, &segments, &copy) > 0
    };
    (holders.iter().zip(segments))
        .any(is_harmed)
        .then_some(SkipReason::HoldersDiffer)
}

/// By how many fragments a file has more once `segments` of it lie where `copy` says.
pub(crate) fn change(layout: &Layout, segments: &[Segment], copy: &Layout) -> i64 {
    let first = segments.iter().map(|segment| segment.file).min();
    let end = segments.iter().map(|segment| segment.range().end()).max();
    let (Some(first), Some(end)) = (first, end) else {
        return 0;
    };
    // The neighbours tell whether an end is cut.
    let around = FileRange::between(
        FileOffset(first.get().saturating_sub(1)),
        FileOffset(end.get().saturating_add(1)),
    );
    let after = placed(layout, segments, copy, around).fragments();
    after as i64 - layout.fragments_in(around) as i64
}

/// The layout of `within` once `segments` lie where `copy` says.
pub(crate) fn placed(
    layout: &Layout,
    segments: &[Segment],
    copy: &Layout,
    within: FileRange,
) -> Layout {
    let mut segments = segments.to_vec();
    segments.sort_unstable_by_key(|segment| segment.file);
    let mut extents: Vec<Extent> = Vec::new();
    let mut place = within.start;
    for segment in segments.iter().filter_map(|s| s.clip_in_file(within)) {
        extents.extend(layout.clipped(FileRange::between(place, segment.file)));
        let copied = FileRange {
            start: segment.copy,
            len: segment.len,
        };
        extents.extend(copy.clipped(copied).map(|extent| Extent {
            file: segment.file + (extent.file - segment.copy),
            ..extent
        }));
        place = segment.range().end();
    }
    extents.extend(layout.clipped(FileRange::between(place, within.end())));
    Layout::new(extents)
}

#[cfg(test)]
mod tests;
