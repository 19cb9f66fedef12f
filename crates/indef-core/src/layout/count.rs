//! The account of fragments: the number that a file has once a range of it lies elsewhere.
//!
//! "A file never ends with more fragments than it had" (promise 3) rests on this one sum. Let `f`
//! fragments intersect a range, let `p` be the fewest that it can have (its *pieces* between holes),
//! and let `c` of its two ends be *cut*: one fragment lies on both sides. A new place for the range
//! replaces the `f` fragments by the `a` of the new place, and by a remainder of each cut one outside
//! of the range. So the file's number of fragments changes by
//!
//! ```text
//! a + c − f        with  p ≤ a ≤ p + n − 1
//! ```
//!
//! where the donor is in `n` fragments: each of its `n − 1` borders cuts at most one piece. (It is
//! one less where the donor happens to touch the data beside the range.)
//!
//! - Ranges that do not touch: their changes add up. A fragment that reaches from one range to the
//!   next is counted in both `f` and, as the remainder between them, in both `c`.
//! - Ranges that touch, joined to one: `f` and `p` add up, less 1 if the border between them is cut,
//!   since that fragment, and the piece around it, is counted on both sides; only the outer ends
//!   count for `c`. Without the layout `p` can come out too large, where two fragments meet at the
//!   border, which is on the safe side.
//! - A range without its first `n` fragments, its *lead*: `f − n`, at most `p`, and a beginning that is
//!   not cut.

use units::{Bytes, FileOffset, FileRange};

use super::{Extent, ExtentFlags, Layout};

/// The longest extent that compression makes (Btrfs, `BTRFS_MAX_UNCOMPRESSED`, v6.1).
pub(super) const ENCODED_MAX: Bytes = Bytes::kib(128);

/// The fragments of a range, and which of them reach out of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FragmentCount {
    /// Fragments that intersect the range.
    pub fragments: u64,
    /// The fewest that it can have: one for each piece without a hole, and more where a piece has
    /// encoded bytes, of which no extent is longer than 128 KiB.
    pub pieces: u64,
    /// A fragment reaches across the beginning of the range.
    pub cuts_start: bool,
    /// A fragment reaches across its end.
    pub cuts_end: bool,
}

impl FragmentCount {
    /// Whether the range is in as few fragments as it can be.
    #[must_use]
    pub fn is_contiguous(self) -> bool {
        self.fragments <= self.pieces
    }

    /// Fragments beyond the fewest possible.
    #[must_use]
    pub fn excess(self) -> u64 {
        self.fragments.saturating_sub(self.pieces)
    }

    /// The number of ends that are cut: 0 to 2.
    #[must_use]
    pub fn cuts(self) -> u64 {
        u64::from(self.cuts_start) + u64::from(self.cuts_end)
    }

    /// By how much the file's number of fragments changes when the range becomes `fragments`.
    #[must_use]
    pub fn change_to(self, fragments: u64) -> i64 {
        let after = fragments.saturating_add(self.cuts());
        signed(after).saturating_sub(signed(self.fragments))
    }

    /// By how much it changes at most when the range moves to a donor of `donor_fragments`.
    #[must_use]
    pub fn change(self, donor_fragments: u64) -> i64 {
        self.change_to(self.at_most(donor_fragments))
    }

    /// The least number of fragments that the file loses in a move to such a donor.
    #[must_use]
    pub fn gain(self, donor_fragments: u64) -> u64 {
        u64::try_from(-self.change(donor_fragments)).unwrap_or(0)
    }

    /// Whether such a donor is a better place: the file has no more fragments than before, and the
    /// range fewer, by a tenth at least, since all of it has to be written.
    #[must_use]
    pub fn is_better_in(self, donor_fragments: u64) -> bool {
        let fewer = self.fragments.saturating_sub(self.at_most(donor_fragments));
        fewer >= self.cuts().max(self.fragments / 10).max(1)
    }

    /// The count of this range and of `next`, which begins where it ends, as one range.
    #[must_use]
    pub fn join(self, next: Self) -> Self {
        let shared = u64::from(self.cuts_end && next.cuts_start);
        let add = |one: u64, other: u64| one.saturating_add(other).saturating_sub(shared);
        Self {
            fragments: add(self.fragments, next.fragments),
            pieces: add(self.pieces, next.pieces),
            cuts_start: self.cuts_start,
            cuts_end: next.cuts_end,
        }
    }

    /// The count of the range without its first `lead` fragments.
    #[must_use]
    pub fn without_lead(self, lead: u64) -> Self {
        Self {
            fragments: self.fragments.saturating_sub(lead),
            cuts_start: false,
            ..self
        }
    }

    /// The most fragments that the range has in a donor of `donor_fragments`.
    fn at_most(self, donor_fragments: u64) -> u64 {
        let borders = donor_fragments.saturating_sub(1);
        self.pieces.saturating_add(borders)
    }
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Counts the fragments of one range from a file's extents, given in order.
#[derive(Clone, Debug)]
pub struct FragmentCounter {
    range: FileRange,
    /// The count without the piece that the last extent belongs to.
    ended: FragmentCount,
    piece_fragments: u64,
    piece_encoded: Bytes,
}

impl FragmentCounter {
    /// A counter for `range` without any extents yet.
    #[must_use]
    pub fn new(range: FileRange) -> Self {
        Self {
            range,
            ended: FragmentCount::default(),
            piece_fragments: 0,
            piece_encoded: Bytes::ZERO,
        }
    }

    /// The range whose fragments are counted.
    #[must_use]
    pub fn range(&self) -> FileRange {
        self.range
    }

    /// Add an extent, given the one right `before` it if there is any. Every extent that meets the range
    /// has to be added, and the first one past it, which may continue the last; others may be.
    pub fn add(&mut self, extent: &Extent, before: Option<&Extent>) {
        let continues = before.is_some_and(|before| before.touches(extent));
        let is_cut = |place: FileOffset| {
            (extent.file < place && place < extent.file_end())
                || (extent.file == place && continues)
        };
        self.ended.cuts_start |= is_cut(self.range.start);
        self.ended.cuts_end |= is_cut(self.range.end());
        let Some(part) = extent.clip(self.range) else {
            return;
        };
        let begins_inside = extent.file > self.range.start;
        let borders = before.is_some_and(|before| before.file_end() == extent.file);
        if !(begins_inside && borders) {
            self.end_piece();
        }
        self.piece_fragments += u64::from(!(begins_inside && continues));
        if extent.flags.contains(ExtentFlags::ENCODED) {
            self.piece_encoded += part.len;
        }
    }

    /// The count so far.
    #[must_use]
    pub fn count(&self) -> FragmentCount {
        let encoded = self.piece_encoded.div_ceil(ENCODED_MAX).max(1);
        FragmentCount {
            fragments: self.ended.fragments + self.piece_fragments,
            pieces: self.ended.pieces + encoded.min(self.piece_fragments),
            ..self.ended
        }
    }

    fn end_piece(&mut self) {
        self.ended = self.count();
        (self.piece_fragments, self.piece_encoded) = (0, Bytes::ZERO);
    }
}

impl Layout {
    /// The fragments of a range.
    #[must_use]
    pub fn count(&self, range: FileRange) -> FragmentCount {
        let mut counter = FragmentCounter::new(range);
        for (extent, before) in self.meeting(range) {
            counter.add(extent, before);
        }
        counter.count()
    }

    /// The extents that meet `range`, and the first one past it, each with the one before it.
    pub(super) fn meeting(
        &self,
        range: FileRange,
    ) -> impl Iterator<Item = (&Extent, Option<&Extent>)> {
        let extents = self.extents();
        let first = extents.partition_point(|e| e.file_end() <= range.start);
        let past = extents.partition_point(|e| e.file < range.end());
        let last = (past + 1).min(extents.len());
        (first..last).map(move |i| (&extents[i], i.checked_sub(1).map(|i| &extents[i])))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use units::PhysOffset;

    use super::{
        super::tests::{PLAIN, any_layout, blocks},
        *,
    };

    const FLAGS: &[ExtentFlags] = &[ExtentFlags::empty(), ExtentFlags::UNWRITTEN];

    /// The layout after `range` moved to a donor, which begins a new fragment after each of `borders`
    /// (blocks of it). Nothing else touches the donor.
    fn moved(layout: &Layout, range: FileRange, borders: &[u64]) -> Layout {
        let block = 4096;
        let (mut place, mut new) = (0, Vec::new());
        for extent in layout.clipped(range) {
            for n in 0..extent.len.get() / block {
                let gaps = borders.iter().filter(|border| **border <= place).count() as u64;
                let phys = PhysOffset((1 << 40) + (place + gaps) * block);
                place += 1;
                new.push(Extent {
                    file: extent.file + Bytes(n * block),
                    phys,
                    len: Bytes(block),
                    ..extent
                });
            }
        }
        layout.replaced(range, &Layout::new(new))
    }

    fn change(before: &Layout, after: &Layout) -> i64 {
        after.fragments() as i64 - before.fragments() as i64
    }

    #[test]
    fn little_gain_is_no_gain() {
        let many = FragmentCount {
            fragments: 100,
            pieces: 1,
            ..FragmentCount::default()
        };
        assert!(many.is_better_in(90) && !many.is_better_in(91));
        let contiguous = FragmentCount {
            fragments: 2,
            pieces: 2,
            ..FragmentCount::default()
        };
        assert!(contiguous.is_contiguous() && !contiguous.is_better_in(1));
    }

    proptest! {
        #[test]
        fn the_count_is_what_the_layout_has(
            layout in any_layout(FLAGS), start in 0u64..900, len in 1u64..900,
        ) {
            let range = blocks(start, len);
            let count = layout.count(range);
            prop_assert_eq!(count.fragments, layout.fragments_in(range));
            prop_assert_eq!(count.excess(), count.fragments - count.pieces);
            let sides = |at: u64| {
                let beside = FileRange::between(FileOffset((at - 1) * 4096), FileOffset((at + 1) * 4096));
                let parts: Vec<_> = layout.clipped(beside).collect();
                let both = layout.clipped(beside).map(|e| e.len).sum::<Bytes>() == beside.len;
                both && Layout::new(parts).fragments() == 1
            };
            prop_assert_eq!(count.cuts_start, start > 0 && sides(start));
            prop_assert_eq!(count.cuts_end, sides(start + len));
        }

        #[test]
        fn the_change_is_what_counting_again_gives(
            layout in any_layout(FLAGS), start in 0u64..900, len in 1u64..900,
        ) {
            let range = blocks(start, len);
            let count = layout.count(range);
            let after = moved(&layout, range, &[]);
            prop_assert_eq!(count.pieces, after.fragments_in(range));
            prop_assert_eq!(count.change(1), change(&layout, &after));
            prop_assert_eq!(count.change_to(count.pieces), change(&layout, &after));
        }

        #[test]
        fn a_donor_in_fragments_makes_no_more_of_them_than_it_says(
            layout in any_layout(FLAGS), start in 0u64..900, len in 1u64..900,
            borders in prop::collection::btree_set(1u64..300, 0..8),
        ) {
            let range = blocks(start, len);
            let count = layout.count(range);
            let borders: Vec<_> = borders.into_iter().collect();
            let after = moved(&layout, range, &borders);
            let donor = borders.len() as u64 + 1;
            let real = change(&layout, &after);
            prop_assert_eq!(count.change_to(after.fragments_in(range)), real);
            prop_assert!(count.change(donor) >= real);
            prop_assert!(count.gain(donor) as i64 <= (-real).max(0));
            if count.is_better_in(donor) {
                prop_assert!(real <= 0 && after.fragments_in(range) < count.fragments);
            }
        }

        #[test]
        fn two_that_touch_add_up(
            layout in any_layout(FLAGS), start in 0u64..900, len in 1u64..400, more in 1u64..400,
        ) {
            let joined = layout.count(blocks(start, len)).join(layout.count(blocks(start + len, more)));
            let whole = layout.count(blocks(start, len + more));
            prop_assert_eq!(FragmentCount { pieces: whole.pieces, ..joined }, whole);
            prop_assert!((whole.pieces..=whole.pieces + 1).contains(&joined.pieces));
        }

        #[test]
        fn two_that_do_not_touch_change_the_file_on_their_own(
            layout in any_layout(PLAIN), start in 0u64..400, len in 1u64..200, gap in 1u64..50, more in 1u64..200,
        ) {
            let (first, second) = (blocks(start, len), blocks(start + len + gap, more));
            let sum = layout.count(first).change(1) + layout.count(second).change(1);
            let after = moved(&layout, first, &[]);
            let donor = moved(&layout, second, &[]);
            // Its own donor lies elsewhere.
            let shifted = donor.clipped(second).map(|e| Extent { phys: e.phys + Bytes(1 << 40), ..e });
            let after = after.replaced(second, &Layout::new(shifted.collect()));
            prop_assert_eq!(sum, change(&layout, &after));
        }

        #[test]
        fn the_rest_after_the_lead_is_counted(
            layout in any_layout(FLAGS), start in 0u64..900, len in 1u64..900,
        ) {
            let range = blocks(start, len);
            let count = layout.count(range);
            let mut parts = layout.clipped(range).peekable();
            let mut lead_end = range.start;
            while let Some(part) = parts.next() {
                lead_end = part.file_end();
                if !parts.peek().is_some_and(|next| part.touches(next)) {
                    break;
                }
            }
            let tail = layout.count(FileRange::between(lead_end, range.end()));
            let said = count.without_lead(1);
            prop_assert_eq!(said.fragments, tail.fragments);
            prop_assert!(said.change(1) >= tail.change(1));
        }
    }
}
