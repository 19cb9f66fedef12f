//! The in-place allocator: block groups with bitmaps and a goal, in the manner of ext4's.
//!
//! A request says where it would like to lie (its *goal*, the block after the file's last one) and how much it
//! needs. It gets, in this order:
//!
//! 1. the free blocks at the goal, as many as there are (`ext4_mb_find_by_goal`);
//! 2. the first free run that is long enough, in the goal's group and the groups after it (criteria 0 and 1);
//! 3. the longest free run of the volume (criteria 2 and 3).
//!
//! So a request is never refused while a block is free, and it may get less than it asked for.
//!
//! A file keeps blocks that were allocated beyond its end in a [`Window`], if preallocation is on
//! (`ext4_mb_normalize_request`). Left out: the buddy structure (runs are found by looking at the bitmap, which
//! finds the same or longer ones), locality groups for files below 64 KiB, metadata and the journal.

mod bitmap;
#[cfg(test)]
mod tests;

use self::bitmap::Bitmap;
use crate::block::{BLOCK, Block, Full, Run};

/// The blocks of a volume with block groups.
#[derive(Clone, Debug)]
pub struct GroupSpace {
    bitmap: Bitmap,
    group_blocks: u32,
    /// Free blocks of each group.
    free: Vec<u32>,
    /// No free run of the group is longer than this.
    longest: Vec<u32>,
}

impl GroupSpace {
    /// A volume of `blocks` free blocks in groups of `group_blocks`.
    #[must_use]
    pub fn new(blocks: u32, group_blocks: u32) -> Self {
        let groups = blocks.div_ceil(group_blocks);
        let free: Vec<u32> = (0..groups)
            .map(|group| group_blocks.min(blocks - group * group_blocks))
            .collect();
        Self {
            bitmap: Bitmap::new(blocks),
            group_blocks,
            longest: free.clone(),
            free,
        }
    }

    /// Blocks that nobody has.
    #[must_use]
    pub fn free_blocks(&self) -> u32 {
        self.free.iter().sum()
    }

    /// Whether somebody has this block.
    #[must_use]
    pub fn is_taken(&self, block: Block) -> bool {
        self.bitmap.is_taken(block)
    }

    /// The runs of blocks that nobody has, in order.
    pub fn free_runs(&self) -> impl Iterator<Item = Run> + '_ {
        let (mut at, end) = (0, self.bitmap.len());
        std::iter::from_fn(move || {
            let free = self.bitmap.next_free(at, end)?;
            at = self.bitmap.end_of_free(free, end);
            Some(Run {
                start: Block(free),
                len: at - free,
            })
        })
    }

    /// The first block of the group in which a new file begins to look.
    #[must_use]
    pub fn start_of_group(&self, group: u32) -> Block {
        Block(group % self.free.len() as u32 * self.group_blocks)
    }

    /// Takes up to `want` consecutive blocks, at least one.
    ///
    /// # Errors
    ///
    /// No block is free.
    pub fn allocate(&mut self, goal: Block, want: u32) -> Result<Run, Full> {
        let run = self
            .at_goal(goal, want)
            .or_else(|| self.long_enough(goal, want))
            .or_else(|| self.longest())
            .ok_or(Full { free: 0 })?;
        let run = Run {
            len: run.len.min(want),
            ..run
        };
        self.set(run, true);
        Ok(run)
    }

    /// Gives blocks back.
    pub fn release(&mut self, run: Run) {
        self.set(run, false);
    }

    fn at_goal(&self, goal: Block, want: u32) -> Option<Run> {
        if goal.0 >= self.bitmap.len() || self.bitmap.is_taken(goal) {
            return None;
        }
        let to = (goal.0 + want).min(self.bitmap.len());
        let end = self.bitmap.end_of_free(goal.0, to);
        Some(Run {
            start: goal,
            len: end - goal.0,
        })
    }

    fn long_enough(&mut self, goal: Block, want: u32) -> Option<Run> {
        let groups = self.free.len() as u32;
        let first = (goal.0 / self.group_blocks).min(groups - 1);
        for group in (first..groups).chain(0..first) {
            if self.longest[group as usize] < want {
                continue;
            }
            let best = self.scan(group, want);
            match best {
                Some(run) if run.len >= want => return Some(run),
                _ => self.longest[group as usize] = best.map_or(0, |run| run.len),
            }
        }
        None
    }

    fn longest(&mut self) -> Option<Run> {
        let mut best: Option<Run> = None;
        for group in 0..self.free.len() as u32 {
            let bound = self.longest[group as usize];
            if bound > best.map_or(0, |run| run.len) {
                let here = self.scan(group, u32::MAX);
                self.longest[group as usize] = here.map_or(0, |run| run.len);
                best = best
                    .into_iter()
                    .chain(here)
                    .max_by_key(|run| (run.len, u32::MAX - run.start.0));
            }
        }
        best
    }

    /// The first free run of a group that has `enough` blocks, or else its longest one.
    fn scan(&self, group: u32, enough: u32) -> Option<Run> {
        let start = group * self.group_blocks;
        let end = (start + self.group_blocks).min(self.bitmap.len());
        let (mut at, mut best): (u32, Option<Run>) = (start, None);
        while let Some(free) = self.bitmap.next_free(at, end) {
            at = self.bitmap.end_of_free(free, end);
            let run = Run {
                start: Block(free),
                len: at - free,
            };
            if best.is_none_or(|best| run.len > best.len) {
                best = Some(run);
            }
            if run.len >= enough {
                break;
            }
        }
        best
    }

    fn set(&mut self, run: Run, taken: bool) {
        self.bitmap.set(run, taken);
        let (mut at, end) = (run.start.0, run.end().0);
        while at < end {
            let group = (at / self.group_blocks) as usize;
            let until = end.min((group as u32 + 1) * self.group_blocks);
            if taken {
                self.free[group] -= until - at;
                self.longest[group] = self.longest[group].min(self.free[group]);
            } else {
                self.free[group] += until - at;
                // The run may have joined its neighbours: looked up when it matters.
                self.longest[group] = self.free[group];
            }
            at = until;
        }
    }
}

/// Blocks that were allocated for a file and not written yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The block of the file that the first of them is for.
    pub index: u32,
    /// The blocks.
    pub run: Run,
}

impl Window {
    /// The blocks to ask for when a file of `end` blocks needs `need` of them at its end
    /// (`ext4_mb_normalize_request`, fs/ext4/mballoc.c, v6.12): the file's size, rounded up to one of the sizes
    /// of that function; the rest of a window of 2, 4 or 8 MiB for longer files.
    #[must_use]
    pub fn blocks(end: u32, need: u32) -> u32 {
        const MIB: u64 = 1 << 20;
        let bytes = u64::from(end) * BLOCK.0;
        let begin = u64::from(end - need) * BLOCK.0;
        let until = match bytes {
            0..=MIB => bytes.next_power_of_two().max(16 << 10),
            _ => {
                let step = match bytes.div_ceil(MIB) {
                    0..=4 => 2 * MIB,
                    5..=8 => 4 * MIB,
                    _ => 8 * MIB,
                };
                bytes.next_multiple_of(step)
            }
        };
        let from_begin = (until - begin) / BLOCK.0;
        (from_begin as u32).max(need)
    }
}
