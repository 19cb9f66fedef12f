//! The ranges that are asked for, taken a window at a time.

use std::collections::VecDeque;

use indef_core::SkipReason;
use units::{Bytes, FileRange};

use super::select::Part;
use crate::{Refusal, Target};

/// The bytes that are copied together: also the space that a copy takes before the old blocks are given up.
pub(crate) const WINDOW: Bytes = Bytes::mib(16);

/// Ranges that no window has taken yet.
#[derive(Debug)]
pub(crate) struct Asked(VecDeque<FileRange>);

/// The ranges of a window, and the parts of the file in them.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// Ordered, disjoint.
    pub(crate) ranges: Vec<FileRange>,
    pub(crate) parts: Vec<Part>,
    /// Bytes of the parts.
    pub(crate) bytes: Bytes,
}

impl Taken {
    /// From the beginning of the first to the end of the last.
    pub(crate) fn hull(&self) -> FileRange {
        match (self.ranges.first(), self.ranges.last()) {
            (Some(first), Some(last)) => FileRange::between(first.start, last.end()),
            _ => FileRange::default(),
        }
    }
}

impl Asked {
    /// # Errors
    ///
    /// [`SkipReason::OutOfRange`] where the file has nothing of the ranges.
    pub(crate) fn of(
        target: &Target,
        ranges: impl Iterator<Item = FileRange>,
    ) -> Result<Self, Refusal> {
        let file = FileRange::new(0, target.size.get()).align_outward(target.block_size);
        let inside = |range: FileRange| range.align_outward(target.block_size).intersect(file);
        let ranges: VecDeque<_> = ranges.map(inside).filter(|one| !one.is_empty()).collect();
        match ranges.is_empty() {
            true => Err(SkipReason::OutOfRange.into()),
            false => Ok(Self(ranges)),
        }
    }

    /// Whether windows have taken all of them.
    pub(crate) fn is_done(&self) -> bool {
        self.0.is_empty()
    }

    /// Leave the rest.
    pub(crate) fn end(&mut self) {
        self.0.clear();
    }

    /// Take the next window, of some `window` bytes. `parts_of` gets a range and a number of bytes, and tells the parts that begin in the
    /// range, up to so many bytes of them and the one that exceeds these. `None` if nothing is left.
    pub(crate) fn next(
        &mut self,
        window: Bytes,
        mut parts_of: impl FnMut(FileRange, Bytes) -> Result<Vec<Part>, Refusal>,
    ) -> Result<Option<Taken>, Refusal> {
        let mut taken = Taken::default();
        while taken.bytes < window
            && let Some(range) = self.0.pop_front()
        {
            let most = window - taken.bytes;
            let found = parts_of(range, most)?;
            let len: Bytes = found.iter().map(|part| Bytes(part.len)).sum();
            taken.bytes += len;
            let mut part = range;
            if len >= most
                && let Some(last) = found.last()
            {
                // Cut after the last one.
                let end = FileRange::new(last.offset, last.len).end().min(range.end());
                part = FileRange::between(range.start, end);
                let later = FileRange::between(end, range.end());
                if !later.is_empty() {
                    self.0.push_front(later);
                }
            }
            taken.ranges.push(part);
            taken.parts.extend(found);
        }
        Ok((!taken.ranges.is_empty()).then_some(taken))
    }
}

/// The parts of `asked` that are in none of `runs` (both ordered, disjoint).
pub(crate) fn others(asked: &[FileRange], runs: &[FileRange]) -> Vec<FileRange> {
    let mut others = Vec::new();
    for range in asked {
        let mut place = range.start;
        for run in runs.iter().filter(|run| run.overlaps(*range)) {
            others.push(FileRange::between(place, run.start));
            place = run.end();
        }
        others.push(FileRange::between(place, range.end()));
    }
    others.retain(|range| !range.is_empty());
    others
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_else_is_left_to_the_other_engine() {
        let asked = [FileRange::new(0, 10), FileRange::new(20, 10)];
        let runs = [FileRange::new(2, 3), FileRange::new(20, 10)];
        let expected = [FileRange::new(0, 2), FileRange::new(5, 5)];
        assert_eq!(others(&asked, &runs), expected);
        assert_eq!(others(&asked, &[]), asked);
    }

    #[test]
    fn a_window_ends_after_a_part_and_the_next_goes_on_there() {
        let (mib, all) = (1 << 20, 40 << 20);
        let parts_of = |range: FileRange, most: Bytes| {
            let first = range.start.get() / (3 * mib);
            let mut bytes = 0;
            let parts = (first..)
                .map(|n| (n * 3 * mib, 3 * mib))
                .take_while(|(offset, len)| {
                    let goes_on = bytes < most.get() && *offset < range.end().get();
                    bytes += len;
                    goes_on
                });
            let part = |(offset, len)| Part {
                offset,
                len,
                extent: offset,
                into: 0,
                state: super::super::select::PartState::Written,
            };
            Ok(parts.map(part).collect())
        };
        let mut asked = Asked(VecDeque::from([FileRange::new(0, all)]));
        let mut ends = Vec::new();
        let mut window = Bytes::mib(2);
        while let Some(taken) = asked.next(window, parts_of).unwrap() {
            ends.push(taken.hull().end().get() / mib);
            window = WINDOW;
        }
        assert_eq!(ends, [3, 21, 39, 40]);
        assert!(asked.is_done());
    }
}
