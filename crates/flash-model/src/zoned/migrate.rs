//! Migration within a zoned namespace, page by page.
//!
//! A page that is complete in one piece on the same die is copied back; everything else is read
//! into the controller's memory and programmed from there (InDeF §III-D).

use super::ZonedNamespace;
use crate::{
    core::{Cause, Core, DieWork},
    migration::{Gather, MoveCursor, Padding, PageWork, ReadPart, ZonePart},
    zone::ZoneState,
};

impl ZonedNamespace {
    /// Adds the next page of a migration to `work`; adds nothing when everything was put in motion.
    pub(crate) fn next_page(
        &self,
        core: &Core,
        cursor: &mut MoveCursor,
        gather: &mut Gather,
        work: &mut PageWork,
    ) {
        let layout = &self.layout;
        while let Some(next) = cursor.peek() {
            let (zone, within) = (next.to / layout.zone_size, next.to % layout.zone_size);
            let page = layout.page_of(within);
            if gather.is_of_another_row(zone, page / layout.lanes) {
                break;
            }
            let chunk = next
                .len
                .min(layout.interleave - within % layout.interleave)
                .min(layout.interleave - next.from % layout.interleave);
            if let Some(part) = self.part_on_flash(core, next.from, chunk) {
                gather.add(layout, zone, page, part);
            }
            cursor.advance(chunk);
            if layout.complete_pages(within + chunk) > layout.complete_pages(within) {
                self.finish_page(gather, zone, page, work);
                return;
            }
        }
        // The rest is no complete page: it stays in memory until the bytes that it lacks come.
        for part in gather.take_all() {
            work.reads.push(self.read_of(part));
        }
    }

    fn read_of(&self, part: ZonePart) -> ReadPart {
        ReadPart {
            die: self.layout.die(part.zone, part.page),
            page: self.cell_page(part.page),
            bytes: part.bytes,
        }
    }

    /// Returns the part on flash; `None` if it is in memory, or was never written.
    fn part_on_flash(&self, core: &Core, from: u64, bytes: u64) -> Option<ZonePart> {
        let (zone, within) = (from / self.layout.zone_size, from % self.layout.zone_size);
        let table_zone = &self.table.zones()[zone as usize];
        let filled = table_zone.write_pointer - table_zone.start;
        let page = self.layout.page_of(within);
        if within >= filled || self.in_memory(core, zone, page, filled, core.flash.clock) {
            return None;
        }
        Some(ZonePart { zone, page, bytes })
    }

    fn finish_page(&self, gather: &mut Gather, zone: u64, page: u64, work: &mut PageWork) {
        let layout = &self.layout;
        let die = layout.die(zone, page);
        let parts = gather.take_page(layout, page);
        let to = self.cell_page(page);
        if let [part] = parts.as_slice()
            && part.bytes == layout.unit
            && layout.die(part.zone, part.page) == die
        {
            let from = self.cell_page(part.page);
            work.program(die, to, DieWork::Copyback { from }, 0, Cause::Migration);
            return;
        }
        work.reads.extend(parts.map(|part| self.read_of(part)));
        work.program(die, to, DieWork::Program, layout.unit, Cause::Migration);
    }

    /// A migration has advanced a zone's write pointer from byte `offset` on: the pages that it
    /// completes do not need the host's part of them in the write buffer any more.
    pub(crate) fn filled_by_migration(&mut self, core: &mut Core, offset: u64, len: u64) {
        let zone = (offset / self.layout.zone_size) as usize;
        let start = offset % self.layout.zone_size;
        let complete = self.layout.complete_pages(start + len) - self.layout.complete_pages(start);
        let tally = &mut self.tallies[zone];
        let release = tally.held.min(complete * self.layout.unit);
        tally.held -= release;
        core.free_room(release);
    }

    /// Adds the next page with which a finished zone is padded to `work`; false if there is none.
    pub(crate) fn next_padding(&self, padding: &mut Padding, work: &mut PageWork) -> bool {
        let zone = padding.zone;
        // A reset cancels the rest.
        if padding.page >= padding.end || self.table.zones()[zone].state != ZoneState::Full {
            return false;
        }
        let die = self.layout.die(zone as u64, padding.page);
        let page = self.cell_page(padding.page);
        work.program(
            die,
            page,
            DieWork::Program,
            self.layout.unit,
            Cause::Padding,
        );
        padding.page += 1;
        true
    }
}
