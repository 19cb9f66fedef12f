//! The queue of blocks that are moved next, made from the file's extents.
//!
//! The queue is filled a window at a time, so that its size does not depend on that of the file.

use std::collections::VecDeque;

use indef_core::layout::{Extent, ExtentFlags};
use linux_abi::fiemap::Mapper;
use units::{Bytes, FileOffset, FileRange};

use crate::{
    Refusal, Target,
    cache::page,
    map::next_batch,
    survey::{Cursor, Survey, is_movable},
};

/// Cached pages are looked at, dropped and restored in windows of at most this size, aligned to it:
/// no folio of ext4 is larger (`EXT4_MAX_PAGECACHE_ORDER`, fs/ext4/inode.c, v6.18, for 4 KiB blocks).
pub(super) const WINDOW: Bytes = Bytes::mib(8);

/// Blocks that are consecutive in the file and in the donor.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) range: FileRange,
    pub(super) donor: FileOffset,
    pub(super) unwritten: bool,
    /// Where fragments begin inside, ordered.
    borders: Vec<FileOffset>,
}

/// A part of the piece, with its part of the donor.
#[derive(Debug)]
struct QueuedRange {
    range: FileRange,
    cursor: Cursor,
    donor_end: Bytes,
}

impl QueuedRange {
    /// The range as a whole; or, where it begins with large fragments, two parts: first the one
    /// that begins with the first small fragment, then the large ones before it.
    fn of(range: FileRange, survey: &Survey) -> impl Iterator<Item = Self> {
        let (middle, cursor) = survey.small.unwrap_or((range.start, survey.place));
        let behind = Self {
            range: FileRange::between(middle, range.end()),
            cursor,
            donor_end: survey.donor_len,
        };
        let before = Self {
            range: FileRange::between(range.start, middle),
            cursor: survey.place,
            donor_end: cursor.donor_len(),
        };
        let parts = [behind, before];
        parts.into_iter().filter(|part| !part.range.is_empty())
    }
}

impl Segment {
    /// How much of the segment to move at once: up to `limit`, and if possible up to where an old
    /// fragment ends, so that stopping there leaves no fragment cut.
    pub(super) fn choose(&self, limit: Bytes, page: Bytes) -> Bytes {
        let (segment, borders) = (self.range, &self.borders);
        if segment.len <= limit {
            return segment.len;
        }
        let most = segment.start + limit;
        let behind = borders.partition_point(|border| *border <= most);
        let border = behind.checked_sub(1).map(|i| borders[i]);
        let whole_pages = most.align_down(page);
        match border {
            Some(border) if border > segment.start => border - segment.start,
            _ if whole_pages > segment.start => whole_pages - segment.start,
            _ => segment.len.min(page),
        }
    }
}

/// Blocks of one piece that are to be read and moved.
#[derive(Debug)]
pub(super) struct MoveQueue {
    /// Parts that have not become windows yet.
    rest: VecDeque<QueuedRange>,
    /// All extents, where the survey kept them.
    kept: Option<Vec<Extent>>,
    pub(super) to_read: VecDeque<FileRange>,
    pub(super) to_move: VecDeque<Segment>,
    page: Bytes,
}

impl MoveQueue {
    /// A queue for ranges, in order, with their surveys.
    pub(super) fn new(surveyed: Vec<(FileRange, Survey)>) -> Self {
        let parts = surveyed
            .iter()
            .flat_map(|(range, survey)| QueuedRange::of(*range, survey));
        let rest = parts.collect();
        let kept: Option<Vec<_>> = surveyed
            .into_iter()
            .map(|(_, survey)| survey.extents)
            .collect();
        Self {
            rest,
            kept: kept.map(|each| each.concat()),
            to_read: VecDeque::new(),
            to_move: VecDeque::new(),
            page: page(),
        }
    }

    /// Whether there may be another window.
    pub(super) fn has_more(&self) -> bool {
        !self.rest.is_empty()
    }

    /// Queue the next window. Returns the bytes from its first extent to its last, and how many of
    /// them are to be moved; `None` where nothing was queued, which need not be the end.
    pub(super) fn fill(
        &mut self,
        target: &Target,
        mapper: &mut Mapper,
    ) -> Result<Option<(FileRange, Bytes)>, Refusal> {
        let Some(rest) = self.rest.front().map(|part| part.range) else {
            return Ok(None);
        };
        let (extents, end) = self.next_extents(target, rest, mapper)?;
        let mut left = Bytes::ZERO;
        let mut last: Option<Extent> = None;
        for extent in &extents {
            let is_border = !last.is_some_and(|last| last.touches(extent));
            last = Some(*extent);
            left += self.add_segment(extent, is_border);
        }
        self.enter_up_to(end);
        let hull = extents.first().zip(last);
        Ok(hull.map(|(first, last)| (FileRange::between(first.file, last.file_end()), left)))
    }

    /// Note that everything up to `end` has become windows.
    fn enter_up_to(&mut self, end: FileOffset) {
        if let Some(part) = self.rest.front_mut() {
            part.range = FileRange::between(end, part.range.end());
            if part.range.is_empty() {
                self.rest.pop_front();
            }
        }
    }

    /// The extents of the next window, which begins with `rest`, and where the one after it begins.
    fn next_extents(
        &self,
        target: &Target,
        rest: FileRange,
        mapper: &mut Mapper,
    ) -> Result<(Vec<Extent>, FileOffset), Refusal> {
        let mut batch = Vec::new();
        let more = match &self.kept {
            Some(kept) => {
                batch.extend(kept.iter().filter_map(|extent| extent.clip(rest)));
                None
            }
            None => {
                let (file, path) = (&target.file, &target.path);
                next_batch(file, path, rest, false, mapper, &mut batch)?
            }
        };
        batch.retain(is_movable);
        let Some(first) = batch.first() else {
            return Ok((batch, more.unwrap_or(rest.end())));
        };
        let mut end = (first.file.align_down(WINDOW) + WINDOW).min(rest.end());
        if let Some(behind) = more {
            let whole_pages = behind.align_down(self.page).min(end);
            end = if whole_pages > first.file {
                whole_pages
            } else {
                behind
            };
        }
        let window = FileRange::between(rest.start, end);
        let inside = batch.iter().filter_map(|extent| extent.clip(window));
        Ok((inside.collect(), end))
    }

    /// Queue an extent, joined with the one before it if it continues that. Returns its length, or
    /// 0 where the donor has no place: the file has grown into its holes since the survey.
    fn add_segment(&mut self, extent: &Extent, is_border: bool) -> Bytes {
        let Some(part) = self.rest.front_mut() else {
            return Bytes::ZERO;
        };
        let mut after = part.cursor;
        let donor = after.place(extent.range(), self.page);
        if after.donor_len() > part.donor_end {
            return Bytes::ZERO;
        }
        part.cursor = after;
        // A call that ends inside a page would have the next one find that page dirty.
        let is_border = is_border && extent.file.get().is_multiple_of(self.page.get());
        let unwritten = extent.flags.contains(ExtentFlags::UNWRITTEN);
        match self.to_move.back_mut() {
            Some(last) if last.unwritten == unwritten && last.range.end() == extent.file => {
                last.range.len += extent.len;
                last.borders.extend(is_border.then_some(extent.file));
            }
            _ => self.to_move.push_back(Segment {
                range: extent.range(),
                donor,
                unwritten,
                borders: Vec::new(),
            }),
        }
        if !unwritten {
            match self.to_read.back_mut() {
                Some(last) if last.end() == extent.file => last.len += extent.len,
                _ => self.to_read.push_back(extent.range()),
            }
        }
        extent.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_layout::extent;

    const MIB: u64 = 1 << 20;

    fn segment(len: u64, borders: &[u64]) -> Segment {
        Segment {
            range: FileRange::new(MIB, len),
            donor: FileOffset(0),
            unwritten: false,
            borders: borders.iter().map(|at| FileOffset(*at)).collect(),
        }
    }

    #[test]
    fn a_call_ends_where_a_fragment_ends_if_it_can() {
        let page = Bytes(4096);
        let choose = |segment: &Segment, limit| segment.choose(Bytes(limit), page).get();
        let many = segment(MIB, &[MIB, MIB + 40_960, MIB + 81_920]);
        assert_eq!(choose(&many, 65_536), 40_960);
        assert_eq!(choose(&many, 81_920), 81_920);
        assert_eq!(choose(&many, 20_000), 16_384, "whole pages");
        assert_eq!(choose(&many, 1), 4096, "at least a page");
        assert_eq!(choose(&many, 2 * MIB), MIB);
        assert_eq!(choose(&segment(1024, &[MIB]), 1), 1024);
    }

    #[test]
    fn large_fragments_at_the_beginning_come_last() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, b"only its path matters").unwrap();
        let target = Target::open(&path).unwrap();
        let written = ExtentFlags::empty();
        let extents = vec![
            extent(0, 100 * MIB, MIB, written),
            extent(MIB, 300 * MIB, 4096, written),
            extent(MIB + 4096, 500 * MIB, 4096, ExtentFlags::UNWRITTEN),
        ];
        let mut before = Cursor::default();
        before.place(FileRange::new(0, MIB), Bytes(4096));
        let survey = Survey {
            small: Some((FileOffset(MIB), before)),
            donor_len: Bytes(MIB + 8192),
            extents: Some(extents),
            ..Survey::default()
        };
        let mut queue = MoveQueue::new(vec![(FileRange::new(0, 2 * MIB), survey)]);
        let mut mapper = Mapper::default();
        while queue.has_more() {
            queue.fill(&target, &mut mapper).unwrap();
        }
        let moves: Vec<_> = queue
            .to_move
            .iter()
            .map(|s| (s.range.start.get(), s.donor.get(), s.unwritten))
            .collect();
        let wanted = [
            (MIB, MIB, false),
            (MIB + 4096, MIB + 4096, true),
            (0, 0, false),
        ];
        assert_eq!(moves, wanted);
        assert_eq!(
            queue.to_read,
            [FileRange::new(MIB, 4096), FileRange::new(0, MIB)]
        );
    }
}
