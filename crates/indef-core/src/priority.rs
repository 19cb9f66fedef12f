//! IODP, and the ordered tree of a file (InDeF §II-A eq. 2, §III-A, §III-C).

use units::FileOffset;

use crate::layout::Fragmentation;

/// InDeF §II-A, eq. 2: `(alpha · DoLF + beta · DoPF) · read count`. Always finite and not negative
/// for finite, not negative weights.
#[must_use]
pub fn iodp(alpha: f64, beta: f64, fragmentation: &Fragmentation, reads: u64) -> f64 {
    let degree = alpha * fragmentation.dolf as f64 + beta * fragmentation.dopf;
    (degree * reads as f64).clamp(0.0, f64::MAX)
}

/// One node of the tree: a range's priority, and which range it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    /// IODP.
    pub iodp: f64,
    /// Where the range begins; orders equal priorities.
    pub start: FileOffset,
    /// How many I/O entries it stands for (a chunk may join several contiguous ones).
    pub weight: u64,
    /// The caller's name of the range.
    pub index: usize,
}

/// The ranges of one file, ordered by IODP, then by place: InDeF's IODP tree.
///
/// It is built once and walked from its lowest entry, so a sorted array serves better than a
/// red-black tree: the order is the same, and a million entries take one allocation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IodpTree {
    entries: Vec<Entry>,
}

impl IodpTree {
    /// Order the entries. NaN, which [`iodp`] never gives, would sort above everything.
    #[must_use]
    pub fn new(mut entries: Vec<Entry>) -> Self {
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
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entries that truncation by `pct` percent drops: the lowest `⌊n · pct / 100⌋` of all `n`
    /// I/O entries, never more than was asked for. An entry that stands for several is dropped only
    /// as a whole.
    #[must_use]
    pub fn truncated(&self, pct: f64) -> &[Entry] {
        let total: u64 = self.entries.iter().map(|e| e.weight).sum();
        let mut left = share(total, pct);
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
    let exact = count as f64 * pct.clamp(0.0, 100.0) / 100.0;
    ((exact * (1.0 + 1e-12)).floor() as u64).min(count)
}
