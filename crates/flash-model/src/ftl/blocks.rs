//! The blocks of one die: which are free, which is open for whom, and how worn each is.

use std::cmp::Reverse;

use super::{FtlGeometry, VictimChoice, ops::Cause};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockState {
    Free,
    Open,
    Closed,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) erases: u32,
    /// Slots that hold a mapped logical page.
    pub(super) valid: u32,
    pub(super) state: BlockState,
}

impl Block {
    /// Returns age × (1 − u) ÷ u, in parts of 2^-20; only its order matters. One that holds nothing
    /// is worth most.
    fn worth(&self, slots_per_block: u32, age: u64) -> u128 {
        let age = u128::from(age) + 1;
        let free = u128::from(slots_per_block - self.valid);
        match self.valid {
            0 => u128::MAX,
            valid => ((age * free) << 20) / u128::from(valid),
        }
    }
}

/// A block that is being filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpenBlock {
    pub(super) block: u32,
    /// The next slot to fill; slots before it hold data, or held some, or were padded.
    pub(super) next_slot: u32,
}

/// The kind of the host's data, for the choice of its open block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stream {
    pub(super) handle: u32,
    /// Parts of granules, and everything where they are not kept apart; or else whole granules, each
    /// of which begins with a page.
    pub(super) parts: bool,
}

impl Stream {
    /// Returns its place among those of a die.
    pub(super) const fn index(self) -> usize {
        self.handle as usize * 2 + self.parts as usize
    }
}

/// A block that is being emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Victim {
    pub(super) block: u32,
    pub(super) next_page: u32,
    /// Valid slots when it was chosen.
    pub(super) valid: u32,
    pub(super) cause: Cause,
}

impl Victim {
    pub(super) const fn new(block: u32, valid: u32, cause: Cause) -> Self {
        Self {
            block,
            next_page: 0,
            valid,
            cause,
        }
    }
}

/// A slot from a page that cannot move as a whole, waiting for others to fill a page with. It stays
/// mapped where it was until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Straggler {
    pub(super) lpn: u32,
    pub(super) slot: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Die {
    pub(super) blocks: Vec<Block>,
    /// The blocks before this are not of the SLC cache.
    native: u32,
    /// How many pages the host had written when it wrote the youngest data of each block; empty
    /// where the choice of victims does not need it.
    written_at: Vec<u64>,
    /// Free blocks that are not of the SLC cache.
    pub(super) free: Vec<u32>,
    /// Free blocks of the SLC cache.
    pub(super) free_slc: Vec<u32>,
    /// One for each [`Stream`].
    pub(super) host: Vec<Option<OpenBlock>>,
    pub(super) gc: Option<OpenBlock>,
    pub(super) wear: Option<OpenBlock>,
    pub(super) victim: Option<Victim>,
    /// The block of the SLC cache that is being emptied.
    pub(super) fold: Option<Victim>,
    /// Emptied but for stragglers.
    pub(super) draining: Vec<Victim>,
    pub(super) stragglers: Vec<Straggler>,
    /// Valid slots of all blocks.
    pub(super) valid: u32,
    /// Erases of all blocks that are not of the SLC cache, which wears less.
    pub(super) erases: u64,
    /// Erases of the most worn of them.
    pub(super) most_erases: u32,
    /// None of them was erased less often than this; by now, all blocks may have been erased more
    /// often.
    least_erases: u32,
}

impl Die {
    /// Returns an erased die; `choice` decides whether ages are kept.
    pub(super) fn new(geometry: &FtlGeometry, choice: VictimChoice) -> Self {
        let (native, blocks) = (geometry.blocks_per_die, geometry.all_blocks());
        let fresh = Block {
            erases: 0,
            valid: 0,
            state: BlockState::Free,
        };
        Self {
            blocks: vec![fresh; blocks as usize],
            written_at: match choice {
                VictimChoice::Greedy => Vec::new(),
                VictimChoice::CostBenefit => vec![0; blocks as usize],
            },
            native,
            free: (0..native).collect(),
            free_slc: (native..blocks).collect(),
            host: vec![None; 2 * geometry.handles as usize],
            gc: None,
            wear: None,
            victim: None,
            fold: None,
            draining: Vec::new(),
            stragglers: Vec::new(),
            valid: 0,
            erases: 0,
            most_erases: 0,
            least_erases: 0,
        }
    }

    /// Returns how many pages the host had written when it wrote the youngest data of `block`.
    pub(super) fn written_at(&self, block: u32) -> u64 {
        self.written_at.get(block as usize).copied().unwrap_or(0)
    }

    pub(super) fn free_blocks(&self) -> u32 {
        self.free.len() as u32
    }

    /// Takes the free block that was erased least often (for data that changes), or most often (for
    /// data that does not). The block's number decides between equals.
    pub(super) fn take_free(&mut self, most_worn: bool) -> Option<OpenBlock> {
        let block = take_by_wear(&mut self.free, &self.blocks, most_worn)?;
        Some(self.open(block))
    }

    /// Takes the free block of the SLC cache that was erased least often.
    pub(super) fn take_free_slc(&mut self) -> Option<OpenBlock> {
        let block = take_by_wear(&mut self.free_slc, &self.blocks, false)?;
        Some(self.open(block))
    }

    /// Takes a block for pages that are written in place.
    pub(super) fn use_in_place(&mut self, block: u32) {
        let state = &mut self.blocks[block as usize].state;
        if *state == BlockState::Free {
            *state = BlockState::Closed;
            self.free.retain(|free| *free != block);
        }
    }

    fn open(&mut self, block: u32) -> OpenBlock {
        self.blocks[block as usize].state = BlockState::Open;
        OpenBlock {
            block,
            next_slot: 0,
        }
    }

    /// Returns the block of the SLC cache to empty next: the one with the fewest valid slots, and
    /// of those the least worn.
    pub(super) fn best_fold(&self) -> Option<u32> {
        (self.native..self.blocks.len() as u32)
            .filter(|&block| self.is_candidate(block))
            .min_by_key(|&number| {
                let block = &self.blocks[number as usize];
                (block.valid, block.erases, number)
            })
    }

    /// Returns whether a block of the SLC cache waits for its stragglers.
    pub(super) fn has_draining_slc(&self) -> bool {
        self.draining
            .iter()
            .any(|victim| victim.block >= self.native)
    }

    /// Returns the block that is being emptied for that cause.
    pub(super) fn emptied_for(&mut self, cause: Cause) -> &mut Option<Victim> {
        match cause {
            Cause::Fold => &mut self.fold,
            Cause::Host | Cause::Gc | Cause::Wear => &mut self.victim,
        }
    }

    pub(super) fn close_host(&mut self, stream: Stream) {
        let open = self.host[stream.index()].take().expect("it is open");
        self.blocks[open.block as usize].state = BlockState::Closed;
    }

    pub(super) fn add_valid(&mut self, block: u32, written_at: u64) {
        self.blocks[block as usize].valid += 1;
        if let Some(youngest) = self.written_at.get_mut(block as usize) {
            *youngest = written_at.max(*youngest);
        }
        self.valid += 1;
    }

    pub(super) fn remove_valid(&mut self, block: u32) {
        self.blocks[block as usize].valid -= 1;
        self.valid -= 1;
    }

    /// Returns whether `block` may be chosen for emptying.
    fn is_candidate(&self, block: u32) -> bool {
        self.blocks[block as usize].state == BlockState::Closed
            && self.draining.iter().all(|victim| victim.block != block)
    }

    /// Returns the block to empty next, if one has slots to gain: of those that `choice` prefers
    /// equally the one with the fewest valid slots, and then the least worn, so that it is used
    /// again. `host_slots`: logical pages that the host has written.
    pub(super) fn best_victim(
        &self,
        slots_per_block: u32,
        choice: VictimChoice,
        host_slots: u64,
    ) -> Option<u32> {
        (0..self.native)
            .filter(|&block| self.is_candidate(block))
            .map(|number| {
                let block = &self.blocks[number as usize];
                let worth = match choice {
                    VictimChoice::CostBenefit => {
                        let age = host_slots.saturating_sub(self.written_at(number));
                        block.worth(slots_per_block, age)
                    }
                    VictimChoice::Greedy => 0,
                };
                (Reverse(worth), block.valid, block.erases, number)
            })
            .filter(|&(_, valid, ..)| valid < slots_per_block)
            .min()
            .map(|(.., number)| number)
    }

    /// Returns whether a block may lag by more than `spread` erases from the most worn one. Looks
    /// at the blocks only if `least_erases` does not decide it.
    pub(super) fn may_lag(&mut self, spread: u32) -> bool {
        if self.most_erases - self.least_erases > spread {
            let native = &self.blocks[..self.native as usize];
            self.least_erases = native.iter().map(|it| it.erases).min().unwrap_or(0);
        }
        self.most_erases - self.least_erases > spread
    }

    /// Returns, of the blocks that hold data, the one that was erased least often, and how often.
    pub(super) fn least_worn_in_use(&self) -> Option<(u32, u32)> {
        (0..self.native)
            .filter(|&block| self.blocks[block as usize].state != BlockState::Free)
            .map(|block| (self.blocks[block as usize].erases, block))
            .min()
    }

    pub(super) fn erase(&mut self, block: u32) {
        let state = &mut self.blocks[block as usize];
        debug_assert_eq!(state.valid, 0, "block {block} still holds data");
        debug_assert_eq!(state.state, BlockState::Closed);
        state.state = BlockState::Free;
        state.erases += 1;
        let erases = state.erases;
        if let Some(youngest) = self.written_at.get_mut(block as usize) {
            *youngest = 0;
        }
        if block >= self.native {
            self.free_slc.push(block);
            return;
        }
        self.most_erases = self.most_erases.max(erases);
        self.erases += 1;
        self.free.push(block);
    }
}

/// Takes the least or the most worn of the `free` blocks. The block's number decides between
/// equals.
fn take_by_wear(free: &mut Vec<u32>, blocks: &[Block], most_worn: bool) -> Option<u32> {
    let key = |&block: &u32| {
        let erases = blocks[block as usize].erases;
        (if most_worn { u32::MAX - erases } else { erases }, block)
    };
    let at = (0..free.len()).min_by_key(|&at| key(&free[at]))?;
    Some(free.swap_remove(at))
}
