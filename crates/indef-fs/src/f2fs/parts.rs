//! Which parts of a file are worth a call, and where one ends.

use std::collections::VecDeque;

use indef_core::{
    SkipReason,
    layout::{Extent, ExtentFlags, FragmentCount},
};
use linux_abi::fiemap::Mapper;
use units::{Bytes, FileOffset, FileRange};

use crate::{
    CountedRange, Refusal, Target,
    map::next_batch,
    survey::{Cursor, Survey, is_movable},
};

/// A part that is moved by one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) range: FileRange,
    /// The rest of the range that it belongs to comes next, and should lie after it.
    pub(super) continues: bool,
}

/// The rest of a file that is to be moved.
pub(super) struct Parts {
    ranges: VecDeque<FileRange>,
    /// A new place may be broken where a section ends.
    section: Bytes,
    /// F2FS's block: the kernel's calls take no other alignment (`F2FS_BLKSIZE`).
    block: Bytes,
    mapper: Mapper,
}

impl Parts {
    /// The parts of the ranges that hold fragments to join.
    ///
    /// # Errors
    ///
    /// There is none: the reason.
    pub(super) fn of(
        target: &Target,
        ranges: &[CountedRange],
        section: Bytes,
    ) -> Result<Self, Refusal> {
        let fail = |error| target.error("look at the file", None, error);
        let size = target.file.metadata().map_err(fail)?.len();
        let block = target.block_size;
        let asked: Vec<_> = ranges.iter().map(|counted| counted.range).collect();
        if inside(&asked, size, block).is_empty() {
            return Err(SkipReason::OutOfRange.into());
        }
        let mut mapper = Mapper::default();
        let mut reason = SkipReason::Empty;
        let mut fragmented = Vec::with_capacity(ranges.len());
        for counted in ranges {
            // Where it will be cut is decided later.
            if counted.count.is_better_in(1) {
                fragmented.push(counted.range);
            } else if let Some(why) = why_not(target, counted.range, &mut mapper)? {
                reason = why;
            }
        }
        let ranges = inside(&fragmented, size, block);
        if ranges.is_empty() {
            return Err(reason.into());
        }
        Ok(Self {
            ranges,
            section,
            block,
            mapper,
        })
    }

    fn survey(&mut self, target: &Target, range: FileRange) -> Result<Survey, Refusal> {
        Survey::of(target, range, Cursor::default(), &mut self.mapper)
    }

    /// The next part that is worth a call; `None` where there is none left.
    pub(super) fn next(&mut self, target: &Target, limit: Bytes) -> Result<Option<Part>, Refusal> {
        let (file, path) = (&target.file, &target.path);
        let mut batch = Vec::new();
        while let Some(range) = self.ranges.front().copied() {
            let more = next_batch(file, path, range, false, &mut self.mapper, &mut batch)?;
            let Some(first) = batch.first() else {
                self.pass(more.unwrap_or(range.end()));
                continue;
            };
            let from_data = FileRange::between(first.file, range.end());
            let part = next_part(from_data, &batch, limit, self.block);
            self.pass(part.end());
            let survey = self.survey(target, part)?;
            if is_worth_it(survey.count, part.len, self.section) {
                return Ok(Some(Part {
                    range: part,
                    continues: part.end() < range.end(),
                }));
            }
        }
        Ok(None)
    }

    /// As [`Self::next`], but `None` where the part would have to be cut.
    pub(super) fn next_whole(
        &mut self,
        target: &Target,
        limit: Bytes,
    ) -> Result<Option<Part>, Refusal> {
        match self.ranges.front() {
            Some(range) if range.len <= limit => self.next(target, limit),
            _ => Ok(None),
        }
    }

    /// Put back a part that was not moved after all: it comes first the next time.
    pub(super) fn put_back(&mut self, part: Part) {
        match self.ranges.front_mut() {
            Some(rest) if part.continues && rest.start == part.range.end() => {
                *rest = FileRange::between(part.range.start, rest.end());
            }
            _ => self.ranges.push_front(part.range),
        }
    }

    fn pass(&mut self, end: FileOffset) {
        if let Some(range) = self.ranges.front_mut() {
            *range = FileRange::between(end, range.end());
            if range.is_empty() {
                self.ranges.pop_front();
            }
        }
    }
}

/// Whether moving a part joins more fragments than its ends cut, so that the file never has more, wherever in a section
/// the new place begins.
fn is_worth_it(count: FragmentCount, len: Bytes, section: Bytes) -> bool {
    let borders = len.get().div_ceil(section.get().max(1));
    count.is_better_in(borders.max(1)) && count.change(borders + 1) <= 0
}

/// Why a range that holds nothing to join is left out, if it has data.
fn why_not(
    target: &Target,
    range: FileRange,
    mapper: &mut Mapper,
) -> Result<Option<SkipReason>, Refusal> {
    let mut batch = Vec::new();
    let (file, path) = (&target.file, &target.path);
    next_batch(file, path, range, false, mapper, &mut batch)?;
    let is_inline = |extent: &Extent| extent.flags.contains(ExtentFlags::INLINE);
    Ok(if batch.iter().any(is_movable) {
        Some(SkipReason::Contiguous)
    } else if batch.iter().any(is_inline) {
        Some(SkipReason::Inline)
    } else {
        None
    })
}

/// The ranges block-aligned, in order, those that touch joined (a range that is moved by one call
/// is copied by one command, and keeps more of the device busy), and cut at the end of a file of
/// `size` bytes.
fn inside(ranges: &[FileRange], size: u64, block: Bytes) -> VecDeque<FileRange> {
    let end = FileOffset(size).align_up(block);
    let file = FileRange::between(FileOffset(0), end);
    let aligned = ranges.iter().map(|range| range.align_outward(block));
    let mut inside: Vec<FileRange> = aligned
        .map(|range| range.intersect(file))
        .filter(|range| !range.is_empty())
        .collect();
    inside.sort_unstable_by_key(|range| range.start);
    let mut merged: VecDeque<FileRange> = VecDeque::with_capacity(inside.len());
    for range in inside {
        match merged.back_mut() {
            Some(last) if range.start <= last.end() => {
                *last = FileRange::between(last.start, last.end().max(range.end()));
            }
            _ => merged.push_back(range),
        }
    }
    merged
}

/// The next part of `range` to be moved by one call: `limit` at most, and if possible up to where
/// a fragment begins, so that none is cut. `extents` are the first ones of the range.
fn next_part(range: FileRange, extents: &[Extent], limit: Bytes, block: Bytes) -> FileRange {
    let most = (range.start + limit).align_down(block).min(range.end());
    let most = most.max((range.start + block).min(range.end()));
    if most == range.end() {
        return range;
    }
    let borders = extents.windows(2).filter(|pair| !pair[0].touches(&pair[1]));
    let border = borders
        .map(|pair| pair[1].file)
        .take_while(|border| *border <= most)
        .last();
    match border {
        Some(border) if border > range.start => FileRange::between(range.start, border),
        _ => FileRange::between(range.start, most),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_layout::{self, NONE};
    use proptest::prelude::*;

    const BLOCK: Bytes = Bytes::kib(4);

    fn extent(file: u64, phys: u64, len: u64) -> Extent {
        test_layout::extent(file, phys, len, NONE)
    }

    #[test]
    fn ranges_are_aligned_and_end_with_the_file() {
        let ranges = [
            FileRange::new(5000, 10),
            FileRange::new(8192, 1 << 40),
            FileRange::new(1 << 30, 4096),
        ];
        assert_eq!(
            inside(&ranges, 10_000, BLOCK),
            [FileRange::new(4096, 8192)],
            "the first two touch"
        );
        assert!(inside(&ranges, 0, BLOCK).is_empty());
        let touching = [
            FileRange::new(65_536, 4096),
            FileRange::new(0, 8192),
            FileRange::new(20_480, 4096),
            FileRange::new(8192, 10_000),
        ];
        assert_eq!(
            inside(&touching, 1 << 20, BLOCK),
            [FileRange::new(0, 24_576), FileRange::new(65_536, 4096)]
        );
        // Blocks are as large as pages.
        assert_eq!(
            inside(&ranges[..1], 1 << 20, Bytes::kib(16)),
            [FileRange::new(0, 16_384)]
        );
    }

    #[test]
    fn a_part_ends_where_a_fragment_begins() {
        let extents = [
            extent(0, 1 << 20, 8192),
            extent(8192, 9 << 20, 8192),
            extent(16_384, (9 << 20) + 8192, 4096),
            extent(20_480, 5 << 20, 1 << 20),
        ];
        let range = FileRange::new(0, 20_480 + (1 << 20));
        let part = |limit| next_part(range, &extents, Bytes(limit), BLOCK).len.get();
        assert_eq!(part(12_288), 8192);
        assert_eq!(part(20_480), 20_480);
        assert_eq!(part(1 << 20), 20_480);
        assert_eq!(part(4096), 4096);
        assert_eq!(part(0), 4096, "at least one block");
        assert_eq!(part(1 << 30), range.len.get());
    }

    fn count(fragments: u64, pieces: u64, cuts: u64) -> FragmentCount {
        FragmentCount {
            fragments,
            pieces,
            cuts_start: cuts > 0,
            cuts_end: cuts > 1,
        }
    }

    #[test]
    fn a_part_is_moved_only_where_no_border_can_make_it_worse() {
        let section = Bytes::mib(32);
        let worth = |count, mib| is_worth_it(count, Bytes::mib(mib), section);
        assert!(worth(count(2, 1, 0), 4));
        assert!(!worth(count(3, 1, 2), 4));
        assert!(worth(count(4, 1, 2), 4));
        // 64 MiB lie in two sections at best, and in three at worst.
        assert!(!worth(count(2, 1, 0), 64));
        assert!(worth(count(3, 1, 0), 64));
        // Two fragments of which one reaches on become three where a section ends between.
        assert!(!worth(count(2, 1, 1), 4));
        assert!(worth(count(3, 1, 1), 4));
    }

    proptest! {
        #[test]
        fn parts_cover_a_range_without_overlap(
            lens in prop::collection::vec(1u64..40, 1..20),
            limit in 0u64..400_000,
        ) {
            let mut extents = Vec::new();
            let mut at = 0;
            for (i, len) in lens.iter().enumerate() {
                extents.push(extent(at, (i as u64 * 7 % 5) << 30, len * 4096));
                at += len * 4096;
            }
            let mut rest = FileRange::new(0, at);
            while !rest.is_empty() {
                let part = next_part(rest, &extents, Bytes(limit), BLOCK);
                prop_assert_eq!(part.start, rest.start);
                prop_assert!(!part.is_empty() && part.end() <= rest.end());
                prop_assert!(part.len.get() <= limit.max(4096));
                prop_assert_eq!(part.len.get() % 4096, 0);
                rest = FileRange::between(part.end(), rest.end());
                extents.retain(|e| e.file_end() > rest.start);
            }
        }
    }
}
