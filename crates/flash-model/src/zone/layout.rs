//! The layout of a zone's bytes on the dies.
//!
//! A zone is a sequence of *rows*: a page of all planes on each of its dies. Within a row,
//! `interleave` bytes go to each die in turn, several times around until the row is full. So the
//! pages of a row are complete one after the other, in the last round.

use crate::geometry::FlashGeometry;

/// Sizes in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ZoneLayout {
    pub(crate) zone_size: u64,
    pub(crate) capacity: u64,
    /// A page of all planes.
    pub(crate) unit: u64,
    pub(crate) interleave: u64,
    /// Dies of a zone.
    pub(crate) lanes: u64,
    pub(crate) row: u64,
    dies: u64,
    /// Bytes of a zone on one die, for each flash block.
    pub(crate) block: u64,
}

impl ZoneLayout {
    pub(crate) const fn new(geometry: &FlashGeometry) -> Self {
        let zone = &geometry.zone;
        let unit = geometry.program_unit().0;
        Self {
            zone_size: zone.size.0,
            capacity: zone.capacity.0,
            unit,
            interleave: zone.interleave.0,
            lanes: zone.dies as u64,
            row: unit * zone.dies as u64,
            dies: geometry.dies() as u64,
            block: unit * geometry.pages_per_block as u64,
        }
    }

    /// The page (counted in the zone) that holds byte `within` of a zone.
    pub(crate) const fn page_of(&self, within: u64) -> u64 {
        within / self.row * self.lanes + within / self.interleave % self.lanes
    }

    /// The die of a page.
    pub(crate) const fn die(&self, zone: u64, page: u64) -> u32 {
        ((zone * self.lanes + page % self.lanes) % self.dies) as u32
    }

    /// Returns the number of a page in its flash block.
    pub(crate) const fn page_in_block(&self, page: u64) -> u32 {
        (page / self.lanes % (self.block / self.unit)) as u32
    }

    /// Returns how many pages are complete when `filled` bytes are written.
    pub(crate) const fn complete_pages(&self, filled: u64) -> u64 {
        let in_row = filled % self.row;
        let last_round = self.row - self.lanes * self.interleave;
        let in_last = in_row.saturating_sub(last_round) / self.interleave;
        filled / self.row * self.lanes + in_last
    }

    /// All pages of a zone.
    pub(crate) const fn pages(&self) -> u64 {
        self.capacity / self.unit
    }

    /// Calls `visit` for each page that the bytes from `start` to `end` of a zone touch, with the
    /// first byte of it, and how many from there on.
    pub(crate) fn for_each_page(&self, start: u64, end: u64, mut visit: impl FnMut(u64, u64, u64)) {
        let mut at = start;
        while at < end {
            let row = at / self.row;
            let until = end.min((row + 1) * self.row);
            let (chunk, last) = (at / self.interleave, (until - 1) / self.interleave);
            let touched = (last - chunk + 1).min(self.lanes);
            for first in chunk..chunk + touched {
                // Every `lanes`th chunk is on the same page.
                let chunks = (last - first) / self.lanes + 1;
                let mut bytes = chunks * self.interleave;
                let mut from = first * self.interleave % self.row / self.lanes / self.interleave
                    * self.interleave;
                if first == chunk {
                    bytes -= at % self.interleave;
                    from += at % self.interleave;
                }
                if (last - first).is_multiple_of(self.lanes) {
                    bytes -= (last + 1) * self.interleave - until;
                }
                visit(row * self.lanes + first % self.lanes, from, bytes);
            }
            at = until;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn layout(interleave: u64) -> ZoneLayout {
        ZoneLayout {
            zone_size: 1 << 20,
            capacity: 1 << 20,
            unit: 16384,
            interleave,
            lanes: 4,
            row: 65536,
            dies: 8,
            block: 1 << 20,
        }
    }

    #[test]
    fn block_i_of_a_segment_is_on_chip_i_mod_chips() {
        let layout = layout(4096);
        for block in 0..256 {
            assert_eq!(
                u64::from(layout.die(0, layout.page_of(block * 4096))),
                block % 4
            );
            assert_eq!(
                u64::from(layout.die(1, layout.page_of(block * 4096))),
                4 + block % 4
            );
        }
        assert_eq!(layout.complete_pages(49152), 0);
        assert_eq!(layout.complete_pages(49152 + 4096), 1);
        assert_eq!(layout.complete_pages(65536 + 4096), 4);
    }

    proptest! {
        /// Compares with a count byte by byte (sector by sector).
        #[test]
        fn pages_and_bytes_are_those_of_the_sectors(
            start in 0u64..600, len in 1u64..500, shift in 9u32..15,
        ) {
            let layout = layout(1 << shift);
            let mut expected = std::collections::BTreeMap::new();
            for sector in start..start + len {
                let at = sector * 512;
                let round = at % layout.row / (layout.lanes * layout.interleave);
                let from = round * layout.interleave + at % layout.interleave;
                expected.entry(layout.page_of(at)).or_insert((from, 0)).1 += 512;
            }
            let mut found = std::collections::BTreeMap::new();
            layout.for_each_page(start * 512, (start + len) * 512, |page, from, bytes| {
                assert!(found.insert(page, (from, bytes)).is_none());
            });
            prop_assert_eq!(found, expected);
        }
    }
}
