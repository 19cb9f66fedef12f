//! IODP, and the ordered tree of a file (InDeF §II-A eq. 2, §III-A, §III-C).

use units::FileOffset;

use crate::layout::Fragmentation;

/// InDeF §II-A, eq. 2: `(alpha · DoLF + beta · DoPF) · read count`. Always finite and not negative,
/// whatever the weights.
#[must_use]
pub fn iodp(alpha: f64, beta: f64, fragmentation: &Fragmentation, reads: u64) -> f64 {
    let degree = alpha * fragmentation.dolf as f64 + beta * fragmentation.dopf;
    finite(degree * reads as f64)
}

/// Clamp to a value that is not NaN, negative or infinite, so that it can be sorted, summed and
/// written as JSON.
pub(crate) fn finite(value: f64) -> f64 {
    match value.is_nan() {
        true => 0.0,
        false => value.clamp(0.0, f64::MAX),
    }
}

/// One node of the tree: a range's priority, and which range it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PriorityEntry {
    /// IODP.
    pub iodp: f64,
    /// First byte of the range; orders equal priorities.
    pub start: FileOffset,
    /// Number of I/O entries that it stands for (a chunk may join several contiguous ones).
    pub weight: u64,
    /// The caller's identifier of the range.
    pub index: usize,
}

/// The ranges of one file, ordered by IODP, then by place: InDeF's IODP tree.
///
/// It is built once and walked from its lowest entry, so a sorted array is better than a red-black
/// tree: the order is the same, and a million entries take one allocation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IodpTree {
    entries: Vec<PriorityEntry>,
}

impl IodpTree {
    /// Order the entries. NaN, which [`iodp`] never gives, is above or below everything.
    #[must_use]
    pub fn new(mut entries: Vec<PriorityEntry>) -> Self {
        entries.sort_unstable_by(|a, b| {
            a.iodp
                .total_cmp(&b.iodp)
                .then(a.start.cmp(&b.start))
                .then(a.index.cmp(&b.index))
        });
        Self { entries }
    }

    /// From the lowest priority to the highest.
    #[must_use]
    pub fn entries(&self) -> &[PriorityEntry] {
        &self.entries
    }

    /// Number of I/O entries.
    #[must_use]
    pub fn weight(&self) -> u64 {
        self.entries.iter().map(|e| e.weight).sum()
    }

    /// The entries that truncation of this file alone by `pct` percent drops: the lowest
    /// `⌊n · pct / 100⌋` of all `n` I/O entries.
    #[must_use]
    pub fn truncated(&self, pct: f64) -> &[PriorityEntry] {
        self.lowest(share(self.weight(), pct))
    }

    /// The lowest `count` I/O entries, and never more. An entry that stands for several is among
    /// them only as a whole.
    #[must_use]
    pub fn lowest(&self, count: u64) -> &[PriorityEntry] {
        let mut left = count;
        let kept = self.entries.iter().position(|entry| {
            let fits = entry.weight <= left;
            left = left.saturating_sub(entry.weight);
            !fits
        });
        &self.entries[..kept.unwrap_or(self.entries.len())]
    }
}

/// `⌊count · pct / 100⌋`, with `pct` between 0 and 100. A relative tolerance of 1e-12 keeps
/// percentages that binary fractions cannot express from losing an entry.
#[must_use]
pub fn share(count: u64, pct: f64) -> u64 {
    Remainder::default().share(count, pct)
}

/// The part of an entry that rounding down has left so far; less than one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Remainder(f64);

impl Remainder {
    /// [`share`] of `count` and of what was left before; keeps what is left now.
    pub(crate) fn share(&mut self, count: u64, pct: f64) -> u64 {
        let exact = self.0 + count as f64 * pct.clamp(0.0, 100.0) / 100.0;
        let whole = ((exact * (1.0 + 1e-12)).floor() as u64).min(count);
        self.0 = finite(exact - whole as f64).min(1.0);
        whole
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entries(iodps: &[f64]) -> Vec<PriorityEntry> {
        let entry = |(index, &iodp)| PriorityEntry {
            iodp,
            start: FileOffset(index as u64 * 4096),
            weight: 1,
            index,
        };
        iodps.iter().enumerate().map(entry).collect()
    }

    #[test]
    fn priority_is_equation_2_with_the_weights_of_the_paper() {
        let fragmentation = Fragmentation {
            dolf: 6,
            dopf: 2.5,
            requests: 6,
        };
        assert_eq!(iodp(4.0, 1.0, &fragmentation, 1), 26.5);
        assert_eq!(iodp(4.0, 1.0, &fragmentation, 10), 265.0);
        assert_eq!(iodp(4.0, 1.0, &fragmentation, 0), 0.0);
    }

    #[test]
    fn nonsense_weights_still_give_a_number() {
        let fragmentation = Fragmentation {
            dolf: u64::MAX,
            dopf: f64::INFINITY,
            requests: 0,
        };
        for weight in [f64::NAN, f64::INFINITY, -1.0, 1e308, 0.0] {
            for reads in [0, 1, u64::MAX] {
                let priority = iodp(weight, weight, &fragmentation, reads);
                assert!(priority.is_finite() && priority >= 0.0, "{weight} {reads}");
            }
        }
    }

    #[test]
    fn equal_priorities_are_ordered_by_place() {
        let mut shuffled = entries(&[2.0, 1.0, 2.0, 1.0]);
        shuffled.reverse();
        let tree = IodpTree::new(shuffled);
        let order: Vec<_> = tree.entries().iter().map(|e| e.index).collect();
        assert_eq!(order, [1, 3, 0, 2]);
    }

    #[test]
    fn an_entry_that_stands_for_several_is_dropped_as_a_whole_or_not_at_all() {
        let mut all = entries(&[1.0, 2.0, 3.0]);
        all[1].weight = 8;
        let tree = IodpTree::new(all);
        for (pct, dropped) in [(0.0, 0), (10.0, 1), (89.0, 1), (90.0, 2), (100.0, 3)] {
            assert_eq!(tree.truncated(pct).len(), dropped, "{pct}");
        }
    }

    #[test]
    fn percentages_are_exact_where_binary_fractions_are_not() {
        for (count, pct, expected) in [
            (10, 30.0, 3),
            (1000, 0.1, 1),
            (1000, 29.9, 299),
            (7, 100.0, 7),
            (3, 33.3, 0),
            (3, 1e9, 3),
            (3, -1.0, 0),
            (3, f64::NAN, 0),
        ] {
            assert_eq!(share(count, pct), expected, "{count} {pct}");
        }
    }

    proptest! {
        #[test]
        fn truncation_drops_exactly_the_lowest_share(iodps in prop::collection::vec(0.0f64..100.0, 0..200), pct in 0u32..=100) {
            let tree = IodpTree::new(entries(&iodps));
            let dropped = tree.truncated(f64::from(pct));
            prop_assert_eq!(dropped.len(), iodps.len() * pct as usize / 100);
            let highest = dropped.iter().map(|e| e.iodp).fold(0.0, f64::max);
            prop_assert!(tree.entries()[dropped.len()..].iter().all(|e| e.iodp >= highest));
        }
    }
}
