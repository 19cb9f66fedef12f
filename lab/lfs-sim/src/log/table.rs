//! The segment information table: whose each block is, and how many are valid.

use super::shape::{Log, Shape};
use crate::{block::Block, files::FileId};

/// The meaning of a valid block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A block of a file's data.
    Data {
        /// The file.
        file: FileId,
        /// Which block of it.
        index: u32,
    },
    /// A node: a part of a file's map.
    Node {
        /// The file.
        file: FileId,
        /// Which node of it.
        index: u32,
    },
}

/// An owner in 8 bytes: a full device has millions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Packed(u64);

impl Packed {
    const NODE: u64 = 1 << 63;
    /// Not valid, and free for a write.
    const FREE: Self = Self(u64::MAX);
    /// Not valid, but the last checkpoint still refers to it.
    const STALE: Self = Self(u64::MAX - 1);

    fn of(owner: Owner) -> Self {
        let (kind, file, index) = match owner {
            Owner::Data { file, index } => (0, file, index),
            Owner::Node { file, index } => (Self::NODE, file, index),
        };
        debug_assert!(file.0 < u32::MAX >> 1);
        Self(kind | u64::from(file.0) << 32 | u64::from(index))
    }

    fn owner(self) -> Option<Owner> {
        if self == Self::FREE || self == Self::STALE {
            return None;
        }
        let file = FileId((self.0 >> 32) as u32 & (u32::MAX >> 1));
        let index = self.0 as u32;
        Some(match self.0 & Self::NODE {
            0 => Owner::Data { file, index },
            _ => Owner::Node { file, index },
        })
    }
}

/// One segment's entry.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Segment {
    pub(super) valid: u32,
    /// Invalid blocks that a checkpoint has to release first.
    pub(super) stale: u32,
    /// The log that it was last opened for.
    pub(super) log: Option<Log>,
    /// When a block of it was last written or became invalid, by [`Table::clock`].
    pub(super) modified: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Table {
    shape: Shape,
    owners: Vec<Packed>,
    segments: Vec<Segment>,
    /// Valid blocks of each section.
    valid_in_section: Vec<u32>,
    /// Changes so far: the time by which segments age. (F2FS takes seconds, which a pure allocator has not.)
    clock: u64,
    /// Stale blocks, where they are kept apart at all.
    stale: Option<Vec<Block>>,
}

impl Table {
    /// `keeps_stale`: whether single blocks are written again, so that the last checkpoint's have to be spared.
    pub(super) fn new(shape: Shape, keeps_stale: bool) -> Self {
        Self {
            owners: vec![Packed::FREE; shape.blocks() as usize],
            segments: vec![Segment::default(); shape.segments() as usize],
            valid_in_section: vec![0; shape.sections as usize],
            clock: 0,
            stale: keeps_stale.then(Vec::new),
            shape,
        }
    }

    pub(super) fn clock(&self) -> u64 {
        self.clock
    }

    pub(super) fn segment(&self, segment: u32) -> &Segment {
        &self.segments[segment as usize]
    }

    pub(super) fn open(&mut self, segment: u32, log: Log) {
        self.segments[segment as usize].log = Some(log);
    }

    pub(super) fn valid_in_section(&self, section: u32) -> u32 {
        self.valid_in_section[section as usize]
    }

    pub(super) fn owner(&self, block: Block) -> Option<Owner> {
        self.owners[block.0 as usize].owner()
    }

    pub(super) fn is_free(&self, block: Block) -> bool {
        self.owners[block.0 as usize] == Packed::FREE
    }

    /// A free block becomes valid.
    pub(super) fn fill(&mut self, block: Block, owner: Owner) {
        debug_assert!(self.is_free(block), "{block:?} has {:?}", self.owner(block));
        self.owners[block.0 as usize] = Packed::of(owner);
        self.change(block).valid += 1;
        self.valid_in_section[self.shape.section_of(block) as usize] += 1;
    }

    /// A valid block becomes invalid.
    pub(super) fn clear(&mut self, block: Block) {
        debug_assert!(self.owner(block).is_some(), "{block:?} is not valid");
        self.owners[block.0 as usize] = match &mut self.stale {
            Some(stale) => {
                stale.push(block);
                Packed::STALE
            }
            None => Packed::FREE,
        };
        let is_stale = u32::from(self.stale.is_some());
        let segment = self.change(block);
        segment.valid -= 1;
        segment.stale += is_stale;
        self.valid_in_section[self.shape.section_of(block) as usize] -= 1;
    }

    fn change(&mut self, block: Block) -> &mut Segment {
        self.clock += 1;
        let segment = &mut self.segments[self.shape.segment_of(block) as usize];
        segment.modified = self.clock;
        segment
    }

    /// Takes the blocks that the next checkpoint releases.
    pub(super) fn take_stale(&mut self) -> Vec<Block> {
        self.stale.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// A checkpoint does not refer to these any more.
    pub(super) fn release_stale(&mut self, stale: Vec<Block>) {
        for block in stale {
            self.owners[block.0 as usize] = Packed::FREE;
            self.segments[self.shape.segment_of(block) as usize].stale -= 1;
        }
    }
}
