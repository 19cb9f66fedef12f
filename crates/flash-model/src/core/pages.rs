//! The pages of zones that are still in the write buffer.

use std::collections::VecDeque;

/// The end of a program that was not given to its die yet.
const UNKNOWN: u64 = u64::MAX;

/// The pages of one zoned namespace that are complete and not programmed.
#[derive(Clone, Debug, Default)]
pub(crate) struct PagesInFlight {
    /// For each zone, in order of page number: the page and when its program ends.
    zones: Vec<VecDeque<(u32, u64)>>,
}

impl PagesInFlight {
    pub(crate) fn new(zones: usize) -> Self {
        Self {
            zones: vec![VecDeque::new(); zones],
        }
    }

    /// Adds a page that is complete and will be programmed. No page that was programmed before
    /// `clock` is asked for again.
    pub(crate) fn add(&mut self, zone: u32, page: u32, clock: u64) {
        let pages = &mut self.zones[zone as usize];
        while pages.front().is_some_and(|&(_, end)| end <= clock) {
            pages.pop_front();
        }
        pages.push_back((page, UNKNOWN));
    }

    /// Notes that the program of a page ends at `end`.
    pub(crate) fn committed(&mut self, zone: u32, page: u32, end: u64) {
        let pages = &mut self.zones[zone as usize];
        if let Ok(at) = pages.binary_search_by_key(&page, |&(page, _)| page) {
            pages[at].1 = end;
        }
    }

    /// Returns whether the page is still in the buffer at `time`.
    pub(crate) fn contains(&self, zone: u32, page: u32, time: u64) -> bool {
        let pages = &self.zones[zone as usize];
        if pages.is_empty() {
            return false;
        }
        pages
            .binary_search_by_key(&page, |&(page, _)| page)
            .is_ok_and(|at| pages[at].1 > time)
    }

    /// Forgets the pages of a zone that was reset.
    pub(crate) fn clear(&mut self, zone: u32) {
        self.zones[zone as usize].clear();
    }
}
