//! The SLC cache: blocks of each die that hold one bit a cell, and take the host's data first.
//!
//! All data of the host goes through it. Its blocks are emptied (*folded*) into blocks of the
//! native cells on the same die, as the collector empties blocks: while nobody waits, and alongside
//! the host once a die has no more than one free block of the cache left. From then on each page of
//! the host costs a page of the cache and one of the native cells: the write cliff. Data that the
//! host overwrites or trims while it is in the cache is never folded.
//!
//! A cache is as durable as other flash: power losses and saved images know no difference.

use super::{
    Cause, FlashWork, Ftl,
    blocks::{OpenBlock, Stream, Victim},
};

/// Free blocks of a die's cache from which on each page of the host makes a page of it fold.
const FOLD_BELOW: usize = 1;

impl Ftl {
    /// Opens a block of the cache for the host, after as much folding as that takes; `None` if
    /// there is no cache, or all of it is being filled.
    pub(super) fn open_slc(
        &mut self,
        die: u32,
        stream: Stream,
        work: &mut Vec<FlashWork>,
    ) -> Option<OpenBlock> {
        if self.geometry.slc_blocks == 0 {
            return None;
        }
        while self.dies[die as usize].free_slc.is_empty() {
            if !self.fold_pages(die, self.geometry.slc_pages, work) {
                break;
            }
        }
        let die = &mut self.dies[die as usize];
        let open = die.take_free_slc()?;
        die.host[stream.index()] = Some(open);
        Some(open)
    }

    /// The cache's share after the host has filled a page of `die`.
    pub(super) fn fold_in_step(&mut self, die: u32, work: &mut Vec<FlashWork>) {
        if self.geometry.slc_blocks > 0 && self.dies[die as usize].free_slc.len() <= FOLD_BELOW {
            self.fold_pages(die, 1, work);
        }
    }

    /// Moves up to `budget` pages that hold valid slots out of the cache, and erases the blocks
    /// that have become empty. Returns whether there was anything to do.
    pub(super) fn fold_pages(
        &mut self,
        die: u32,
        mut budget: u32,
        work: &mut Vec<FlashWork>,
    ) -> bool {
        if self.geometry.slc_blocks == 0 {
            return false;
        }
        let mut progress = false;
        while budget > 0 {
            let state = &mut self.dies[die as usize];
            let next = state.fold.or_else(|| {
                let block = state.best_fold()?;
                let valid = state.blocks[block as usize].valid;
                Some(Victim::new(block, valid, Cause::Fold))
            });
            let Some(victim) = next else {
                // One may wait for stragglers.
                if !progress && self.dies[die as usize].has_draining_slc() {
                    self.finish_draining(die, work);
                    return true;
                }
                break;
            };
            progress = true;
            // The pages go to blocks that the collector fills, too.
            self.keep_reserve(die, work);
            budget -= u32::from(self.look_at_page(die, victim, work));
        }
        progress
    }
}
