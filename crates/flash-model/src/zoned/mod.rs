//! A zoned namespace: the states of its zones, the places of their pages, and the cost of a
//! command.

mod migrate;
mod submit;

use crate::{
    command::ZoneAction,
    core::{Cause, Core, DieWork, Owner, PageName, QueuedOperation},
    flash::{CellPage, PagePlace},
    geometry::FlashGeometry,
    migration::Padding,
    zone::{Transition, ZoneLayout, ZoneTable},
};

/// One zoned namespace.
#[derive(Clone, Debug)]
pub(crate) struct ZonedNamespace {
    /// Its number on the device.
    pub(crate) index: usize,
    pub(crate) table: ZoneTable,
    layout: ZoneLayout,
    tallies: Vec<ZoneTally>,
    /// Zones with data in pages that are not complete, since the last flush.
    unflushed: Vec<u32>,
}

/// The device's counts of one zone.
#[derive(Clone, Copy, Debug, Default)]
struct ZoneTally {
    /// Bytes of pages that are not complete, which take room in the write buffer.
    held: u64,
    /// Whether it is in the list of unflushed zones.
    unflushed: bool,
    /// How often it was erased.
    erases: u32,
}

impl ZonedNamespace {
    pub(crate) fn new(index: usize, size: u64, geometry: &FlashGeometry) -> Self {
        let table = ZoneTable::new(size, &geometry.zone);
        Self {
            index,
            tallies: vec![ZoneTally::default(); table.zones().len()],
            table,
            layout: ZoneLayout::new(geometry),
            unflushed: Vec::new(),
        }
    }

    /// Address distance from zone to zone.
    pub(crate) const fn zone_size(&self) -> u64 {
        self.layout.zone_size
    }

    /// How often each zone was erased.
    pub(crate) fn erases(&self) -> impl ExactSizeIterator<Item = u32> {
        self.tallies.iter().map(|tally| tally.erases)
    }

    pub(crate) fn set_erases(&mut self, zone: usize, erases: u32) {
        self.tallies[zone].erases = erases;
    }

    /// Drops the operations in motion for a zone that was put into a state from outside.
    pub(crate) fn forget(&mut self, core: &mut Core, zone: usize, now: u64) {
        let held = std::mem::take(&mut self.tallies[zone].held);
        core.drop_zone(self.index as u32, zone as u32, held, now);
    }

    /// Reads; returns when the host has the data.
    pub(crate) fn read(&self, core: &mut Core, ready: u64, offset: u64, len: u64) -> u64 {
        let (mut at, end, mut done) = (offset, offset + len, ready);
        let mut unwritten = 0;
        while at < end {
            let zone = at / self.layout.zone_size;
            let start = zone * self.layout.zone_size;
            let until = end.min(start + self.layout.zone_size);
            let filled = self.table.zones()[zone as usize].write_pointer - start;
            let written = (until - start).min(filled);
            self.layout
                .for_each_page(at - start, written, |page, from, bytes| {
                    let sent = if self.in_memory(core, zone, page, filled, ready) {
                        core.send_to_host(ready, bytes)
                    } else {
                        let name = PageName {
                            ns: self.index as u32,
                            block: zone,
                            page: page as u32,
                            erases: self.tallies[zone as usize].erases,
                        };
                        let place = PagePlace {
                            die: self.layout.die(zone, page),
                            page: self.cell_page(page),
                            planes: core.planes(from, bytes),
                        };
                        core.host_read(name, place, ready, bytes)
                    };
                    done = done.max(sent);
                });
            unwritten += until - at.max(start + written);
            at = until;
        }
        if unwritten > 0 {
            done.max(core.send_to_host(ready, unwritten))
        } else {
            done
        }
    }

    fn cell_page(&self, page: u64) -> CellPage {
        CellPage::Native(self.layout.page_in_block(page))
    }

    /// Whether a page is in the controller's memory: not complete, or not programmed yet.
    fn in_memory(&self, core: &Core, zone: u64, page: u64, filled: u64, time: u64) -> bool {
        page >= self.layout.complete_pages(filled)
            || core.in_flight[self.index].contains(zone as u32, page as u32, time)
    }

    /// Takes data into a zone whose write pointer has been advanced already, within an intake.
    pub(crate) fn fill(&mut self, core: &mut Core, zone: usize, offset: u64, len: u64) {
        let start = zone as u64 * self.layout.zone_size;
        let (mut at, end) = (offset - start, offset - start + len);
        while at < end {
            let bytes = (self.layout.unit - at % self.layout.unit).min(end - at);
            core.take_in(bytes, Some((self.index as u32, zone as u32)));
            self.tallies[zone].held += bytes;
            let pages = self.layout.complete_pages(at)..self.layout.complete_pages(at + bytes);
            for page in pages {
                self.program(core, zone, page);
            }
            at += bytes;
        }
        let tally = &mut self.tallies[zone];
        if tally.held > 0 && !tally.unflushed {
            tally.unflushed = true;
            self.unflushed.push(zone as u32);
        }
    }

    fn program(&mut self, core: &mut Core, zone: usize, page: u64) {
        let unit = self.layout.unit;
        let tally = &mut self.tallies[zone];
        let release = unit.min(tally.held);
        tally.held -= release;
        let (ns, zone, page_number) = (self.index as u32, zone as u32, page as u32);
        core.in_flight[self.index].add(zone, page_number, core.flash.clock);
        let entry = QueuedOperation {
            work: DieWork::Program,
            page: self.cell_page(page),
            ready: 0,
            bytes: unit,
            release,
            cause: Cause::Host,
            owner: Owner::Page {
                ns,
                zone,
                page: page_number,
            },
            number: 1,
        };
        core.queue_after_intake(self.layout.die(u64::from(zone), page), entry);
    }

    /// Makes sure that pages which are not complete outlive a loss of power, too: they are
    /// programmed to spare pages, and again when they are complete. Within an intake.
    pub(crate) fn flush(&mut self, core: &mut Core) {
        while let Some(zone) = self.unflushed.pop() {
            self.tallies[zone as usize].unflushed = false;
            self.save_incomplete(core, zone as usize);
        }
    }

    /// As [`Self::flush`], for one zone.
    pub(crate) fn flush_zone(&mut self, core: &mut Core, zone: usize) {
        if std::mem::take(&mut self.tallies[zone].unflushed) {
            self.unflushed.retain(|&other| other as usize != zone);
            self.save_incomplete(core, zone);
        }
    }

    fn save_incomplete(&mut self, core: &mut Core, zone: usize) {
        let mut left = self.tallies[zone].held;
        let table_zone = &self.table.zones()[zone];
        let mut page = self
            .layout
            .complete_pages(table_zone.write_pointer.saturating_sub(table_zone.start));
        while left > 0 {
            let bytes = left.min(self.layout.unit);
            core.queue_after_intake(
                self.layout.die(zone as u64, page),
                QueuedOperation::of_flush(bytes),
            );
            page += 1;
            left -= bytes;
        }
    }

    /// Does the flash operations of a zone command: returns when it is done, and the padding that
    /// goes on in the background.
    pub(crate) fn after_action(
        &mut self,
        core: &mut Core,
        ready: u64,
        action: ZoneAction,
        transition: &Transition,
    ) -> (u64, Option<Padding>) {
        match action {
            ZoneAction::Reset => (self.erase(core, ready, transition), None),
            ZoneAction::Finish => {
                let zone = transition.zone;
                let held = std::mem::take(&mut self.tallies[zone].held);
                core.free_room(held);
                let page = self.layout.complete_pages(transition.filled);
                let end = self.layout.pages();
                let job = Padding {
                    ns: self.index,
                    zone,
                    page,
                    end,
                };
                (
                    ready + core.timing.finish_latency,
                    (page < end).then_some(job),
                )
            }
            ZoneAction::Open | ZoneAction::Close | ZoneAction::Offline => (ready, None),
        }
    }

    /// As [`Self::after_action`], on a device without any times.
    pub(crate) fn after_instant_action(&mut self, action: ZoneAction, transition: &Transition) {
        if action == ZoneAction::Reset && transition.filled > 0 {
            self.tallies[transition.zone].erases += 1;
        }
    }

    /// Erases the zone's flash blocks that were written; all dies at once.
    fn erase(&mut self, core: &mut Core, ready: u64, transition: &Transition) -> u64 {
        let Transition { zone, filled, .. } = *transition;
        self.forget(core, zone, ready);
        let ready = ready + core.timing.reset_latency;
        if filled == 0 {
            return ready;
        }
        self.tallies[zone].erases += 1;
        let on_die = filled.div_ceil(self.layout.lanes);
        let blocks = on_die.div_ceil(self.layout.block);
        let nanos = if core.timing.reset_proportional {
            let full = core.timing.die.erase as u128 * u128::from(on_die);
            (full / u128::from(self.layout.block)) as u64
        } else {
            core.timing.die.erase * blocks
        };
        let mut done = ready;
        for lane in 0..self
            .layout
            .lanes
            .min(filled.div_ceil(self.layout.interleave))
        {
            let die = self.layout.die(zone as u64, lane);
            done = done.max(core.flash.erase(die, ready, nanos, blocks).end);
        }
        done
    }
}
