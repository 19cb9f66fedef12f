//! Dirty pages: the blocks of files that were written and are not placed yet.

use std::{
    collections::{HashMap, VecDeque},
    ops::Range,
};

use crate::files::FileId;

/// All dirty pages, and the order in which the flusher takes their files.
#[derive(Clone, Debug, Default)]
pub struct DirtyPages {
    /// Of each file: in order, apart from each other.
    ranges: HashMap<FileId, Vec<Range<u32>>>,
    /// Files in the order in which they became dirty; those that have been written otherwise are passed over.
    queue: VecDeque<FileId>,
    blocks: u64,
}

impl DirtyPages {
    /// Blocks that are dirty.
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Whether blocks of this file are.
    #[must_use]
    pub fn has(&self, file: FileId) -> bool {
        self.ranges.contains_key(&file)
    }

    /// Blocks of a file become dirty, if they are not.
    pub fn add(&mut self, file: FileId, range: Range<u32>) {
        let ranges = self.ranges.entry(file).or_default();
        if ranges.is_empty() {
            self.queue.push_back(file);
        }
        let from = ranges.partition_point(|it| it.end < range.start);
        let to = ranges.partition_point(|it| it.start <= range.end);
        let joined = &ranges[from..to];
        let before: u32 = joined.iter().map(|it| it.end - it.start).sum();
        let whole = joined.iter().fold(range, |all, it| {
            all.start.min(it.start)..all.end.max(it.end)
        });
        self.blocks += u64::from(whole.end - whole.start - before);
        ranges.splice(from..to, [whole]);
    }

    /// Takes all of a file, for an fsync.
    pub fn take(&mut self, file: FileId) -> Vec<Range<u32>> {
        let ranges = self.ranges.remove(&file).unwrap_or_default();
        let blocks = ranges.iter().map(|it| u64::from(it.end - it.start));
        self.blocks -= blocks.sum::<u64>();
        ranges
    }

    /// Takes up to `most` blocks of the file that is next in the queue; the rest of it goes to the queue's end.
    pub fn take_next(&mut self, most: u32) -> Option<(FileId, Vec<Range<u32>>)> {
        loop {
            let file = self.queue.pop_front()?;
            let (mut left, mut taken) = (most, Vec::new());
            let ranges = self.take(file);
            let mut rest = ranges.into_iter();
            while let Some(range) = rest.next() {
                let middle = range.end.min(range.start.saturating_add(left));
                left -= middle - range.start;
                taken.push(range.start..middle);
                if left == 0 {
                    self.put_back(file, middle..range.end, rest);
                    break;
                }
            }
            if !taken.is_empty() {
                return Some((file, taken));
            }
        }
    }

    fn put_back(
        &mut self,
        file: FileId,
        first: Range<u32>,
        rest: impl Iterator<Item = Range<u32>>,
    ) {
        for range in std::iter::once(first).chain(rest) {
            if !range.is_empty() {
                self.add(file, range);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const A: FileId = FileId(1);
    const B: FileId = FileId(2);

    fn one(range: Range<u32>) -> Vec<Range<u32>> {
        std::iter::once(range).collect()
    }

    #[test]
    fn the_flusher_takes_file_after_file_in_chunks() {
        let mut dirty = DirtyPages::default();
        dirty.add(A, 0..10);
        dirty.add(B, 5..6);
        dirty.add(A, 20..22);
        assert_eq!(dirty.blocks(), 13);
        assert_eq!(dirty.take_next(8), Some((A, one(0..8))));
        assert_eq!(dirty.take_next(8), Some((B, one(5..6))));
        assert_eq!(dirty.take_next(3), Some((A, vec![8..10, 20..21])));
        dirty.add(B, 0..1);
        assert_eq!(dirty.take(A), one(21..22));
        assert_eq!(dirty.take_next(3), Some((B, one(0..1))));
        assert_eq!((dirty.take_next(3), dirty.blocks()), (None, 0));
    }

    proptest! {
        #[test]
        fn every_dirty_block_is_taken_once(
            adds in prop::collection::vec((1_u32..4, 0_u32..60, 1_u32..20), 0..30), most in 1_u32..30,
        ) {
            let mut dirty = DirtyPages::default();
            let mut expected = BTreeSet::new();
            for (file, start, len) in adds {
                dirty.add(FileId(file), start..start + len);
                expected.extend((start..start + len).map(|index| (FileId(file), index)));
                prop_assert_eq!(dirty.blocks(), expected.len() as u64);
            }
            while let Some((file, ranges)) = dirty.take_next(most) {
                let blocks: Vec<u32> = ranges.into_iter().flatten().collect();
                prop_assert!((1..=most as usize).contains(&blocks.len()));
                for index in blocks {
                    prop_assert!(expected.remove(&(file, index)));
                }
            }
            prop_assert!(expected.is_empty() && dirty.blocks() == 0);
        }
    }
}
