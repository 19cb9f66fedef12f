//! A conventional namespace: the FTL's decisions on the timelines.

mod handles;
mod spare;
mod submit;

pub use handles::ReclaimUnits;
pub use spare::Spare;

use crate::{
    SECTOR,
    command::{Placement, Refused},
    core::{Cause, Core, DieWork, Owner, PageName, QueuedOperation},
    flash::{CellPage, PagePlace, Planes},
    ftl::{self, FlashOp, FlashWork, Ftl, FtlConfigError, FtlGeometry, PagePlacement, PhysPage},
    migration::{MoveCursor, PageWork, ReadPart},
    profile::Profile,
};

/// How many of the pages that a read has touched already are compared with the next one.
const LOOK_BACK: usize = 8;

/// One conventional namespace.
#[derive(Clone, Debug)]
pub(crate) struct ConventionalNamespace {
    /// Its number on the device.
    index: u32,
    pub(crate) size: u64,
    pub(crate) ftl: Ftl,
    /// Reclaim unit handles that the host may name; 0: none.
    handles: u32,
    logical_page: u64,
    over_provisioning_percent: f64,
    /// Bytes in pages that are not complete, which take room in the write buffer.
    held: u64,
    /// The bytes of it that no flush has covered.
    unflushed: u64,
    /// The die that takes the next incomplete page of a flush.
    flush_die: u32,
    work: Vec<FlashWork>,
    touched: Vec<Touched>,
}

/// A flash page that a command reads from.
#[derive(Clone, Copy, Debug)]
struct Touched {
    page: PhysPage,
    planes: Planes,
    bytes: u64,
}

/// Adds the blocks that further handles have open.
fn with_blocks_of_handles(geometry: FtlGeometry) -> FtlGeometry {
    let more = geometry.blocks_of_handles();
    FtlGeometry {
        blocks_per_die: geometry.blocks_per_die.saturating_add(more),
        slc_blocks: match geometry.slc_blocks {
            0 => 0,
            blocks => blocks.max(ftl::SLC_BLOCKS_LEAST + more),
        },
        ..geometry
    }
}

impl ConventionalNamespace {
    pub(crate) fn new(index: usize, size: u64, profile: &Profile) -> Result<Self, FtlConfigError> {
        let geometry = profile.geometry();
        let logical_page = profile.ftl.logical_page;
        let slots_per_page = (geometry.program_unit().0 / logical_page) as u32;
        let logical_pages = size.div_ceil(logical_page);
        let slots_per_block = u64::from(slots_per_page) * u64::from(geometry.pages_per_block);
        let blocks = FtlGeometry::blocks_needed(
            logical_pages,
            geometry.dies(),
            slots_per_block,
            profile.ftl.over_provisioning_percent,
        );
        let slc = &profile.ftl.slc;
        let ftl_geometry = FtlGeometry {
            dies: geometry.dies(),
            blocks_per_die: u32::try_from(blocks).unwrap_or(u32::MAX),
            pages_per_block: geometry.pages_per_block,
            slots_per_page,
            granule_pages: (geometry.unit.0 / geometry.program_unit().0) as u32,
            logical_pages,
            slc_blocks: slc.blocks(geometry, size),
            slc_pages: slc.pages(geometry),
            handles: profile.ftl.handles.max(1),
        };
        let ftl_geometry = with_blocks_of_handles(ftl_geometry);
        Ok(Self {
            index: index as u32,
            size,
            handles: profile.ftl.handles,
            ftl: Ftl::new(ftl_geometry, profile.ftl.options)?,
            logical_page,
            over_provisioning_percent: profile.ftl.over_provisioning_percent,
            held: 0,
            unflushed: 0,
            flush_die: 0,
            work: Vec::new(),
            touched: Vec::new(),
        })
    }

    fn cell_page(&self, page: PhysPage) -> CellPage {
        if self.ftl.geometry().is_slc(page.block) {
            CellPage::Slc
        } else {
            CellPage::Native(page.page)
        }
    }

    /// Returns the bytes that are mapped: whole logical pages, as far as the namespace goes.
    pub(crate) fn mapped_bytes(&self) -> u64 {
        (self.ftl.mapped_pages() * self.logical_page).min(self.size)
    }

    /// Checks that the bytes are in the namespace and whole sectors.
    pub(crate) fn check_range(&self, offset: u64, len: u64) -> Result<(), Refused> {
        if len == 0 || !offset.is_multiple_of(SECTOR) || !len.is_multiple_of(SECTOR) {
            return Err(Refused::Unaligned);
        }
        if offset.checked_add(len).is_none_or(|end| end > self.size) {
            return Err(Refused::OutOfRange);
        }
        Ok(())
    }

    /// Reads; returns when the host has the data.
    pub(crate) fn read(&mut self, core: &mut Core, ready: u64, offset: u64, len: u64) -> u64 {
        let mut touched = std::mem::take(&mut self.touched);
        let in_memory = self.pages_on_flash(core, offset, len, &mut touched);
        let mut done = ready;
        for Touched {
            page,
            planes,
            bytes,
        } in touched.drain(..)
        {
            let name = PageName {
                ns: self.index,
                block: u64::from(page.die) << 32 | u64::from(page.block),
                page: page.page,
                erases: self.ftl.erases(page),
            };
            let place = PagePlace {
                die: page.die,
                page: self.cell_page(page),
                planes,
            };
            done = done.max(core.host_read(name, place, ready, bytes));
        }
        self.touched = touched;
        if in_memory > 0 {
            done.max(core.send_to_host(ready, in_memory))
        } else {
            done
        }
    }

    /// Adds the flash pages that hold the bytes, and how many of each, to `out`; returns the bytes
    /// that are on none, because they were never written or their page is not complete.
    fn pages_on_flash(&self, core: &Core, offset: u64, len: u64, out: &mut Vec<Touched>) -> u64 {
        let (mut at, end, mut elsewhere) = (offset, offset + len, 0);
        while at < end {
            let bytes = (self.logical_page - at % self.logical_page).min(end - at);
            match self.on_flash(core, at, bytes) {
                Some(next) => {
                    let mut latest = out.iter_mut().rev().take(LOOK_BACK);
                    match latest.find(|seen| seen.page == next.page) {
                        Some(seen) => {
                            seen.bytes += bytes;
                            seen.planes = seen.planes.and(next.planes);
                        }
                        None => out.push(next),
                    }
                }
                None => elsewhere += bytes,
            }
            at += bytes;
        }
        elsewhere
    }

    /// Returns the flash page that holds these bytes of a logical page.
    fn on_flash(&self, core: &Core, at: u64, bytes: u64) -> Option<Touched> {
        let lpn = at / self.logical_page;
        let page = self.ftl.read(lpn).filter(|&it| !self.ftl.is_buffered(it))?;
        let slot = u64::from(self.ftl.slot_in_page(lpn)?);
        let from = slot * self.logical_page + at % self.logical_page;
        Some(Touched {
            page,
            planes: core.planes(from, bytes),
            bytes,
        })
    }

    /// Writes, within an intake that began at `ready`.
    pub(crate) fn write(
        &mut self,
        core: &mut Core,
        ready: u64,
        offset: u64,
        len: u64,
        placement: Placement,
    ) {
        let old = self.read_partly_overwritten(core, ready, offset, len);
        let first = offset / self.logical_page;
        let count = (offset + len).div_ceil(self.logical_page) - first;
        let mut left = count * self.logical_page;
        while left > 0 {
            let bytes = left.min(core.unit);
            core.take_in(bytes, None);
            left -= bytes;
        }
        self.held += count * self.logical_page;
        self.unflushed += count * self.logical_page;
        let mut work = std::mem::take(&mut self.work);
        self.ftl
            .write(first, count, self.page_placement(placement), &mut work);
        for item in work.drain(..) {
            let (die, entry) = self.entry(item, old, core);
            core.queue_after_intake(die, entry);
        }
        self.work = work;
    }

    fn page_placement(&self, placement: Placement) -> PagePlacement {
        match placement {
            Placement::RoundRobin => PagePlacement::RoundRobin,
            Placement::Overwrite => PagePlacement::Overwrite,
            Placement::Handle(handle) => PagePlacement::Handle(handle),
            Placement::After { predecessor } => {
                let predecessor = predecessor / self.logical_page;
                if predecessor < self.ftl.geometry().logical_pages {
                    PagePlacement::After { predecessor }
                } else {
                    PagePlacement::RoundRobin
                }
            }
        }
    }

    /// Senses the part that stays of logical pages that are only partly written; returns when it
    /// has arrived.
    fn read_partly_overwritten(&self, core: &mut Core, ready: u64, offset: u64, len: u64) -> u64 {
        let end = offset + len;
        let (head, tail) = (offset % self.logical_page, end % self.logical_page);
        let (first, last) = (offset / self.logical_page, end / self.logical_page);
        let mut done = ready;
        for (partly, lpn) in [
            (head > 0, first),
            (tail > 0 && (last != first || head == 0), last),
        ] {
            // A write that ends with the namespace has no page after it to look at.
            let bytes = self.logical_page;
            if partly && let Some(old) = self.on_flash(core, lpn * bytes, bytes) {
                core.traffic.sensed[Cause::Host as usize] += bytes;
                let place = PagePlace {
                    die: old.page.die,
                    page: self.cell_page(old.page),
                    planes: old.planes,
                };
                let span = core.flash.host_read(place, ready, bytes, &mut |_, _| ());
                done = done.max(span.end);
            }
        }
        done
    }

    /// Returns an operation that the FTL wants, as an entry of a die's queue.
    fn entry(&mut self, item: FlashWork, ready: u64, core: &Core) -> (u32, QueuedOperation) {
        let unit = core.unit;
        let cause = match item.cause {
            ftl::Cause::Host => Cause::Host,
            ftl::Cause::Gc => Cause::Gc,
            ftl::Cause::Wear => Cause::Wear,
            ftl::Cause::Fold => Cause::Fold,
        };
        let mut entry = QueuedOperation {
            work: DieWork::Program,
            page: CellPage::Native(0),
            ready,
            bytes: unit,
            release: 0,
            cause,
            owner: Owner::Nobody,
            number: 0,
        };
        let die = match item.op {
            FlashOp::Read(page) => {
                entry.work = DieWork::Read;
                entry.page = self.cell_page(page);
                page.die
            }
            FlashOp::Program(page) => {
                entry.page = self.cell_page(page);
                if cause == Cause::Host {
                    entry.number = 1;
                    entry.release = unit.min(self.held);
                    self.held -= entry.release;
                    self.unflushed = self.unflushed.min(self.held);
                }
                page.die
            }
            FlashOp::Copyback { from, to } => {
                entry.work = DieWork::Copyback {
                    from: self.cell_page(from),
                };
                entry.page = self.cell_page(to);
                from.die
            }
            FlashOp::Erase { die, .. } => {
                entry.work = DieWork::Erase {
                    nanos: core.timing.die.erase,
                    blocks: 1,
                };
                die
            }
        };
        (die, entry)
    }

    /// Forgets the content of the logical pages that lie wholly in the range.
    pub(crate) fn deallocate(&mut self, offset: u64, len: u64) {
        let first = offset.div_ceil(self.logical_page);
        for lpn in first..(offset + len) / self.logical_page {
            self.ftl.trim(lpn);
        }
    }

    /// Makes sure that pages which are not complete outlive a loss of power, too: they are
    /// programmed to spare pages, and again when they are complete. Within an intake.
    pub(crate) fn flush(&mut self, core: &mut Core) {
        let mut left = std::mem::take(&mut self.unflushed);
        while left > 0 {
            let bytes = left.min(core.unit);
            core.queue_after_intake(self.flush_die, QueuedOperation::of_flush(bytes));
            self.flush_die = (self.flush_die + 1) % self.ftl.geometry().dies;
            left -= bytes;
        }
    }

    /// Adds the next page of a migration to `page`; adds nothing when everything was put in motion.
    pub(crate) fn next_page(&mut self, core: &Core, cursor: &mut MoveCursor, page: &mut PageWork) {
        let unit = core.unit;
        let Some(next) = cursor.peek() else { return };
        let bytes = next.len.min(unit - next.to % unit);
        let mut touched = std::mem::take(&mut self.touched);
        self.pages_on_flash(core, next.from, bytes, &mut touched);
        page.reads.extend(touched.drain(..).map(|part| ReadPart {
            die: part.page.die,
            page: self.cell_page(part.page),
            bytes: part.bytes,
        }));
        self.touched = touched;
        let first = next.to / self.logical_page;
        let count = (next.to + bytes).div_ceil(self.logical_page) - first;
        let mut work = std::mem::take(&mut self.work);
        self.ftl
            .write(first, count, PagePlacement::RoundRobin, &mut work);
        for item in work.drain(..) {
            let (die, mut entry) = self.entry(item, 0, core);
            if entry.cause == Cause::Host && entry.work == DieWork::Program {
                (entry.cause, entry.number) = (Cause::Migration, 0);
                page.programs.push((die, entry));
            } else {
                page.others.push((die, entry));
            }
        }
        self.work = work;
        cursor.advance(bytes);
    }

    /// Queues a little work of the collector for each die, which begins at `at` or later; returns
    /// whether there is any.
    pub(crate) fn collect_idle(&mut self, core: &mut Core, at: u64) -> bool {
        let mut work = std::mem::take(&mut self.work);
        let progress = self.ftl.collect_idle(&mut work);
        for item in work.drain(..) {
            let (die, entry) = self.entry(item, at, core);
            core.queue(die, entry);
        }
        self.work = work;
        progress
    }

    /// Places data in no time.
    pub(crate) fn place(&mut self, core: &mut Core, offset: u64, len: u64, placement: Placement) {
        let first = offset / self.logical_page;
        let count = (offset + len).div_ceil(self.logical_page) - first;
        let mut work = std::mem::take(&mut self.work);
        self.ftl
            .write(first, count, self.page_placement(placement), &mut work);
        for item in work.drain(..) {
            let (die, entry) = self.entry(item, 0, core);
            core.count_instant(die, &entry);
        }
        self.work = work;
    }
}
