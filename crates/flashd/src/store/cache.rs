//! The volatile write cache: the blocks that were written and that no flush has covered yet.
//!
//! A fixed number of slots of one logical block each, allocated once. Blocks leave in the order in
//! which they first came (a block that is written again keeps its place: unflushed writes have no
//! order among each other, NVMe Base 2.0 §5.27.1.4). A slot either holds data or says that the
//! block reads as zeroes.
//!
//! It knows no file and no zones; it never drops a block by itself.

use std::collections::HashMap;

/// Index of no slot.
const NONE: u32 = u32::MAX;

/// The content of a block in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content<'a> {
    /// These bytes.
    Data(&'a [u8]),
    /// Zeroes.
    Zeroes,
}

#[derive(Clone, Copy, Debug)]
struct CacheSlot {
    block: u64,
    zeroes: bool,
    older: u32,
    newer: u32,
}

/// A bounded set of blocks, oldest first.
#[derive(Debug)]
pub(super) struct Cache {
    block_bytes: usize,
    bytes: Vec<u8>,
    slots: Vec<CacheSlot>,
    free: Vec<u32>,
    by_block: HashMap<u64, u32>,
    oldest: u32,
    newest: u32,
}

impl Cache {
    /// A cache of `capacity` blocks of `block_bytes` each. All of its memory is allocated here, and
    /// none later.
    pub(super) fn new(capacity: u32, block_bytes: usize) -> Self {
        let slot = CacheSlot {
            block: 0,
            zeroes: false,
            older: NONE,
            newer: NONE,
        };
        Self {
            block_bytes,
            bytes: vec![0; capacity as usize * block_bytes],
            slots: vec![slot; capacity as usize],
            free: (0..capacity).rev().collect(),
            // Twice the slots: removals then never make it grow.
            by_block: HashMap::with_capacity(2 * capacity as usize),
            oldest: NONE,
            newest: NONE,
        }
    }

    /// Blocks that it can hold.
    pub(super) fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Blocks that it holds.
    pub(super) fn len(&self) -> usize {
        self.by_block.len()
    }

    /// Whether all that was written is durable.
    pub(super) fn is_empty(&self) -> bool {
        self.by_block.is_empty()
    }

    /// Bring all of its memory in now.
    pub(super) fn touch(&mut self) {
        super::base::touch(&mut self.bytes);
    }

    pub(super) fn get(&self, block: u64) -> Option<Content<'_>> {
        let slot = *self.by_block.get(&block)?;
        Some(if self.slots[slot as usize].zeroes {
            Content::Zeroes
        } else {
            Content::Data(&self.bytes[self.range(slot)])
        })
    }

    /// Whether `block` could be put without taking a slot from another one.
    pub(super) fn has_room_for(&self, block: u64) -> bool {
        !self.free.is_empty() || self.by_block.contains_key(&block)
    }

    /// Remember a block. Without room for it, do nothing and return `false`.
    #[must_use]
    pub(super) fn put(&mut self, block: u64, content: Content<'_>) -> bool {
        let slot = match self.by_block.get(&block) {
            Some(slot) => *slot,
            None => match self.free.pop() {
                Some(slot) => {
                    self.append(slot, block);
                    slot
                }
                None => return false,
            },
        };
        let range = self.range(slot);
        self.slots[slot as usize].zeroes = content == Content::Zeroes;
        if let Content::Data(data) = content {
            self.bytes[range].copy_from_slice(data);
        }
        true
    }

    /// Forget a block.
    pub(super) fn remove(&mut self, block: u64) {
        let Some(slot) = self.by_block.remove(&block) else {
            return;
        };
        let CacheSlot { older, newer, .. } = self.slots[slot as usize];
        match older {
            NONE => self.oldest = newer,
            _ => self.slots[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            _ => self.slots[newer as usize].older = older,
        }
        self.free.push(slot);
    }

    /// Forget the blocks of `blocks`, however large that range is.
    pub(super) fn remove_range(&mut self, blocks: std::ops::Range<u64>) {
        if blocks.end.saturating_sub(blocks.start) <= self.len() as u64 {
            blocks.for_each(|block| self.remove(block));
            return;
        }
        let cached: Vec<u64> = self
            .by_block
            .keys()
            .copied()
            .filter(|block| blocks.contains(block))
            .collect();
        cached.into_iter().for_each(|block| self.remove(block));
    }

    /// Forget everything, as a power cut does.
    pub(super) fn clear(&mut self) {
        self.by_block.clear();
        self.free.clear();
        self.free.extend((0..self.slots.len() as u32).rev());
        self.oldest = NONE;
        self.newest = NONE;
    }

    /// The `count` oldest blocks, in the order of their addresses.
    pub(super) fn oldest(&self, count: usize) -> Vec<u64> {
        let mut blocks = Vec::with_capacity(count.min(self.len()));
        let mut slot = self.oldest;
        while slot != NONE && blocks.len() < count {
            let CacheSlot { block, newer, .. } = self.slots[slot as usize];
            blocks.push(block);
            slot = newer;
        }
        blocks.sort_unstable();
        blocks
    }

    fn append(&mut self, slot: u32, block: u64) {
        self.by_block.insert(block, slot);
        let older = self.newest;
        self.slots[slot as usize] = CacheSlot {
            block,
            zeroes: false,
            older,
            newer: NONE,
        };
        match older {
            NONE => self.oldest = slot,
            _ => self.slots[older as usize].newer = slot,
        }
        self.newest = slot;
    }

    fn range(&self, slot: u32) -> std::ops::Range<usize> {
        let start = slot as usize * self.block_bytes;
        start..start + self.block_bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_block_written_again_keeps_its_place() {
        let mut cache = Cache::new(3, 1);
        for (block, byte) in [(7, 1), (5, 2), (7, 3)] {
            assert!(cache.put(block, Content::Data(&[byte])));
        }
        assert_eq!(cache.get(7), Some(Content::Data(&[3])));
        assert_eq!(cache.oldest(1), [7]);
        assert_eq!(cache.oldest(9), [5, 7]);
    }

    #[test]
    fn a_full_cache_takes_only_what_it_has() {
        let mut cache = Cache::new(1, 1);
        assert!(cache.put(1, Content::Zeroes));
        assert!(!cache.put(2, Content::Zeroes));
        assert!(cache.put(1, Content::Data(&[9])));
        assert_eq!(cache.get(1), Some(Content::Data(&[9])));
        cache.clear();
        assert!(cache.is_empty() && cache.has_room_for(2));
    }

    proptest! {
        /// Compare with a list that does the same slowly.
        #[test]
        fn it_is_a_queue_without_duplicates(
            steps in proptest::collection::vec((0u64..12, 0u8..4, any::<u8>()), 0..200),
        ) {
            let mut cache = Cache::new(6, 2);
            let mut model: Vec<(u64, Option<u8>)> = Vec::new();
            for (block, what, byte) in steps {
                match what {
                    0 => {
                        cache.remove(block);
                        model.retain(|(b, _)| *b != block);
                    }
                    1 => {
                        cache.remove_range(block..block + 3);
                        model.retain(|(b, _)| !(block..block + 3).contains(b));
                    }
                    _ => {
                        let value = (what == 2).then_some(byte);
                        let data = [byte, byte];
                        let content = if what == 2 {
                            Content::Data(&data)
                        } else {
                            Content::Zeroes
                        };
                        let has_room = model.len() < 6;
                        let known = model.iter_mut().find(|(b, _)| *b == block);
                        let room = known.is_some() || has_room;
                        match known {
                            Some(entry) => entry.1 = value,
                            None if room => model.push((block, value)),
                            None => {}
                        }
                        prop_assert_eq!(cache.put(block, content), room);
                    }
                }
                prop_assert_eq!(cache.len(), model.len());
                for count in [1, 3, 9] {
                    let mut oldest: Vec<u64> =
                        model.iter().take(count).map(|(block, _)| *block).collect();
                    oldest.sort_unstable();
                    prop_assert_eq!(cache.oldest(count), oldest);
                }
                for block in 0..16 {
                    let known = model.iter().find(|(b, _)| *b == block);
                    let found = cache.get(block).map(|content| match content {
                        Content::Data(data) => Some(data[0]),
                        Content::Zeroes => None,
                    });
                    prop_assert_eq!(found, known.map(|(_, value)| *value));
                }
            }
        }
    }
}
