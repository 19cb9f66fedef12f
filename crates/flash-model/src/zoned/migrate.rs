//! Migration within a zoned namespace, page by page.
//!
//! A page that is complete in one piece on the same die is copied back; everything else is read
//! into the controller's memory and programmed from there (InDeF §III-D).

use super::{Layout, ZonedNamespace};
use crate::{
    core::{Cause, Core, Work},
    migration::{MoveCursor, Padding, Piece},
    zone::ZoneState,
};

/// Bytes of one page that belong to a page that is being put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    zone: u64,
    page: u64,
    bytes: u64,
}

/// The row of pages that is being put together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gather {
    zone: u64,
    row: u64,
    /// For each die of the zone, what its page consists of.
    lanes: Vec<Vec<Part>>,
    parts: usize,
}

impl Gather {
    /// Whether parts of another row are in it.
    fn is_of_another_row(&self, zone: u64, row: u64) -> bool {
        self.parts > 0 && (self.zone, self.row) != (zone, row)
    }

    fn add(&mut self, layout: &Layout, zone: u64, page: u64, part: Part) {
        self.lanes.resize_with(layout.lanes as usize, Vec::new);
        (self.zone, self.row) = (zone, page / layout.lanes);
        let lane = &mut self.lanes[(page % layout.lanes) as usize];
        match lane.last_mut() {
            Some(last) if (last.zone, last.page) == (part.zone, part.page) => {
                last.bytes += part.bytes;
            }
            _ => {
                lane.push(part);
                self.parts += 1;
            }
        }
    }
}

impl ZonedNamespace {
    /// The next page of a migration; nothing when everything was put in motion.
    pub(crate) fn next_page(
        &self,
        core: &Core,
        cursor: &mut MoveCursor,
        gather: &mut Gather,
        piece: &mut Piece,
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
                self.finish_page(gather, zone, page, piece);
                return;
            }
        }
        // What is left is no complete page: it stays in memory until the rest comes.
        for lane in &mut gather.lanes {
            for part in lane.drain(..) {
                piece
                    .reads
                    .push((layout.die(part.zone, part.page), part.bytes));
            }
        }
        gather.parts = 0;
    }

    /// Nothing where it is in memory, or was never written.
    fn part_on_flash(&self, core: &Core, from: u64, bytes: u64) -> Option<Part> {
        let (zone, within) = (from / self.layout.zone_size, from % self.layout.zone_size);
        let table_zone = &self.table.zones()[zone as usize];
        let filled = table_zone.write_pointer - table_zone.start;
        let page = self.layout.page_of(within);
        if within >= filled || self.in_memory(core, zone, page, filled, core.flash.clock) {
            return None;
        }
        Some(Part { zone, page, bytes })
    }

    fn finish_page(&self, gather: &mut Gather, zone: u64, page: u64, piece: &mut Piece) {
        let layout = &self.layout;
        let die = layout.die(zone, page);
        gather.lanes.resize_with(layout.lanes as usize, Vec::new);
        let lane = &mut gather.lanes[(page % layout.lanes) as usize];
        gather.parts -= lane.len();
        let whole = matches!(lane[..], [part]
            if part.bytes == layout.unit && layout.die(part.zone, part.page) == die);
        if whole {
            lane.clear();
            piece.program(die, Work::Copyback, 0, Cause::Migration);
            return;
        }
        for part in lane.drain(..) {
            piece
                .reads
                .push((layout.die(part.zone, part.page), part.bytes));
        }
        piece.program(die, Work::Program, layout.unit, Cause::Migration);
    }

    /// A migration has advanced a zone's write pointer from byte `offset` on: the pages that it
    /// completes do not need the host's part of them in the write buffer any more.
    pub(crate) fn filled_by_migration(&mut self, core: &mut Core, offset: u64, len: u64) {
        let zone = (offset / self.layout.zone_size) as usize;
        let start = offset % self.layout.zone_size;
        let complete = self.layout.complete_pages(start + len) - self.layout.complete_pages(start);
        let place = &mut self.places[zone];
        let release = place.held.min(complete * self.layout.unit);
        place.held -= release;
        core.buffer.forget(release);
    }

    /// The next page that a finished zone is padded with; whether there was one.
    pub(crate) fn next_padding(&self, padding: &mut Padding, piece: &mut Piece) -> bool {
        let zone = padding.zone;
        // A reset takes the rest away.
        if padding.page >= padding.end || self.table.zones()[zone].state != ZoneState::Full {
            return false;
        }
        let die = self.layout.die(zone as u64, padding.page);
        piece.program(die, Work::Program, self.layout.unit, Cause::Padding);
        padding.page += 1;
        true
    }
}
