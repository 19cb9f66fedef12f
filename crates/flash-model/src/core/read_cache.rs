//! The controller's read cache: the flash pages that host reads brought in last.
//!
//! A page is named with the number of erases of the flash that it lies on. An erased and rewritten
//! page has another name, so nothing must be dropped from the cache when flash is erased: the old
//! name is never asked for again, and makes room in its turn.

use std::collections::VecDeque;

/// A page of flash with one content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageName {
    pub(crate) ns: u32,
    /// The zone, or the block of a die.
    pub(crate) block: u64,
    pub(crate) page: u32,
    /// Erases of the zone or block.
    pub(crate) erases: u32,
}

/// The pages that were used last, the latest at the back, and when each was there.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadCache {
    pages: VecDeque<(PageName, u64)>,
    capacity: usize,
}

impl ReadCache {
    /// Makes an empty cache for that many pages; 0: nothing is cached.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            pages: VecDeque::new(),
            capacity,
        }
    }

    pub(crate) const fn is_off(&self) -> bool {
        self.capacity == 0
    }

    /// Returns when the page has arrived in the cache, maybe in the future, if it is there.
    pub(crate) fn arrival(&mut self, name: PageName) -> Option<u64> {
        let at = self.pages.iter().rposition(|page| page.0 == name)?;
        let page = self.pages.remove(at)?;
        self.pages.push_back(page);
        Some(page.1)
    }

    /// Puts a page in that was not there; the one that was not used for longest gives way.
    pub(crate) fn insert(&mut self, name: PageName, arrived: u64) {
        if self.pages.len() >= self.capacity {
            self.pages.pop_front();
        }
        self.pages.push_back((name, arrived));
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.pages.clear();
    }
}
