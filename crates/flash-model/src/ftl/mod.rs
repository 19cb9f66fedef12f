//! The flash translation layer of a conventional namespace: where data goes, and nothing about
//! when.
//!
//! The unit of mapping is the *logical page* (4 KiB on the usual device). A flash page has room for
//! one or several of them, its *slots*. Writes go to the dies in turn in order of arrival: as soon
//! as a die has filled one die allocation granule, it is the next die's turn (FAST'24 §2.3, §3.2).
//! A write command may carry a hint instead (FAST'24 §4): [`PagePlacement::After`] starts on the
//! die after the predecessor's, [`PagePlacement::Overwrite`] on the die of the old page, and both
//! go on in turn from there.
//!
//! With [`FtlOptions::separate_parts`] a command is cut into the granules of the address space; one that holds
//! none of them whole is cut from its beginning, wherever that is: files begin anywhere, and are
//! overwritten in steps that begin where they do.
//!
//! [`Ftl`] returns its decisions as [`FlashWork`]: reads, programs, copybacks and erases with their
//! cause. The caller, which has timelines, turns them into time.
//!
//! Invariants:
//! - the map is one-to-one: a slot holds one logical page, and a logical page is in one slot;
//! - nothing is erased that still holds a mapped logical page;
//! - data never changes its die because of collection or wear levelling;
//! - every die keeps [`RESERVED_BLOCKS`] free blocks for the collector, so that it can always work;
//! - the same calls give the same placement: no randomness, no hashing.
//!
//! With several reclaim unit handles (`handles`), data of different lifetimes goes to different
//! blocks.
//!
//! With an SLC cache (`slc`) the host's data goes to blocks of one bit a cell first.
//!
//! With [`FtlOptions::in_place`] nothing of this holds: every page stays where it is (`in_place`).
//!
//! Ignored: planes (a copyback may go anywhere on its die), bad blocks, read disturb, retention,
//! and the flash that the map itself would need.
//!
//! Memory: two tables of 4 bytes, one entry for each logical page and one for each slot, that are
//! not touched before they are used (0.2 % of the data at 4 KiB), and 12 bytes a block (20 with ages).

mod blocks;
mod collect;
mod damage;
mod geometry;
mod handles;
mod image;
mod in_place;
mod ops;
mod slc;
mod wear;

#[cfg(test)]
mod tests;

use blocks::{Die, OpenBlock, Stream};
pub use damage::Damage;
pub use geometry::{
    FtlConfigError, FtlGeometry, FtlOptions, HANDLES_MAX, PhysPage, RESERVED_BLOCKS,
    SLC_BLOCKS_LEAST, VictimChoice,
};
pub use image::FtlImageError;
pub use ops::{Cause, FlashOp, FlashWork, FtlCounters, PagePlacement};
pub use wear::WearReport;

/// A page-mapped FTL with garbage collection, wear levelling and FAST'24's placement hints.
///
/// Logical pages are numbered from 0 to [`FtlGeometry::logical_pages`]; writing or trimming beyond
/// that is a mistake of the caller, and panics.
#[derive(Debug, Clone)]
pub struct Ftl {
    geometry: FtlGeometry,
    options: FtlOptions,
    /// The slot of each logical page, plus one; 0: not mapped.
    slot_of: Vec<u32>,
    /// The logical page in each slot, plus one; 0: nothing, or no longer valid.
    logical_in: Vec<u32>,
    dies: Vec<Die>,
    /// The die whose turn it is.
    turn: u32,
    /// For each handle, the logical pages written to its reclaim unit.
    written: Vec<u64>,
    /// A die with this many valid slots takes no more: its collector could not work any more.
    slots_per_die_at_most: u32,
    counters: FtlCounters,
}

impl Ftl {
    /// Returns an empty device.
    ///
    /// # Errors
    /// The geometry cannot hold its logical pages with the blocks that the collector needs, or is
    /// too large for slot numbers of 32 bits.
    pub fn new(geometry: FtlGeometry, options: FtlOptions) -> Result<Self, FtlConfigError> {
        geometry.check(&options)?;
        Ok(Self {
            slot_of: vec![0; geometry.logical_pages as usize],
            logical_in: vec![0; geometry.slot_numbers() as usize],
            dies: vec![Die::new(&geometry, options.victim); geometry.dies as usize],
            turn: 0,
            written: vec![0; geometry.handles as usize],
            slots_per_die_at_most: geometry.slots_per_die_at_most(),
            counters: FtlCounters::default(),
            geometry,
            options,
        })
    }

    /// Returns the geometry that it was made with.
    #[must_use]
    pub const fn geometry(&self) -> &FtlGeometry {
        &self.geometry
    }

    /// Returns the options that it was made with.
    #[must_use]
    pub const fn options(&self) -> &FtlOptions {
        &self.options
    }

    /// Returns the counts so far.
    #[must_use]
    pub const fn counters(&self) -> &FtlCounters {
        &self.counters
    }

    /// Returns the number of logical pages that were written and not trimmed since.
    #[must_use]
    pub fn mapped_pages(&self) -> u64 {
        self.dies.iter().map(|die| u64::from(die.valid)).sum()
    }

    /// Returns the flash page that holds logical page `lpn`, if it was ever written and not trimmed
    /// since; none beyond the end.
    #[must_use]
    pub fn read(&self, lpn: u64) -> Option<PhysPage> {
        match *self.slot_of.get(usize::try_from(lpn).ok()?)? {
            0 => None,
            slot => Some(self.geometry.page_of(slot - 1)),
        }
    }

    /// Returns the place of logical page `lpn` among the slots of its flash page.
    #[must_use]
    pub fn slot_in_page(&self, lpn: u64) -> Option<u32> {
        let slot = self
            .slot_of
            .get(usize::try_from(lpn).ok()?)?
            .checked_sub(1)?;
        Some(slot % self.geometry.slots_per_page)
    }

    /// Returns how many free blocks each die has, in order of dies.
    pub fn free_blocks(&self) -> impl Iterator<Item = u32> {
        self.dies.iter().map(Die::free_blocks)
    }

    /// Returns how often the block of `page` was erased.
    #[must_use]
    pub fn erases(&self, page: PhysPage) -> u32 {
        self.dies[page.die as usize].blocks[page.block as usize].erases
    }

    /// Returns whether `page` has not been programmed yet: it is being filled, its data is in the
    /// controller's memory, and reading it needs no flash.
    #[must_use]
    pub fn is_buffered(&self, page: PhysPage) -> bool {
        let mut open = self.dies[page.die as usize].host.iter().flatten();
        open.any(|open| {
            open.block == page.block && open.next_slot / self.geometry.slots_per_page == page.page
        })
    }

    /// Writes `count` logical pages from `first` on, as one command. The hint counts for the first
    /// of them (FAST'24 §4); the rest goes on in turn. The operations for the flash are added to
    /// `work`, in an order that never loses data.
    pub fn write(
        &mut self,
        first: u64,
        count: u64,
        placement: PagePlacement,
        work: &mut Vec<FlashWork>,
    ) {
        if self.options.in_place {
            self.write_in_place(first..first + count, work);
            return;
        }
        if let Some(die) = self.hinted_die(first, placement) {
            self.turn = die;
        }
        let handle = match placement {
            PagePlacement::Handle(handle) if handle < self.geometry.handles => handle,
            _ => 0,
        };
        let granule = u64::from(self.geometry.slots_per_granule());
        let (mut lpn, end) = (first, first + count);
        let begin = match first.next_multiple_of(granule) + granule <= end {
            true => 0,
            // None of the address space's is whole here.
            false => first % granule,
        };
        while lpn < end {
            let whole = lpn % granule == begin && end - lpn >= granule;
            let parts = !(whole && self.options.separate_parts);
            let (stream, pages) = (Stream { handle, parts }, if parts { 1 } else { granule });
            self.place(lpn, pages, stream, work);
            lpn += pages;
        }
    }

    /// Forgets the content of logical page `lpn`; returns whether there was any.
    pub fn trim(&mut self, lpn: u64) -> bool {
        let mapped = self.unmap(lpn);
        self.counters.trimmed_pages += u64::from(mapped);
        mapped
    }

    /// Programs the data left in partly filled pages, and gives up their free slots: afterwards no
    /// page [is buffered](Self::is_buffered).
    pub fn pad(&mut self, work: &mut Vec<FlashWork>) {
        for die in 0..self.geometry.dies {
            self.pad_die(die, work);
        }
    }

    /// As [`pad`](Self::pad), for one die.
    pub fn pad_die(&mut self, die: u32, work: &mut Vec<FlashWork>) {
        for handle in 0..self.geometry.handles {
            let parts = true;
            self.pad_stream(die, Stream { handle, parts }, work);
        }
    }

    fn pad_stream(&mut self, die: u32, stream: Stream, work: &mut Vec<FlashWork>) {
        let slots = self.geometry.slots_per_page;
        let Some(open) = self.dies[die as usize].host[stream.index()].as_mut() else {
            return;
        };
        let missing = (slots - open.next_slot % slots) % slots;
        if missing == 0 {
            return;
        }
        open.next_slot += missing;
        self.counters.padded_slots += u64::from(missing);
        self.host_page_filled(die, stream, work);
    }

    /// Returns the die on which a command with this hint starts; none: the die whose turn it is.
    fn hinted_die(&mut self, first: u64, placement: PagePlacement) -> Option<u32> {
        let neighbour = match placement {
            PagePlacement::RoundRobin | PagePlacement::Handle(_) => return None,
            PagePlacement::After { predecessor } => predecessor,
            PagePlacement::Overwrite => first,
        };
        self.counters.hints += 1;
        let Some(page) = self.read(neighbour) else {
            self.counters.hints_unmapped += 1;
            return None;
        };
        let die = match placement {
            PagePlacement::After { .. } => (page.die + 1) % self.geometry.dies,
            _ => page.die,
        };
        // An overwrite of a page makes room for itself.
        let leaves = u32::from(self.read(first).is_some_and(|old| old.die == die));
        if self.dies[die as usize].valid - leaves >= self.slots_per_die_at_most {
            self.counters.hints_no_room += 1;
            return None;
        }
        if self.is_worn_die(die) {
            self.counters.hints_worn_die += 1;
            return None;
        }
        Some(die)
    }

    /// Gives `pages` logical pages from `lpn` on slots on the die whose turn it is, or on the next
    /// one that can take them.
    fn place(&mut self, lpn: u64, pages: u64, stream: Stream, work: &mut Vec<FlashWork>) {
        for old in lpn..lpn + pages {
            self.unmap(old);
        }
        // All dies together hold fewer pages than they may: at least one has room.
        while self.dies[self.turn as usize].valid >= self.slots_per_die_at_most {
            self.turn = (self.turn + 1) % self.geometry.dies;
            self.counters.full_dies_skipped += 1;
        }
        let die = self.turn;
        for new in lpn..lpn + pages {
            let open = match self.dies[die as usize].host[stream.index()] {
                Some(open) => open,
                None => self.open_for_host(die, stream, work),
            };
            let slot = self.geometry.slot(die, open.block, open.next_slot);
            let next_slot = open.next_slot + 1;
            self.dies[die as usize].host[stream.index()] = Some(OpenBlock { next_slot, ..open });
            self.counters.host_slots += 1;
            self.count_written(stream.handle);
            self.map(new as u32, slot, self.counters.host_slots);
            if next_slot.is_multiple_of(self.geometry.slots_per_page) {
                self.host_page_filled(die, stream, work);
            }
        }
    }

    /// A page of the host's open block on `die` is complete: programs it, passes the turn on, and
    /// lets the collector do its share.
    fn host_page_filled(&mut self, die: u32, stream: Stream, work: &mut Vec<FlashWork>) {
        let geometry = &self.geometry;
        let open = self.dies[die as usize].host[stream.index()].expect("its page was filled");
        let pages = open.next_slot / geometry.slots_per_page;
        let page = PhysPage {
            die,
            block: open.block,
            page: pages - 1,
        };
        work.push(FlashWork {
            op: FlashOp::Program(page),
            cause: Cause::Host,
        });
        self.counters.host_programs += 1;
        if self.turn == die && pages.is_multiple_of(geometry.granule_pages) {
            self.turn = (die + 1) % geometry.dies;
        }
        if pages == geometry.pages_in(open.block) {
            self.dies[die as usize].close_host(stream);
        }
        self.collect_in_step(die, work);
        self.fold_in_step(die, work);
    }

    /// Maps a logical page whose data the host wrote when it had written `written_at` pages.
    fn map(&mut self, lpn: u32, slot: u32, written_at: u64) {
        self.slot_of[lpn as usize] = slot + 1;
        self.logical_in[slot as usize] = lpn + 1;
        let (die, block) = self.geometry.block_of(slot);
        self.dies[die as usize].add_valid(block, written_at);
    }

    fn unmap(&mut self, lpn: u64) -> bool {
        let Some(slot) = std::mem::take(&mut self.slot_of[lpn as usize]).checked_sub(1) else {
            return false;
        };
        self.logical_in[slot as usize] = 0;
        let (die, block) = self.geometry.block_of(slot);
        self.dies[die as usize].remove_valid(block);
        true
    }
}
