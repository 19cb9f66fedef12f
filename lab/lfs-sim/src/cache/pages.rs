//! Clean pages: what a read does not have to fetch.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
};

use crate::files::FileId;

/// Blocks that are kept and given up together.
const TOGETHER: u32 = 64;

/// A part of a file, by the number of its first block ÷ [`TOGETHER`].
type Key = (FileId, u32);

#[derive(Clone, Copy, Debug)]
struct Part {
    /// One bit for each block that is there.
    there: u64,
    /// When it was used last: its key in the order.
    used: u64,
}

/// Pages in memory, the least recently used given up first, in parts of 64 blocks. (Linux keeps two lists and single
/// folios; a sequential reader sees no difference.)
#[derive(Clone, Debug)]
pub struct PageCache {
    most: u64,
    pages: u64,
    parts: HashMap<Key, Part>,
    order: BTreeMap<u64, Key>,
    uses: u64,
}

impl PageCache {
    /// A cache of `most` blocks.
    #[must_use]
    pub fn new(most: u64) -> Self {
        Self {
            most,
            pages: 0,
            parts: HashMap::new(),
            order: BTreeMap::new(),
            uses: 0,
        }
    }

    /// Blocks that are there.
    #[must_use]
    pub const fn pages(&self) -> u64 {
        self.pages
    }

    /// Returns the blocks of `range` that are not there, in order, and counts the others as used.
    pub fn missing(&mut self, file: FileId, range: Range<u32>) -> Vec<Range<u32>> {
        let mut missing: Vec<Range<u32>> = Vec::new();
        for (key, mask, start) in parts(file, range) {
            let there = self.touch(key);
            for bit in (0..TOGETHER).filter(|bit| mask & !there & (1 << bit) != 0) {
                let index = start + bit;
                match missing.last_mut() {
                    Some(last) if last.end == index => last.end += 1,
                    _ => missing.push(index..index + 1),
                }
            }
        }
        missing
    }

    /// Puts blocks there.
    pub fn insert(&mut self, file: FileId, range: Range<u32>) {
        for (key, mask, _) in parts(file, range) {
            self.touch(key);
            let part = self.parts.entry(key).or_insert_with(|| {
                self.uses += 1;
                self.order.insert(self.uses, key);
                Part {
                    there: 0,
                    used: self.uses,
                }
            });
            self.pages += u64::from((mask & !part.there).count_ones());
            part.there |= mask;
        }
        while self.pages > self.most
            && let Some((_, key)) = self.order.pop_first()
        {
            self.forget(key);
        }
    }

    /// Drops a file of so many blocks.
    pub fn remove(&mut self, file: FileId, blocks: u32) {
        for part in 0..blocks.div_ceil(TOGETHER) {
            if let Some(used) = self.forget((file, part)) {
                self.order.remove(&used);
            }
        }
    }

    fn forget(&mut self, key: Key) -> Option<u64> {
        let part = self.parts.remove(&key)?;
        self.pages -= u64::from(part.there.count_ones());
        Some(part.used)
    }

    /// Returns the blocks of a part that are there, and makes it the most recent one.
    fn touch(&mut self, key: Key) -> u64 {
        let Some(part) = self.parts.get_mut(&key) else {
            return 0;
        };
        self.order.remove(&part.used);
        self.uses += 1;
        part.used = self.uses;
        self.order.insert(part.used, key);
        part.there
    }
}

/// The parts that a range touches: key, bits, and first block.
fn parts(file: FileId, range: Range<u32>) -> impl Iterator<Item = (Key, u64, u32)> {
    let end = match range.is_empty() {
        true => range.start / TOGETHER,
        false => range.end.div_ceil(TOGETHER),
    };
    (range.start / TOGETHER..end).map(move |part| {
        let start = part * TOGETHER;
        let (from, to) = (
            range.start.max(start) - start,
            range.end.min(start + TOGETHER) - start,
        );
        let mask = (u64::MAX >> (TOGETHER - (to - from))) << from;
        ((file, part), mask, start)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: FileId = FileId(1);
    const B: FileId = FileId(2);

    fn one(range: Range<u32>) -> Vec<Range<u32>> {
        std::iter::once(range).collect()
    }

    #[test]
    fn what_was_read_is_there_until_there_is_no_room() {
        let mut cache = PageCache::new(192);
        assert_eq!(cache.missing(A, 10..130), one(10..130));
        cache.insert(A, 10..130);
        assert_eq!(cache.pages(), 120);
        assert_eq!(cache.missing(A, 0..140), [0..10, 130..140]);
        assert_eq!(cache.missing(A, 20..100), []);
        cache.insert(B, 0..64);
        assert_eq!(cache.pages(), 184);
        // A's third part (two blocks) was used before its others.
        cache.insert(B, 64..80);
        assert_eq!(cache.pages(), 200 - 2 - 54);
        assert_eq!(cache.missing(A, 10..130), [10..64, 128..130]);
        cache.remove(A, 130);
        assert_eq!(cache.pages(), 80);
        cache.remove(B, 80);
        assert_eq!((cache.pages(), cache.order.len()), (0, 0));
    }
}
