//! The pages of zones that are still in the write buffer.

use std::collections::VecDeque;

/// The end of a program that was not given to its die yet.
const UNKNOWN: u64 = u64::MAX;

/// The pages of one zoned namespace that are complete and not programmed.
#[derive(Clone, Debug, Default)]
pub(crate) struct PagesInFlight {
    zones: Vec<ZonePages>,
}

#[derive(Clone, Debug, Default)]
struct ZonePages {
    /// In order of page number: the page and when its program ends.
    pages: VecDeque<(u32, u64)>,
    /// Pages of which that is not known yet.
    unknown: usize,
    /// The last end of those of which it is.
    last_end: u64,
}

impl PagesInFlight {
    pub(crate) fn new(zones: usize) -> Self {
        Self {
            zones: vec![ZonePages::default(); zones],
        }
    }

    /// Adds a page that is complete and will be programmed. No page that was programmed before
    /// `clock` is asked for again.
    pub(crate) fn add(&mut self, zone: u32, page: u32, clock: u64) {
        let zone = &mut self.zones[zone as usize];
        while zone.pages.front().is_some_and(|&(_, end)| end <= clock) {
            zone.pages.pop_front();
        }
        zone.pages.push_back((page, UNKNOWN));
        zone.unknown += 1;
    }

    /// Notes that the program of a page ends at `end`.
    pub(crate) fn committed(&mut self, zone: u32, page: u32, end: u64) {
        let zone = &mut self.zones[zone as usize];
        let pages = &mut zone.pages;
        if let Ok(at) = pages.binary_search_by_key(&page, |&(page, _)| page) {
            zone.unknown -= usize::from(pages[at].1 == UNKNOWN);
            zone.last_end = zone.last_end.max(end);
            pages[at].1 = end;
        }
    }

    /// Returns whether the page is still in the buffer at `time`.
    pub(crate) fn contains(&self, zone: u32, page: u32, time: u64) -> bool {
        let ZonePages {
            pages,
            unknown,
            last_end,
        } = &self.zones[zone as usize];
        // All of a zone that has rested are programmed: nothing to search.
        if *unknown == 0 && *last_end <= time {
            return false;
        }
        pages
            .binary_search_by_key(&page, |&(page, _)| page)
            .is_ok_and(|at| pages[at].1 > time)
    }

    /// Forgets the pages of a zone that was reset.
    pub(crate) fn clear(&mut self, zone: u32) {
        self.zones[zone as usize] = ZonePages::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_there_until_its_program_ends() {
        let mut pages = PagesInFlight::new(2);
        assert!(!pages.contains(1, 0, 0));
        for page in [3, 4, 5] {
            pages.add(1, page, 10);
        }
        pages.committed(1, 4, 30);
        pages.committed(1, 3, 50);
        let there =
            |pages: &PagesInFlight, time| [3, 4, 5].map(|page| pages.contains(1, page, time));
        assert_eq!(there(&pages, 30), [true, false, true]);
        pages.committed(1, 5, 40);
        assert_eq!(there(&pages, 39), [true, false, true]);
        assert_eq!(there(&pages, 49), [true, false, false]);
        assert_eq!(there(&pages, 50), [false; 3]);
        assert!(!pages.contains(0, 3, 0));
        pages.add(1, 6, 50);
        assert!(pages.contains(1, 6, 1000));
        pages.clear(1);
        // Its program was given to the die before the zone was reset.
        pages.committed(1, 6, 60);
        assert!(!pages.contains(1, 6, 55));
    }
}
