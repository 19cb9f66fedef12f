//! What there is to move in a range, and where it goes in the donor.
//!
//! A *stretch* is a run of file blocks without a hole between them: what can become one fragment.
//! In the donor the stretches lie one behind the other, so that it can be allocated in one piece;
//! the kernel wants both offsets to be the same modulo the page size, so where blocks are smaller
//! than pages there may be a gap of less than a page between two.
//!
//! Large files are surveyed in a stream, without keeping their extents.

use indef_core::layout::{Extent, ExtentFlags};
use linux_abi::fiemap::Mapper;
use units::{Bytes, FileOffset, FileRange};

use crate::{Refusal, Target, cache::page, map::for_each_batch};

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
    /// At the end of what another one placed, for a range that does not continue its.
    pub(crate) fn behind(donor_len: Bytes) -> Self {
        Self {
            donor_end: donor_len.get(),
            file_end: None,
        }
    }

    /// The place in the donor for the file bytes `range`, behind everything placed before.
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

/// A range, counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Survey {
    /// Fragments inside.
    pub(crate) fragments: u64,
    /// Stretches inside: the fragments that there could be at best.
    pub(crate) stretches: u64,
    /// Where its place in the donor begins.
    pub(crate) place: Cursor,
    /// Bytes that the donor needs, with what is placed before.
    pub(crate) donor_len: Bytes,
    /// How many of the range's two ends lie inside a fragment, which moving would cut.
    pub(crate) cuts: u64,
    /// The extents, where they are so few that they need not be asked for again.
    pub(crate) extents: Option<Vec<Extent>>,
    /// The first fragment that is small, if it is not the first of all: with it to begin means never
    /// to have more fragments than before, wherever the move is interrupted.
    pub(crate) small: Option<(FileOffset, Cursor)>,
    /// Where the current fragment begins.
    open: Option<(FileOffset, Cursor)>,
    /// Where the last extent ends on the device.
    last_end: u64,
}

/// Such a fragment is moved by one call, however short calls have to be.
const SMALL: Bytes = Bytes::kib(64);

/// Extents that a survey keeps.
const KEEP: usize = 512;

impl Survey {
    /// Look at `range`, whose ends are block-aligned, to be placed from `place` on. With `sync`, the
    /// file is written back before.
    pub(crate) fn of(
        target: &Target,
        range: FileRange,
        place: Cursor,
        sync: bool,
        mapper: &mut Mapper,
    ) -> Result<Self, Refusal> {
        let mut survey = Self {
            place,
            extents: Some(Vec::new()),
            ..Self::default()
        };
        let mut cursor = place;
        let mut last: Option<Extent> = None;
        let page = page();
        let block = target.block_size.get();
        let around = FileRange::between(
            FileOffset(range.start.get().saturating_sub(block)),
            FileOffset(range.end().get().saturating_add(block)),
        );
        let visit = |batch: &[Extent]| {
            for extent in batch.iter().filter(|extent| is_movable(extent)) {
                survey.count_cuts(range, last.as_ref(), extent);
                last = Some(*extent);
                let Some(inside) = extent.clip(range) else {
                    continue;
                };
                survey.count(inside, &mut cursor, page);
            }
        };
        for_each_batch(&target.file, &target.path, around, sync, mapper, visit)?;
        survey.finish(&cursor, page);
        Ok(survey)
    }

    fn count(&mut self, extent: Extent, cursor: &mut Cursor, page: Bytes) {
        let continues = cursor.file_end == Some(extent.file.get());
        let touches = continues && self.last_end == extent.phys.get();
        if !touches {
            self.end_fragment(cursor, page);
            self.open = Some((extent.file, *cursor));
        }
        cursor.place(extent.range(), page);
        self.stretches += u64::from(!continues);
        self.fragments += u64::from(!touches);
        self.last_end = extent.phys.get().saturating_add(extent.len.get());
        match &mut self.extents {
            Some(extents) if extents.len() < KEEP => extents.push(extent),
            extents => *extents = None,
        }
    }

    /// The current fragment ends with what was placed last.
    fn end_fragment(&mut self, cursor: &Cursor, page: Bytes) {
        if let Some((start, place)) = self.open.take()
            && self.small.is_none()
            && start.get().is_multiple_of(page.get())
            && cursor
                .file_end
                .is_some_and(|end| end <= start.get() + SMALL.get())
        {
            self.small = Some((start, place));
        }
    }

    fn finish(&mut self, cursor: &Cursor, page: Bytes) {
        self.end_fragment(cursor, page);
        // Nothing to go back for.
        self.small = self.small.filter(|(_, place)| place.file_end.is_some());
        self.donor_len = cursor.donor_len();
    }

    /// The two ends of the range: is the block before it the same fragment, and the one behind?
    fn count_cuts(&mut self, range: FileRange, last: Option<&Extent>, extent: &Extent) {
        for end in [range.start, range.end()] {
            let inside = extent.file < end && end < extent.file_end();
            let between = extent.file == end && last.is_some_and(|last| last.touches(extent));
            self.cuts += u64::from(inside || between);
        }
    }

    /// Whether everything is in as few fragments as its holes allow.
    pub(crate) fn is_contiguous(&self) -> bool {
        self.fragments <= self.stretches
    }

    /// Whether a donor of so many fragments is a better place: the file must not have more fragments
    /// than before, and the range must have fewer, by a tenth at least, since it costs writing all
    /// of it. Each border between two fragments of the donor cuts at most one stretch.
    pub(crate) fn is_improved_by(&self, donor_fragments: u64) -> bool {
        let predicted = self.stretches + donor_fragments.saturating_sub(1);
        let wanted = self.cuts.max(self.fragments / 10).max(1);
        predicted + wanted <= self.fragments
    }

    /// How many fragments fewer the file will have at least.
    pub(crate) fn gain(&self, donor_fragments: u64) -> u64 {
        let predicted = self.stretches + donor_fragments.saturating_sub(1);
        self.fragments.saturating_sub(predicted + self.cuts)
    }
}

#[cfg(test)]
mod tests {
    use units::PhysOffset;

    use super::*;

    fn extent(file: u64, phys: u64, len: u64) -> Extent {
        Extent {
            file: FileOffset(file),
            phys: PhysOffset(phys),
            len: Bytes(len),
            flags: ExtentFlags::empty(),
        }
    }

    fn survey(range: FileRange, extents: &[Extent]) -> Survey {
        let mut survey = Survey::default();
        let mut cursor = Cursor::default();
        let mut last = None;
        for extent in extents {
            survey.count_cuts(range, last.as_ref(), extent);
            last = Some(*extent);
            if let Some(inside) = extent.clip(range) {
                survey.count(inside, &mut cursor, Bytes(4096));
            }
        }
        survey.finish(&cursor, Bytes(4096));
        survey
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
        assert_eq!((whole.fragments, whole.stretches, whole.cuts), (3, 2, 0));
        assert!(whole.is_improved_by(1) && !whole.is_improved_by(2));
        let part = survey(FileRange::new(4096, 32_768), &extents);
        assert_eq!((part.fragments, part.stretches, part.cuts), (3, 2, 2));
        assert!(!part.is_improved_by(1));
        let border = survey(FileRange::new(8192, 8192), &extents);
        assert_eq!((border.fragments, border.stretches, border.cuts), (2, 1, 1));
        assert!(border.is_improved_by(1));
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
    fn little_gain_is_no_gain() {
        let many = Survey {
            fragments: 100,
            stretches: 1,
            ..Survey::default()
        };
        assert!(many.is_improved_by(90) && !many.is_improved_by(91));
        let contiguous = Survey {
            fragments: 2,
            stretches: 2,
            ..Survey::default()
        };
        assert!(contiguous.is_contiguous() && !contiguous.is_improved_by(1));
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
