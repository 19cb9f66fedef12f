//! The layout of a range: its fragments, its stretches, and where these go in the donor.
//!
//! A *stretch* is a run of file blocks without a hole between them: it can become one fragment. In
//! the donor the stretches lie one after the other, so that it can be allocated in one piece; the
//! kernel wants both offsets to be the same modulo the page size, so where blocks are smaller than
//! pages there may be a gap of less than a page between two.
//!
//! Large files are surveyed in a stream, without keeping their extents.

use indef_core::layout::{Extent, ExtentFlags, FragmentCount, FragmentCounter};
use linux_abi::fiemap::Mapper;
use units::{Bytes, FileOffset, FileRange};

use crate::{
    CountedRange, Refusal, Target,
    cache::page,
    map::{for_each_batch, map},
};

/// Write the file back and count the fragments of `ranges` (ordered, disjoint, block-aligned), as
/// [`Relocator::begin`](crate::Relocator::begin) wants them.
///
/// # Errors
///
/// As [`map`].
pub fn count_ranges(target: &Target, ranges: &[FileRange]) -> Result<Vec<CountedRange>, Refusal> {
    let (mut mapper, mut sync) = (Mapper::default(), true);
    let count = |range: &FileRange| -> Result<CountedRange, Refusal> {
        let (around, sync) = (around(target, *range), std::mem::take(&mut sync));
        let layout = map(&target.file, &target.path, around, sync, &mut mapper)?;
        let written = layout.clipped(*range).filter(is_written);
        Ok(CountedRange {
            range: *range,
            count: layout.count(*range),
            written: written.map(|extent| extent.len).sum(),
        })
    };
    ranges.iter().map(count).collect()
}

/// The range and one block on either side, which tell whether its ends are cut.
fn around(target: &Target, range: FileRange) -> FileRange {
    let block = target.block_size.get();
    FileRange::between(
        FileOffset(range.start.get().saturating_sub(block)),
        FileOffset(range.end().get().saturating_add(block)),
    )
}

/// Whether an extent has blocks that the kernel would swap. Delayed allocations have none yet.
pub(crate) fn is_movable(extent: &Extent) -> bool {
    !extent
        .flags
        .intersects(ExtentFlags::UNPLACED | ExtentFlags::INLINE | ExtentFlags::ENCODED)
}

/// Whether moving an extent means reading and writing it; unwritten ones are only remapped.
pub(crate) fn is_written(extent: &Extent) -> bool {
    is_movable(extent) && !extent.flags.contains(ExtentFlags::UNWRITTEN)
}

/// Where stretches go in the donor.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cursor {
    /// First free byte of the donor.
    donor_end: u64,
    /// End of the last stretch in the file.
    file_end: Option<u64>,
}

impl Cursor {
    /// A cursor past the `donor_len` bytes that another one placed, for a range that does not
    /// continue that one's.
    pub(crate) fn behind(donor_len: Bytes) -> Self {
        Self {
            donor_end: donor_len.get(),
            file_end: None,
        }
    }

    /// The same in a donor that begins with a row. A range of a row or more begins as far into a row as
    /// it does in the file. A shorter one that ends in the row of the file in which it begins does so
    /// here, too, and needs no more space than its own for that.
    pub(crate) fn in_rows(donor_len: Bytes, range: FileRange, row: Bytes) -> Self {
        let (row, len) = (row.get(), range.len.get());
        let (here, there) = (donor_len.get() % row, range.start.get() % row);
        let gap = if len >= row {
            (there + row - here) % row
        } else if there + len <= row && here + len > row {
            row - here
        } else {
            0
        };
        Self::behind(Bytes(donor_len.get() + gap))
    }

    /// The place in the donor for the file bytes `range`, after everything placed before.
    pub(crate) fn place(&mut self, range: FileRange, page: Bytes) -> FileOffset {
        let start = range.start.get();
        if self.file_end != Some(start) {
            let gap = (start % page.get() + page.get() - self.donor_end % page.get()) % page.get();
            self.donor_end += gap;
        }
        let place = self.donor_end;
        self.donor_end += range.len.get();
        self.file_end = Some(range.end().get());
        FileOffset(place)
    }

    /// Bytes of the donor that are taken.
    pub(crate) fn donor_len(&self) -> Bytes {
        Bytes(self.donor_end)
    }
}

/// The survey of a range. Extents that cannot be moved count as holes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Survey {
    /// Its fragments; its pieces are the stretches.
    pub(crate) count: FragmentCount,
    /// Where its place in the donor begins.
    pub(crate) place: Cursor,
    /// Bytes that the donor needs, with those that are placed before.
    pub(crate) donor_len: Bytes,
    /// The extents, where they are so few that they need not be asked for again.
    pub(crate) extents: Option<Vec<Extent>>,
    /// The first fragment that is small, if it is not the first of all. Starting there keeps the
    /// number of fragments from rising, wherever the move is interrupted.
    pub(crate) small: Option<(FileOffset, Cursor)>,
}

/// The longest fragment that is small: such a one is moved by one call, however short calls have to
/// be.
const SMALL: Bytes = Bytes::kib(64);

/// Extents that a survey keeps.
const KEEP: usize = 512;

impl Survey {
    /// Look at `range`, whose ends are block-aligned, to be placed from `place` on.
    pub(crate) fn of(
        target: &Target,
        range: FileRange,
        place: Cursor,
        mapper: &mut Mapper,
    ) -> Result<Self, Refusal> {
        let mut pass = SurveyPass::new(range, place, page());
        let around = around(target, range);
        for_each_batch(&target.file, &target.path, around, false, mapper, |batch| {
            batch.iter().for_each(|extent| pass.add(extent));
        })?;
        Ok(pass.finish())
    }
}

/// A survey under way.
struct SurveyPass {
    survey: Survey,
    counter: FragmentCounter,
    cursor: Cursor,
    last: Option<Extent>,
    /// Where the current fragment begins.
    open: Option<(FileOffset, Cursor)>,
    page: Bytes,
}

impl SurveyPass {
    fn new(range: FileRange, place: Cursor, page: Bytes) -> Self {
        Self {
            survey: Survey {
                place,
                extents: Some(Vec::new()),
                ..Survey::default()
            },
            counter: FragmentCounter::new(range),
            cursor: place,
            last: None,
            open: None,
            page,
        }
    }

    fn add(&mut self, extent: &Extent) {
        if !is_movable(extent) {
            return;
        }
        let range = self.counter.range();
        let last = self.last.replace(*extent);
        self.counter.add(extent, last.as_ref());
        let Some(inside) = extent.clip(range) else {
            return;
        };
        let continues = last.is_some_and(|last| last.touches(extent));
        if !(continues && extent.file > range.start) {
            self.end_fragment();
            self.open = Some((inside.file, self.cursor));
        }
        self.cursor.place(inside.range(), self.page);
        match &mut self.survey.extents {
            Some(extents) if extents.len() < KEEP => extents.push(inside),
            extents => *extents = None,
        }
    }

    /// End the current fragment with the extent that was placed last.
    fn end_fragment(&mut self) {
        if let Some((start, place)) = self.open.take()
            && self.survey.small.is_none()
            && start.get().is_multiple_of(self.page.get())
            && self
                .cursor
                .file_end
                .is_some_and(|end| end <= start.get() + SMALL.get())
        {
            self.survey.small = Some((start, place));
        }
    }

    fn finish(mut self) -> Survey {
        self.end_fragment();
        // Where the first fragment of all is small, there is nothing to go back for.
        let small = self.survey.small;
        Survey {
            count: self.counter.count(),
            donor_len: self.cursor.donor_len(),
            small: small.filter(|(_, place)| place.file_end.is_some()),
            ..self.survey
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_layout::{self, NONE};

    fn extent(file: u64, phys: u64, len: u64) -> Extent {
        test_layout::extent(file, phys, len, NONE)
    }

    fn survey(range: FileRange, extents: &[Extent]) -> Survey {
        let mut pass = SurveyPass::new(range, Cursor::default(), Bytes(4096));
        extents.iter().for_each(|extent| pass.add(extent));
        pass.finish()
    }

    #[test]
    fn fragments_stretches_and_cuts_are_counted() {
        let extents = [
            extent(0, 100_000, 8192),
            extent(8192, 108_192, 4096),
            extent(12_288, 500_000, 4096),
            extent(32_768, 600_000, 8192),
        ];
        let whole = survey(FileRange::new(0, 40_960), &extents);
        let counted = |survey: &Survey| {
            let count = survey.count;
            (count.fragments, count.pieces, count.cuts())
        };
        assert_eq!(counted(&whole), (3, 2, 0));
        assert!(whole.count.is_better_in(1) && !whole.count.is_better_in(2));
        let part = survey(FileRange::new(4096, 32_768), &extents);
        assert_eq!(counted(&part), (3, 2, 2));
        assert!(!part.count.is_better_in(1));
        let border = survey(FileRange::new(8192, 8192), &extents);
        assert_eq!(counted(&border), (2, 1, 1));
        assert!(border.count.is_better_in(1));
    }

    #[test]
    fn a_small_fragment_behind_a_large_one_is_found() {
        let mib = 1 << 20;
        let extents = [
            extent(0, mib, mib),
            extent(mib, 9 * mib, 2 * mib),
            extent(4 * mib, 20 * mib, 65_536),
            extent(4 * mib + 65_536, 30 * mib, 4096),
        ];
        let whole = FileRange::new(0, 8 * mib);
        let (start, place) = survey(whole, &extents).small.unwrap();
        assert_eq!(start, FileOffset(4 * mib));
        assert_eq!(place.donor_len(), Bytes(3 * mib));
        assert!(
            survey(whole, &extents[2..]).small.is_none(),
            "the first of all"
        );
        assert!(survey(whole, &extents[..2]).small.is_none(), "none");
    }

    #[test]
    fn ranges_lie_in_rows_as_they_do_in_the_file() {
        let place = |donor_len, start, len| {
            let range = FileRange::new(start, len);
            Cursor::in_rows(Bytes(donor_len), range, Bytes(100)).donor_end
        };
        // A row or more: congruent.
        assert_eq!(place(0, 0, 100), 0);
        assert_eq!(place(0, 730, 100), 30);
        assert_eq!(place(340, 730, 250), 430);
        // Less: it does not reach into another row if it need not.
        assert_eq!(place(340, 700, 60), 340);
        assert_eq!(place(341, 700, 60), 400);
        assert_eq!(place(341, 770, 60), 341);
    }

    #[test]
    fn stretches_are_packed_congruent_to_pages() {
        let page = Bytes(4096);
        let mut cursor = Cursor::default();
        let place =
            |cursor: &mut Cursor, start, len| cursor.place(FileRange::new(start, len), page).get();
        assert_eq!(place(&mut cursor, 1024, 2048), 1024);
        assert_eq!(place(&mut cursor, 3072, 5120), 3072);
        assert_eq!(place(&mut cursor, 1 << 30, 1024), 8192);
        assert_eq!(place(&mut cursor, (1 << 30) + 7168, 1024), 11_264);
        assert_eq!(cursor.donor_len(), Bytes(12_288));
    }
}
