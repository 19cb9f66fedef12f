//! Media that are written in place: every logical page has one place for ever.
//!
//! Granules go to the dies in turn by their address, not in order of arrival. There is nothing to erase,
//! to collect or to level, and no hint to follow. Media like 3D XPoint are modelled so, with an erase of no time.

use std::ops::Range;

use super::{Cause, FlashOp, FlashWork, Ftl};

impl Ftl {
    /// Returns the slot in which logical page `lpn` always is.
    fn fixed_slot(&self, lpn: u64) -> u32 {
        let geometry = &self.geometry;
        let (granule, dies) = (u64::from(geometry.granule_pages), u64::from(geometry.dies));
        let turn = lpn / granule;
        // A page has one slot.
        let page = (turn / dies * granule + lpn % granule) as u32;
        let (block, in_block) = (
            page / geometry.pages_per_block,
            page % geometry.pages_per_block,
        );
        geometry.slot((turn % dies) as u32, block, in_block)
    }

    pub(super) fn write_in_place(&mut self, pages: Range<u64>, work: &mut Vec<FlashWork>) {
        for lpn in pages {
            let slot = self.fixed_slot(lpn);
            let page = self.geometry.page_of(slot);
            self.counters.host_slots += 1;
            self.counters.host_programs += 1;
            if self.slot_of[lpn as usize] == 0 {
                self.dies[page.die as usize].use_in_place(page.block);
                self.map(lpn as u32, slot, self.counters.host_slots);
            }
            work.push(FlashWork {
                op: FlashOp::Program(page),
                cause: Cause::Host,
            });
        }
    }
}
