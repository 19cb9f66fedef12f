//! The files of a volume: which block holds which part of them.
//!
//! The map from a file to its blocks stands here and nowhere else. An allocator knows the other direction, which
//! blocks are taken; [`crate::Volume`] keeps the two in step.

use std::ops::Range;

use indef_core::layout::{Extent, ExtentFlags, Layout};
use units::{Bytes, FileOffset, PhysOffset};

use crate::block::{BLOCK, Block};

/// A file, by its number. No number is given twice, so what is left to do for a deleted file meets no other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// An unmapped block of a file or a node that is not on the device.
const NOWHERE: u32 = u32::MAX;

#[derive(Clone, Debug, Default)]
struct File {
    blocks: Vec<u32>,
    nodes: Vec<u32>,
    /// Nodes whose map has changed since they were written.
    dirty_nodes: Vec<u32>,
}

/// All files.
#[derive(Clone, Debug, Default)]
pub struct Files {
    files: Vec<Option<File>>,
    /// Files that had no dirty node before: each is here at least once until it is taken.
    dirty: Vec<FileId>,
}

impl Files {
    /// Makes an empty file.
    pub fn create(&mut self) -> FileId {
        self.files.push(Some(File::default()));
        FileId(self.files.len() as u32 - 1)
    }

    /// Removes a file; returns the blocks of its data and of its nodes.
    pub fn remove(&mut self, id: FileId) -> impl Iterator<Item = Block> + use<> {
        let file = self.files[id.0 as usize].take().unwrap_or_default();
        let places = file.blocks.into_iter().chain(file.nodes);
        places.filter(|place| *place != NOWHERE).map(Block)
    }

    /// All files, in order of their numbers.
    pub fn ids(&self) -> impl Iterator<Item = FileId> + '_ {
        let there =
            |(id, file): (usize, &Option<File>)| file.is_some().then_some(FileId(id as u32));
        self.files.iter().enumerate().filter_map(there)
    }

    /// Whether there is such a file.
    #[must_use]
    pub fn has(&self, id: FileId) -> bool {
        self.file(id).is_some()
    }

    /// Length of a file in blocks; 0 if there is none.
    #[must_use]
    pub fn blocks(&self, id: FileId) -> u32 {
        self.file(id).map_or(0, |file| file.blocks.len() as u32)
    }

    /// The place of a block of a file.
    #[must_use]
    pub fn block(&self, id: FileId, index: u32) -> Option<Block> {
        place(&self.file(id)?.blocks, index)
    }

    /// Gives a block of a file a place; returns the one that it had.
    pub fn set_block(&mut self, id: FileId, index: u32, block: Block) -> Option<Block> {
        replace(&mut self.file_mut(id).blocks, index, block)
    }

    /// The place of a node of a file.
    #[must_use]
    pub fn node(&self, id: FileId, node: u32) -> Option<Block> {
        place(&self.file(id)?.nodes, node)
    }

    /// Gives a node of a file a place; returns the one that it had.
    pub fn set_node(&mut self, id: FileId, node: u32, block: Block) -> Option<Block> {
        replace(&mut self.file_mut(id).nodes, node, block)
    }

    /// Notes that a node has to be written.
    pub fn dirty_node(&mut self, id: FileId, node: u32) {
        let file = self.file_mut(id);
        if file.dirty_nodes.contains(&node) {
            return;
        }
        file.dirty_nodes.push(node);
        if file.dirty_nodes.len() == 1 {
            self.dirty.push(id);
        }
    }

    /// Takes the nodes of a file that have to be written, in order.
    pub fn take_dirty_nodes(&mut self, id: FileId) -> Vec<u32> {
        let file = self.files.get_mut(id.0 as usize).and_then(Option::as_mut);
        let mut nodes = file.map(|file| std::mem::take(&mut file.dirty_nodes));
        if let Some(nodes) = &mut nodes {
            nodes.sort_unstable();
        }
        nodes.unwrap_or_default()
    }

    /// Takes the files that may have nodes to be written, each once.
    pub fn take_dirty(&mut self) -> Vec<FileId> {
        let mut dirty = std::mem::take(&mut self.dirty);
        dirty.sort_unstable();
        dirty.dedup();
        dirty
    }

    /// The layout of a file's data, as the planner takes it.
    #[must_use]
    pub fn layout(&self, id: FileId) -> Layout {
        self.layout_of(id, 0..u32::MAX)
    }

    /// The layout of these blocks of it; their offsets are those in the file.
    #[must_use]
    pub fn layout_of(&self, id: FileId, range: Range<u32>) -> Layout {
        let blocks = self.file(id).map_or(&[][..], |file| &file.blocks);
        let extent = |(index, place): (usize, &u32)| Extent {
            file: FileOffset(index as u64 * BLOCK.0),
            phys: PhysOffset(Block(*place).offset()),
            len: BLOCK,
            flags: ExtentFlags::empty(),
        };
        let mapped = blocks
            .iter()
            .enumerate()
            .take(range.end as usize)
            .skip(range.start as usize)
            .filter(|(_, place)| **place != NOWHERE);
        let mut extents: Vec<Extent> = Vec::new();
        for next in mapped.map(extent) {
            match extents.last_mut() {
                Some(last) if last.touches(&next) => last.len += next.len,
                _ => extents.push(next),
            }
        }
        Layout::new(extents)
    }

    /// Bytes of a file, in whole blocks.
    #[must_use]
    pub fn bytes(&self, id: FileId) -> Bytes {
        BLOCK * u64::from(self.blocks(id))
    }

    fn file(&self, id: FileId) -> Option<&File> {
        self.files.get(id.0 as usize)?.as_ref()
    }

    fn file_mut(&mut self, id: FileId) -> &mut File {
        let file = self.files[id.0 as usize].as_mut();
        file.expect("who writes to a file has it")
    }
}

fn place(places: &[u32], index: u32) -> Option<Block> {
    let place = *places.get(index as usize)?;
    (place != NOWHERE).then_some(Block(place))
}

fn replace(places: &mut Vec<u32>, index: u32, block: Block) -> Option<Block> {
    let index = index as usize;
    if places.len() <= index {
        places.resize(index + 1, NOWHERE);
    }
    let old = std::mem::replace(&mut places[index], block.0);
    (old != NOWHERE).then_some(Block(old))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_touch_are_one_extent() {
        let mut files = Files::default();
        let id = files.create();
        for (index, block) in [(0, 10), (1, 11), (2, 30), (4, 31)] {
            assert_eq!(files.set_block(id, index, Block(block)), None);
        }
        let layout = files.layout(id);
        let extents: Vec<_> = layout
            .extents()
            .iter()
            .map(|it| (it.file.0, it.phys.0, it.len.0))
            .collect();
        let kib = |n: u64| n << 10;
        let expected = [
            (0, kib(40), kib(8)),
            (kib(8), kib(120), kib(4)),
            (kib(16), kib(124), kib(4)),
        ];
        assert_eq!(extents, expected);
        let middle = files.layout_of(id, 1..2);
        let [piece] = middle.extents() else {
            panic!("{middle:?}");
        };
        assert_eq!(
            (piece.file.0, piece.phys.0, piece.len.0),
            (kib(4), kib(44), kib(4))
        );
        assert_eq!(files.set_block(id, 1, Block(5)), Some(Block(11)));
        assert_eq!(
            files.remove(id).collect::<Vec<_>>(),
            [10, 5, 30, 31].map(Block)
        );
        assert!(!files.has(id) && files.blocks(id) == 0);
        assert_ne!(files.create(), id);
    }

    #[test]
    fn a_dirty_node_is_taken_once() {
        let mut files = Files::default();
        let (a, b) = (files.create(), files.create());
        for (id, node) in [(b, 4), (b, 0), (a, 1), (b, 4)] {
            files.dirty_node(id, node);
        }
        assert_eq!(files.take_dirty_nodes(b), [0, 4]);
        files.dirty_node(b, 2);
        assert_eq!(files.take_dirty(), [a, b]);
        assert_eq!(files.take_dirty_nodes(b), [2]);
        assert!(files.take_dirty().is_empty());
    }
}
