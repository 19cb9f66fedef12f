//! One bit for each block.

use crate::block::{Block, Run};

#[derive(Clone, Debug)]
pub(super) struct Bitmap {
    /// A set bit is a taken block; bits past the end are set.
    words: Vec<u64>,
    len: u32,
}

impl Bitmap {
    pub(super) fn new(len: u32) -> Self {
        let mut words = vec![0; len.div_ceil(64) as usize];
        if let (Some(last), 1..) = (words.last_mut(), len % 64) {
            *last = u64::MAX << (len % 64);
        }
        Self { words, len }
    }

    pub(super) const fn len(&self) -> u32 {
        self.len
    }

    pub(super) fn is_taken(&self, block: Block) -> bool {
        self.words[block.0 as usize / 64] >> (block.0 % 64) & 1 == 1
    }

    pub(super) fn set(&mut self, run: Run, taken: bool) {
        let (mut at, end) = (run.start.0, run.end().0);
        while at < end {
            let count = (64 - at % 64).min(end - at);
            let mask = (u64::MAX >> (64 - count)) << (at % 64);
            let word = &mut self.words[at as usize / 64];
            debug_assert_eq!(*word & mask, if taken { 0 } else { mask }, "{run:?}");
            *word = if taken { *word | mask } else { *word & !mask };
            at += count;
        }
    }

    /// The first free block in `from..to`.
    pub(super) fn next_free(&self, from: u32, to: u32) -> Option<u32> {
        self.find(from, to, |word| !word)
    }

    /// The end of the free blocks that begin at `from`, `to` at most.
    pub(super) fn end_of_free(&self, from: u32, to: u32) -> u32 {
        self.find(from, to, |word| word).unwrap_or(to)
    }

    fn find(&self, from: u32, to: u32, wanted: impl Fn(u64) -> u64) -> Option<u32> {
        let mut at = from;
        while at < to {
            let bits = wanted(self.words[at as usize / 64]) >> (at % 64);
            if bits != 0 {
                let found = at + bits.trailing_zeros();
                return (found < to).then_some(found);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a list of flags.
        #[test]
        fn it_finds_what_a_list_finds(
            runs in prop::collection::vec((0_u32..300, 1_u32..90), 0..12), from in 0_u32..300,
        ) {
            let mut bitmap = Bitmap::new(300);
            let mut flags = vec![false; 300];
            for (start, len) in runs {
                let run = Run { start: Block(start), len: len.min(300 - start) };
                if run.blocks().all(|block| !flags[block.0 as usize]) {
                    bitmap.set(run, true);
                    run.blocks().for_each(|block| flags[block.0 as usize] = true);
                }
            }
            let place = |taken| (from..300).find(|at| flags[*at as usize] == taken);
            prop_assert_eq!(bitmap.next_free(from, 300), place(false));
            prop_assert_eq!(bitmap.end_of_free(from, 300), place(true).unwrap_or(300));
            for at in 0..300 {
                prop_assert_eq!(bitmap.is_taken(Block(at)), flags[at as usize]);
            }
        }
    }
}
