//! The size of an FTL's flash, and the numbering of its slots.

/// Free blocks of each die that only the collector may use: one for garbage collection to move
/// into, one for wear levelling, one while a block waits for its last slots to be moved, and one
/// because a block and such slots can need a page more than a block has. The host gets a block only
/// if these remain.
pub const RESERVED_BLOCKS: u32 = 4;

/// Blocks of a die that hold only data in motion: two open for the host, one for the collector, one
/// for wear levelling, one being collected, one waiting for its last slots, the reserve, one that a
/// granule may take more than the die should hold, and one to gain.
const WORKING_BLOCKS: u32 = 8 + RESERVED_BLOCKS;

/// The number of those that are not there for data when the collector is in balance with the host:
/// the free blocks at which it works, and four that are half full.
const IN_MOTION: u64 = RESERVED_BLOCKS as u64 + 5;

/// The fewest blocks of a die's SLC cache for one handle: two open for the host, and one to empty
/// meanwhile. Each further handle has two more open.
pub const SLC_BLOCKS_LEAST: u32 = 3;
/// Reclaim unit handles at most.
pub const HANDLES_MAX: u32 = 128;

/// A page of flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PhysPage {
    /// The die, in the order of allocation: neighbours in number are on different channels.
    pub die: u32,
    /// The block on the die.
    pub block: u32,
    /// The page in the block.
    pub page: u32,
}

/// The flash of one conventional namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FtlGeometry {
    /// Dies, in the order of allocation.
    pub dies: u32,
    /// Blocks on each die, over-provisioning included.
    pub blocks_per_die: u32,
    /// Flash pages in a block.
    pub pages_per_block: u32,
    /// Logical pages in a flash page.
    pub slots_per_page: u32,
    /// Die allocation granularity in flash pages: this many go to a die before it is the next one's
    /// turn.
    pub granule_pages: u32,
    /// Logical pages that the host sees.
    pub logical_pages: u64,
    /// Further blocks on each die that hold one bit a cell and take the host's data first, as a
    /// cache; 0: there is none, else at least [`SLC_BLOCKS_LEAST`]. They have the numbers after
    /// `blocks_per_die`.
    pub slc_blocks: u32,
    /// Flash pages in each of them, in whole granules.
    pub slc_pages: u32,
    /// Reclaim unit handles: the host's data of each is written to blocks of its own. At least 1.
    pub handles: u32,
}

/// The rule by which the collector chooses the block to empty next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VictimChoice {
    /// The block with the fewest valid slots.
    Greedy,
    /// The block with the largest age × (1 − u) ÷ 2u, where u is the share of its slots that are
    /// valid, and its age the number of logical pages that the host has written since the youngest
    /// data in it (Rosenblum and Ousterhout, SOSP 1991; Kawaguchi et al., USENIX 1995). A block of
    /// cold data is collected though a hot one has less to move, as the hot one will soon have
    /// less still. When the host has to wait for a block, the choice is greedy.
    CostBenefit,
}

/// The options of an FTL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FtlOptions {
    /// The collector starts to work alongside the host when a die has no more free blocks than
    /// this; at least [`RESERVED_BLOCKS`] + 1.
    pub collect_below: u32,
    /// The collector works up to this many free blocks of a die in time in which nobody waits, see
    /// [`collect_idle`](super::Ftl::collect_idle); 0: not at all.
    pub collect_idle: u32,
    /// The rule for the next block to empty.
    pub victim: VictimChoice,
    /// Wear levelling moves unchanging data when a block of the die was erased more often than
    /// another by more than this. At least 1.
    pub wear_spread: u32,
    /// Hints to a die are not followed when its blocks were, on average, erased more often than
    /// those of the least worn die by more than this. At least 1.
    pub die_wear_spread: u32,
    /// Whole granules of a command (of the address space, or from its beginning if it holds none of
    /// these) and the rest of it go to different blocks, so that small writes do not push whole
    /// granules out of step with the pages: a granule that lies on two pages costs two to read. The
    /// published emulator does not do that.
    pub separate_parts: bool,
    /// Every logical page has one place for ever, by its address: media that need no erase. A flash page
    /// must have the size of a logical page, and there is no SLC cache.
    pub in_place: bool,
}

impl Default for FtlOptions {
    fn default() -> Self {
        Self {
            collect_below: RESERVED_BLOCKS + 2,
            collect_idle: 0,
            victim: VictimChoice::Greedy,
            wear_spread: 20,
            die_wear_spread: 10,
            separate_parts: true,
            in_place: false,
        }
    }
}

/// A geometry or option that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FtlConfigError {
    /// A count is zero that must not be.
    #[error("FTL geometry: {field} is 0; it must be at least 1")]
    Zero {
        /// Its name.
        field: &'static str,
    },
    /// A block does not consist of whole granules.
    #[error(
        "FTL geometry: a block of {pages_per_block} pages is no multiple of the die allocation \
         granularity of {granule_pages} pages; choose one that is"
    )]
    Granule {
        /// Pages in a block.
        pages_per_block: u32,
        /// Pages in a granule.
        granule_pages: u32,
    },
    /// Pages that cannot be written one by one, or an SLC cache.
    #[error(
        "FTL geometry: flash pages of {slots_per_page} logical pages cannot be written in place; one that is \
         needs pages of one, and no SLC cache"
    )]
    InPlace {
        /// Logical pages in a flash page.
        slots_per_page: u32,
    },
    /// The logical pages do not fit with the blocks that the collector needs.
    #[error(
        "FTL geometry: {blocks_per_die} blocks on each of {dies} dies cannot hold {logical_pages} \
         logical pages and collect garbage; {needed} blocks on each die would do"
    )]
    TooSmall {
        /// Dies.
        dies: u32,
        /// Blocks on each.
        blocks_per_die: u32,
        /// Logical pages wanted.
        logical_pages: u64,
        /// Blocks on each die that would do.
        needed: u64,
    },
    /// More slots than 32 bits can number.
    #[error(
        "FTL geometry: {slots} slots are too many (at most 4294967294); choose a larger logical page"
    )]
    TooLarge {
        /// Slots wanted.
        slots: u64,
    },
    /// An SLC cache that cannot work.
    #[error(
        "FTL geometry: an SLC cache of {blocks} blocks of {pages} pages on each die; it must have at \
         least {SLC_BLOCKS_LEAST} blocks and two more for each further handle, each of whole granules of {granule_pages} pages, and not \
         more pages than other blocks"
    )]
    Slc {
        /// Its blocks on each die.
        blocks: u32,
        /// Pages in each.
        pages: u32,
        /// Pages in a granule.
        granule_pages: u32,
    },
    /// Too many handles.
    #[error("FTL geometry: {handles} reclaim unit handles are more than {HANDLES_MAX}")]
    Handles {
        /// Their number.
        handles: u32,
    },
    /// An option that cannot work.
    #[error("FTL option {option} is {value}; it must be at least {least}")]
    Option {
        /// Its name.
        option: &'static str,
        /// Its value.
        value: u32,
        /// The least that works.
        least: u32,
    },
}

impl FtlGeometry {
    /// Returns the blocks that each die needs for `logical_pages` with `over_provisioning_percent`
    /// more flash than that, the blocks that are always in motion included. Those are few in a real
    /// device, but a large part of a small namespace; without them, its collector would have to
    /// work far harder than that of the device that it stands for.
    #[must_use]
    pub const fn blocks_needed(
        logical_pages: u64,
        dies: u32,
        slots_per_block: u64,
        over_provisioning_percent: f64,
    ) -> u64 {
        let per_die = logical_pages.div_ceil(dies as u64);
        let with_spare = (per_die as f64 * (1.0 + over_provisioning_percent / 100.0)) as u64;
        let wanted = with_spare.div_ceil(slots_per_block) + IN_MOTION;
        let least = per_die.div_ceil(slots_per_block) + WORKING_BLOCKS as u64 + 1;
        if wanted > least { wanted } else { least }
    }

    /// Returns the blocks of a die that further handles have open, beyond those that
    /// [`blocks_needed`](Self::blocks_needed) knows: two each.
    #[must_use]
    pub const fn blocks_of_handles(&self) -> u32 {
        2 * (self.handles - 1)
    }

    /// Returns the logical pages of a reclaim unit: a block of each die.
    #[must_use]
    pub const fn slots_per_reclaim_unit(&self) -> u64 {
        self.dies as u64 * self.slots_per_block() as u64
    }

    /// Returns the number of all slots outside the SLC cache.
    #[must_use]
    pub const fn slots(&self) -> u64 {
        self.dies as u64 * self.blocks_per_die as u64 * self.slots_per_block() as u64
    }

    /// Returns the blocks on each die, those of the SLC cache included.
    #[must_use]
    pub const fn all_blocks(&self) -> u32 {
        self.blocks_per_die + self.slc_blocks
    }

    /// Returns whether a block belongs to the SLC cache.
    #[must_use]
    pub const fn is_slc(&self, block: u32) -> bool {
        block >= self.blocks_per_die
    }

    /// Returns the flash pages in `block`.
    #[must_use]
    pub const fn pages_in(&self, block: u32) -> u32 {
        if self.is_slc(block) {
            self.slc_pages
        } else {
            self.pages_per_block
        }
    }

    /// Returns the number of all slots. Those that a block of the SLC cache does not have are
    /// counted, and stay empty.
    pub(super) const fn slot_numbers(&self) -> u64 {
        self.dies as u64 * self.all_blocks() as u64 * self.slots_per_block() as u64
    }

    /// Returns the logical pages in a granule.
    #[must_use]
    pub const fn slots_per_granule(&self) -> u32 {
        self.granule_pages * self.slots_per_page
    }

    /// Returns the logical pages in a block.
    #[must_use]
    pub const fn slots_per_block(&self) -> u32 {
        self.pages_per_block * self.slots_per_page
    }

    pub(super) fn check(&self, options: &FtlOptions) -> Result<(), FtlConfigError> {
        for (field, value) in [
            ("dies", self.dies),
            ("blocks_per_die", self.blocks_per_die),
            ("pages_per_block", self.pages_per_block),
            ("slots_per_page", self.slots_per_page),
            ("granule_pages", self.granule_pages),
            ("logical_pages", u32::from(self.logical_pages > 0)),
            ("handles", self.handles),
        ] {
            if value == 0 {
                return Err(FtlConfigError::Zero { field });
            }
        }
        for (option, value, least) in [
            ("collect_below", options.collect_below, RESERVED_BLOCKS + 1),
            ("wear_spread", options.wear_spread, 1),
            ("die_wear_spread", options.die_wear_spread, 1),
        ] {
            if value < least {
                return Err(FtlConfigError::Option {
                    option,
                    value,
                    least,
                });
            }
        }
        let Self {
            pages_per_block,
            granule_pages,
            slots_per_page,
            ..
        } = *self;
        if options.in_place && (slots_per_page > 1 || self.slc_blocks > 0) {
            return Err(FtlConfigError::InPlace { slots_per_page });
        }
        if !pages_per_block.is_multiple_of(granule_pages) {
            return Err(FtlConfigError::Granule {
                pages_per_block,
                granule_pages,
            });
        }
        let slc_pages = self.slc_pages;
        let has_slc_pages = (granule_pages..=pages_per_block).contains(&slc_pages);
        if self.slc_blocks > 0
            && (self.slc_blocks < SLC_BLOCKS_LEAST + self.blocks_of_handles()
                || !has_slc_pages
                || !slc_pages.is_multiple_of(granule_pages))
        {
            return Err(FtlConfigError::Slc {
                blocks: self.slc_blocks,
                pages: slc_pages,
                granule_pages,
            });
        }
        if self.handles > HANDLES_MAX {
            return Err(FtlConfigError::Handles {
                handles: self.handles,
            });
        }
        let slots_per_block = u64::from(pages_per_block) * u64::from(self.slots_per_page);
        let blocks = u64::from(self.blocks_per_die) + u64::from(self.slc_blocks);
        let slots = slots_per_block
            .saturating_mul(u64::from(self.dies))
            .saturating_mul(blocks);
        if slots >= u64::from(u32::MAX) {
            return Err(FtlConfigError::TooLarge { slots });
        }
        let needed = Self::blocks_needed(self.logical_pages, self.dies, slots_per_block, 0.0)
            + u64::from(self.blocks_of_handles());
        if u64::from(self.blocks_per_die) < needed {
            return Err(FtlConfigError::TooSmall {
                dies: self.dies,
                blocks_per_die: self.blocks_per_die,
                logical_pages: self.logical_pages,
                needed,
            });
        }
        Ok(())
    }

    /// Returns how many valid slots a die may hold: an equal share of all logical pages, and half
    /// of the spare slots outside the working blocks, so that hints may load the dies unequally
    /// without leaving the collector of one of them nothing to gain.
    pub(super) fn slots_per_die_at_most(&self) -> u32 {
        let share = self.logical_pages.div_ceil(u64::from(self.dies)) as u32;
        let in_motion = WORKING_BLOCKS + self.blocks_of_handles();
        let workable = (self.blocks_per_die - in_motion) * self.slots_per_block();
        share + (workable - share) / 2
    }

    pub(super) const fn slot(&self, die: u32, block: u32, slot_in_block: u32) -> u32 {
        (die * self.all_blocks() + block) * self.slots_per_block() + slot_in_block
    }

    pub(super) const fn page_of(&self, slot: u32) -> PhysPage {
        let (die, block) = self.block_of(slot);
        let page = slot % self.slots_per_block() / self.slots_per_page;
        PhysPage { die, block, page }
    }

    pub(super) const fn block_of(&self, slot: u32) -> (u32, u32) {
        let block = slot / self.slots_per_block();
        (block / self.all_blocks(), block % self.all_blocks())
    }
}
