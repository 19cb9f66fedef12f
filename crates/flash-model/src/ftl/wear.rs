//! Wear levelling.
//!
//! The SLC cache takes no part in it, and is not reported: it wears less, and alike.
//!
//! Between the blocks of a die: free blocks are used in order of wear, and when a block that never
//! changes lags by more than `wear_spread` erases, its data moves into the most worn free block.
//! Between dies: the normal rule wears them alike; a host that overwrites the same places over and
//! over with hints does not. A hint to a die that is ahead by more than `die_wear_spread` erases a
//! block is not followed, as FAST'24 §4 proposes (it costs that page its place in the stripe).

use super::{
    Cause, FlashOp, FlashWork, Ftl, PhysPage, RESERVED_BLOCKS,
    blocks::{Block, BlockState, Victim},
};

/// The erases of the blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WearReport {
    /// Erases of the least worn block.
    pub least: u32,
    /// Erases of the most worn block.
    pub most: u32,
    /// Mean over all blocks.
    pub mean: f64,
    /// The largest difference between two blocks of the same die.
    pub spread_in_die: u32,
    /// Mean of the least worn die.
    pub least_die_mean: f64,
    /// Mean of the most worn die.
    pub most_die_mean: f64,
}

impl Ftl {
    /// Returns how worn the flash is.
    #[must_use]
    pub fn wear(&self) -> WearReport {
        let blocks = f64::from(self.geometry.blocks_per_die);
        let mut report = WearReport {
            least: u32::MAX,
            most: 0,
            mean: 0.0,
            spread_in_die: 0,
            least_die_mean: f64::INFINITY,
            most_die_mean: 0.0,
        };
        for die in &self.dies {
            let native = &die.blocks[..self.geometry.blocks_per_die as usize];
            let least = native
                .iter()
                .map(|block: &Block| block.erases)
                .min()
                .unwrap_or(0);
            let most = die.most_erases;
            let mean = die.erases as f64 / blocks;
            report.least = report.least.min(least);
            report.most = report.most.max(most);
            report.mean += mean / self.dies.len() as f64;
            report.spread_in_die = report.spread_in_die.max(most - least);
            report.least_die_mean = report.least_die_mean.min(mean);
            report.most_die_mean = report.most_die_mean.max(mean);
        }
        report
    }

    /// Returns whether `die` is ahead in wear by more than hints may make it.
    pub(super) fn is_worn_die(&self, die: u32) -> bool {
        let least = self.dies.iter().map(|die| die.erases).min().unwrap_or(0);
        let ahead = self.dies[die as usize].erases - least;
        ahead > u64::from(self.options.die_wear_spread) * u64::from(self.geometry.blocks_per_die)
    }

    /// After an erase: if a block of `die` that holds data lags, it is the next to be emptied. A
    /// block that is still being filled, slowly then, is closed for that, as it is.
    pub(super) fn level_wear(&mut self, die: u32, work: &mut Vec<FlashWork>) {
        let state = &mut self.dies[die as usize];
        // Moving takes a block of its own, out of the reserve if it must.
        if state.victim.is_some() || state.free_blocks() < RESERVED_BLOCKS {
            return;
        }
        if !state.may_lag(self.options.wear_spread) {
            return;
        }
        let Some((least, block)) = state.least_worn_in_use() else {
            return;
        };
        if state.most_erases - least <= self.options.wear_spread {
            return;
        }
        if state.draining.iter().any(|victim| victim.block == block) {
            self.finish_draining(die, work);
            return;
        }
        for open in state
            .host
            .iter_mut()
            .chain([&mut state.gc, &mut state.wear])
        {
            let Some(open) = open.take_if(|open| open.block == block) else {
                continue;
            };
            state.blocks[block as usize].state = BlockState::Closed;
            let filled = open.next_slot % self.geometry.slots_per_page;
            if filled > 0 {
                let page = open.next_slot / self.geometry.slots_per_page;
                work.push(FlashWork {
                    op: FlashOp::Program(PhysPage { die, block, page }),
                    cause: Cause::Host,
                });
                self.counters.host_programs += 1;
                self.counters.padded_slots += u64::from(self.geometry.slots_per_page - filled);
            }
        }
        let valid = state.blocks[block as usize].valid;
        state.victim = Some(Victim::new(block, valid, Cause::Wear));
    }
}
