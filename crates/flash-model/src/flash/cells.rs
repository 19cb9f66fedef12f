//! Times of the cells: one for all pages, or one for each type of page.
//!
//! A cell of several bits gives its word line as many pages, and they differ: a sense of the page of
//! the least significant bit compares with one reference voltage, that of the others with several;
//! a program of the later ones sets finer levels. Page `i` of a block has type `i` mod the number of
//! types, in order of significance, as in NVMeVirt (ssd.c) and in FEMU's `cell_pages` (nand-timing.md).

/// Bits of a cell at most: QLC.
pub(crate) const BITS_MAX: usize = 4;

/// A page in its block, as far as its times depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CellPage {
    /// One of a block that holds all bits of its cells, by number.
    Native(u32),
    /// One of a block that holds one bit a cell, though the cells could hold more.
    Slc,
}

/// The times of one operation, in nanoseconds, by type of page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageTimes {
    by_type: [u64; BITS_MAX],
    types: u32,
    slc: u64,
}

impl PageTimes {
    /// Returns the times of a cell with as many types of pages as there are `times`, 1 to 4.
    pub(crate) fn new(times: &[u64]) -> Self {
        let mut by_type = [0; BITS_MAX];
        by_type[..times.len()].copy_from_slice(times);
        Self {
            by_type,
            types: times.len() as u32,
            slc: 0,
        }
    }

    /// Returns these times, and that of a page of one bit a cell.
    pub(crate) const fn with_slc(self, slc: u64) -> Self {
        Self { slc, ..self }
    }

    /// Returns the time of a page.
    pub(crate) const fn of(&self, page: CellPage) -> u64 {
        match page {
            CellPage::Native(page) => self.by_type[(page % self.types) as usize],
            CellPage::Slc => self.slc,
        }
    }

    /// Returns the time of the slowest page.
    pub(crate) fn longest(&self) -> u64 {
        self.by_type.into_iter().fold(self.slc, u64::max)
    }

    /// Returns the times with a function applied to each.
    pub(crate) fn map(self, change: impl Fn(u64) -> u64) -> Self {
        Self {
            by_type: self.by_type.map(&change),
            slc: change(self.slc),
            ..self
        }
    }
}
