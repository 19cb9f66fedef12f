//! Garbage collection: empties blocks, page by page, on the die that they are on.
//!
//! A page whose slots are all valid moves as one copyback. Slots of other pages (*stragglers*)
//! wait, still mapped where they are, until they fill a page together; the block that they wait in
//! is not erased before. At most one block waits: for a second one the page is filled up with
//! padding.
//!
//! The collector works alongside the host: from `collect_below` free blocks on, each page that the
//! host fills makes it move as many pages as it takes to gain one (more, the fewer blocks are
//! left), so that no single write pays for a whole block. With `collect_idle` it also works while
//! nobody waits. It never starts on another die than the one that needs room, and never moves data
//! to another one: FAST'24 §2.3 wants valid pages copied on their own die, and the reserve of free
//! blocks makes that always possible.

use super::{
    Cause, FlashOp, FlashWork, Ftl, PhysPage, RESERVED_BLOCKS, VictimChoice,
    blocks::{BlockState, OpenBlock, Straggler, Stream, Victim},
};

/// Pages of data that never changes which move along with each page of the host.
const PAGES_FOR_WEAR: u32 = 2;
/// Time in which nobody waits goes to blocks of which at least one part in this many is garbage:
/// the others would wear the flash out for little.
const IDLE_GARBAGE: u32 = 8;
/// Shares of one step at most, however many blocks are missing: a high threshold must not make one
/// write pay for a whole die.
const MOST_SHARES: u32 = 8;

impl Ftl {
    /// Opens a block for the host, after as much collecting as that takes.
    pub(super) fn open_for_host(
        &mut self,
        die: u32,
        stream: Stream,
        work: &mut Vec<FlashWork>,
    ) -> OpenBlock {
        if let Some(open) = self.open_slc(die, stream, work) {
            return open;
        }
        self.keep_reserve(die, work);
        let die = &mut self.dies[die as usize];
        let open = die
            .take_free(false)
            .expect("there are more than the reserve");
        die.host[stream.index()] = Some(open);
        open
    }

    /// Collects until the die has a free block beyond the collector's reserve.
    pub(super) fn keep_reserve(&mut self, die: u32, work: &mut Vec<FlashWork>) {
        while self.dies[die as usize].free_blocks() <= RESERVED_BLOCKS {
            let progress = self.collect_pages(die, self.geometry.pages_per_block, work);
            // The die holds no more slots than it may, and that limit leaves more blocks than are
            // in motion: not all closed ones are full of valid slots.
            assert!(progress, "die {die} has neither free blocks nor garbage");
        }
    }

    /// The collector's share after the host has filled a page of `die`.
    pub(super) fn collect_in_step(&mut self, die: u32, work: &mut Vec<FlashWork>) {
        let free = self.dies[die as usize].free_blocks();
        if free > self.options.collect_below && self.dies[die as usize].victim.is_none() {
            return;
        }
        let Some(victim) = self.current_victim(die) else {
            return;
        };
        let moved = match victim.cause {
            // This many pages are looked at for each that is gained; all hold valid slots if the
            // host writes less than a page at a time.
            Cause::Gc | Cause::Host | Cause::Fold => {
                let slots = self.geometry.slots_per_block();
                slots.div_ceil((slots - victim.valid).max(1))
            }
            Cause::Wear => PAGES_FOR_WEAR,
        };
        // One share while all is well, one more for each block that is missing.
        let missing = (self.options.collect_below - 1).saturating_sub(free);
        let shares = (1 + missing).min(MOST_SHARES);
        self.collect_pages(die, moved.max(1) * shares, work);
    }

    /// Returns the block being emptied on `die`, a new one if there is none and one is worth it.
    fn current_victim(&mut self, die: u32) -> Option<Victim> {
        let slots_per_block = self.geometry.slots_per_block();
        let host_slots = self.counters.host_slots;
        let die = &mut self.dies[die as usize];
        if die.victim.is_none() {
            // Emptying a block with little to gain may take as many pages as it frees. Where the
            // host waits for a block, only the greedy choice is sure to come to an end.
            let choice = if die.free_blocks() <= RESERVED_BLOCKS {
                VictimChoice::Greedy
            } else {
                self.options.victim
            };
            die.victim = die
                .best_victim(slots_per_block, choice, host_slots)
                .map(|block| Victim::new(block, die.blocks[block as usize].valid, Cause::Gc));
        }
        die.victim
    }

    /// Moves up to `budget` pages that hold valid slots, and erases the blocks that have become
    /// empty. Returns whether it moved or looked at any page.
    fn collect_pages(&mut self, die: u32, mut budget: u32, work: &mut Vec<FlashWork>) -> bool {
        self.erase_drained(die, work);
        let mut progress = false;
        while budget > 0 {
            let Some(victim) = self.current_victim(die) else {
                break;
            };
            progress = true;
            budget -= u32::from(self.look_at_page(die, victim, work));
        }
        progress
    }

    /// Takes the valid slots out of the victim's next page; returns whether there were any.
    pub(super) fn look_at_page(
        &mut self,
        die: u32,
        mut victim: Victim,
        work: &mut Vec<FlashWork>,
    ) -> bool {
        let page = PhysPage {
            die,
            block: victim.block,
            page: victim.next_page,
        };
        let moved = self.empty_page(page, victim.cause, work);
        victim.next_page += 1;
        let done = victim.next_page == self.geometry.pages_in(victim.block);
        *self.dies[die as usize].emptied_for(victim.cause) = (!done).then_some(victim);
        if done {
            self.victim_done(die, victim, work);
        }
        moved
    }

    /// Uses time in which nobody waits: looks at pages of each die that has fewer than
    /// `collect_idle` free blocks, until one is moved or a block is done. Returns whether there was
    /// anything to do.
    ///
    /// The SLC cache is emptied, too.
    pub fn collect_idle(&mut self, work: &mut Vec<FlashWork>) -> bool {
        let mut progress = false;
        if self.options.in_place {
            return progress;
        }
        for die in 0..self.geometry.dies {
            progress |= self.fold_pages(die, 1, work);
            if self.dies[die as usize].free_blocks() < self.options.collect_idle {
                progress |= self.collect_idle_die(die, work);
            }
        }
        progress
    }

    fn collect_idle_die(&mut self, die: u32, work: &mut Vec<FlashWork>) -> bool {
        let slots = self.geometry.slots_per_block();
        let most_valid = slots - slots.div_ceil(IDLE_GARBAGE);
        let victim = self.current_victim(die).filter(|victim| {
            let begun = victim.next_page > 0 || victim.cause == Cause::Wear;
            begun || victim.valid <= most_valid
        });
        let Some(mut victim) = victim else {
            self.dies[die as usize].victim = None;
            return false;
        };
        while !self.look_at_page(die, victim, work) {
            match self.dies[die as usize].victim {
                Some(next) if next.block == victim.block => victim = next,
                _ => break,
            }
        }
        true
    }

    /// Takes the valid slots out of one page; returns whether there were any.
    fn empty_page(&mut self, page: PhysPage, cause: Cause, work: &mut Vec<FlashWork>) -> bool {
        let slots = self.geometry.slots_per_page;
        let first = self.geometry.slot(page.die, page.block, page.page * slots);
        let valid: u32 = (first..first + slots)
            .map(|slot| u32::from(self.logical_in[slot as usize] != 0))
            .sum();
        if valid == slots {
            let to = self.collector_page(page.die, cause, work);
            self.move_slots((first..first + slots).collect(), to, cause);
            work.push(FlashWork {
                op: FlashOp::Copyback { from: page, to },
                cause,
            });
            self.counters.copybacks += 1;
        } else if valid > 0 {
            for slot in first..first + slots {
                if let Some(lpn) = self.logical_in[slot as usize].checked_sub(1) {
                    self.dies[page.die as usize]
                        .stragglers
                        .push(Straggler { lpn, slot });
                }
            }
            if self.waiting(page.die) >= slots {
                self.join_stragglers(page.die, work);
            }
        }
        valid > 0
    }

    /// All pages of the victim have been looked at: erase it, or let it wait for its stragglers.
    fn victim_done(&mut self, die: u32, victim: Victim, work: &mut Vec<FlashWork>) {
        self.dies[die as usize].draining.push(victim);
        self.erase_drained(die, work);
        if self.dies[die as usize].draining.len() > 1 {
            self.finish_draining(die, work);
        }
        // By turns, for levelling gains no room.
        if victim.cause == Cause::Gc {
            self.level_wear(die, work);
        }
    }

    /// Moves the stragglers on, even if they are few, and erases the blocks that they were in.
    pub(super) fn finish_draining(&mut self, die: u32, work: &mut Vec<FlashWork>) {
        self.waiting(die);
        self.join_stragglers(die, work);
        self.erase_drained(die, work);
    }

    /// Returns how many stragglers are still where they were; the host may have written others
    /// since.
    fn waiting(&mut self, die: u32) -> u32 {
        let slot_of = &self.slot_of;
        let stragglers = &mut self.dies[die as usize].stragglers;
        stragglers.retain(|straggler| slot_of[straggler.lpn as usize] == straggler.slot + 1);
        stragglers.len() as u32
    }

    /// Programs one page from the stragglers that have waited longest, padded if they are too few.
    fn join_stragglers(&mut self, die: u32, work: &mut Vec<FlashWork>) {
        if self.dies[die as usize].stragglers.is_empty() {
            return;
        }
        let cause = Cause::Gc;
        let to = self.collector_page(die, cause, work);
        let slots = self.geometry.slots_per_page;
        let count = (slots as usize).min(self.dies[die as usize].stragglers.len());
        let joined: Vec<u32> = self.dies[die as usize]
            .stragglers
            .drain(..count)
            .map(|it| it.slot)
            .collect();
        let mut last = None;
        for from in joined.iter().map(|&slot| self.geometry.page_of(slot)) {
            if last.replace(from) != Some(from) {
                work.push(FlashWork {
                    op: FlashOp::Read(from),
                    cause,
                });
            }
        }
        work.push(FlashWork {
            op: FlashOp::Program(to),
            cause,
        });
        self.counters.padded_slots += u64::from(slots - count as u32);
        self.move_slots(joined, to, cause);
    }

    /// Maps the content of the slots `from` to the page `to`.
    fn move_slots(&mut self, from: Vec<u32>, to: PhysPage, cause: Cause) {
        let first = self
            .geometry
            .slot(to.die, to.block, to.page * self.geometry.slots_per_page);
        let moved = from.len() as u64;
        for (old, new) in from.into_iter().zip(first..) {
            let lpn = std::mem::take(&mut self.logical_in[old as usize]) - 1;
            let (die, block) = self.geometry.block_of(old);
            let die = &mut self.dies[die as usize];
            die.remove_valid(block);
            // Moving does not make data younger.
            let written_at = die.written_at(block);
            self.map(lpn, new, written_at);
        }
        let counters = &mut self.counters;
        let (slots, programs) = match cause {
            Cause::Wear => (&mut counters.wear_slots, &mut counters.wear_programs),
            Cause::Fold => (&mut counters.fold_slots, &mut counters.fold_programs),
            Cause::Gc | Cause::Host => (&mut counters.gc_slots, &mut counters.gc_programs),
        };
        *slots += moved;
        *programs += 1;
    }

    /// Returns the next page to move to on `die`: for wear levelling in the most worn free block,
    /// for garbage collection in the least worn.
    fn collector_page(&mut self, die: u32, cause: Cause, work: &mut Vec<FlashWork>) -> PhysPage {
        let number = die;
        let slots_per_block = self.geometry.slots_per_block();
        let for_wear = cause == Cause::Wear;
        let open = if for_wear {
            &self.dies[die as usize].wear
        } else {
            &self.dies[die as usize].gc
        };
        let mut open = match *open {
            Some(open) => open,
            None => self.open_for_collector(die, for_wear, work),
        };
        let page = open.next_slot / self.geometry.slots_per_page;
        let block = open.block;
        open.next_slot += self.geometry.slots_per_page;
        let die = &mut self.dies[die as usize];
        let keep = if open.next_slot < slots_per_block {
            Some(open)
        } else {
            die.blocks[block as usize].state = BlockState::Closed;
            None
        };
        if for_wear {
            die.wear = keep;
        } else {
            die.gc = keep;
        }
        PhysPage {
            die: number,
            block,
            page,
        }
    }

    fn open_for_collector(
        &mut self,
        die: u32,
        for_wear: bool,
        work: &mut Vec<FlashWork>,
    ) -> OpenBlock {
        self.erase_drained(die, work);
        self.dies[die as usize]
            .take_free(for_wear)
            .expect("the host leaves the collector its reserve")
    }

    /// Erases the blocks that waited for stragglers and have none left.
    pub(super) fn erase_drained(&mut self, die: u32, work: &mut Vec<FlashWork>) {
        let counters = &mut self.counters;
        let state = &mut self.dies[die as usize];
        let (empty, waiting) = std::mem::take(&mut state.draining)
            .into_iter()
            .partition(|victim| state.blocks[victim.block as usize].valid == 0);
        state.draining = waiting;
        for Victim { block, cause, .. } in Vec::into_iter(empty) {
            state.erase(block);
            // The host wrote them elsewhere; the slot may soon hold the same page anew.
            state
                .stragglers
                .retain(|it| self.geometry.block_of(it.slot).1 != block);
            work.push(FlashWork {
                op: FlashOp::Erase { die, block },
                cause,
            });
            match cause {
                Cause::Wear => counters.wear_erases += 1,
                Cause::Fold => counters.fold_erases += 1,
                Cause::Gc | Cause::Host => counters.gc_erases += 1,
            }
        }
    }
}
