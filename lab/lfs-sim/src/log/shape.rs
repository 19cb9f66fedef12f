//! The division of a volume, and the logs that write to it.

use std::ops::Range;

use crate::block::{Block, Run};

/// A log, by what is written to it (F2FS: `CURSEG_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Log {
    /// Entries of directories.
    HotData,
    /// Data of files.
    WarmData,
    /// Data that cleaning has moved.
    ColdData,
    /// Nodes of directories.
    HotNode,
    /// Nodes of files that point to data.
    WarmNode,
    /// Nodes that point to nodes.
    ColdNode,
    /// Data that a defragmenter moves.
    Pinned,
}

impl Log {
    /// All of them, in order.
    pub const ALL: [Self; 7] = [
        Self::HotData,
        Self::WarmData,
        Self::ColdData,
        Self::HotNode,
        Self::WarmNode,
        Self::ColdNode,
        Self::Pinned,
    ];

    /// Whether it holds nodes.
    #[must_use]
    pub const fn has_nodes(self) -> bool {
        matches!(self, Self::HotNode | Self::WarmNode | Self::ColdNode)
    }
}

/// The division of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Blocks of a segment.
    pub segment_blocks: u32,
    /// Segments of a section, which on a zoned device is a zone.
    pub segments_per_section: u32,
    /// Sections of the volume.
    pub sections: u32,
}

impl Shape {
    /// All blocks.
    #[must_use]
    pub const fn blocks(self) -> u32 {
        self.section_blocks() * self.sections
    }

    /// Blocks of a section.
    #[must_use]
    pub const fn section_blocks(self) -> u32 {
        self.segment_blocks * self.segments_per_section
    }

    /// All segments.
    #[must_use]
    pub const fn segments(self) -> u32 {
        self.segments_per_section * self.sections
    }

    /// The segments of a section.
    #[must_use]
    pub const fn segments_of(self, section: u32) -> Range<u32> {
        section * self.segments_per_section..(section + 1) * self.segments_per_section
    }

    /// The blocks of a segment.
    #[must_use]
    pub const fn run_of(self, segment: u32) -> Run {
        Run {
            start: Block(segment * self.segment_blocks),
            len: self.segment_blocks,
        }
    }

    /// The first block of a section.
    #[must_use]
    pub const fn start_of(self, section: u32) -> Block {
        Block(section * self.section_blocks())
    }

    pub(super) const fn segment_of(self, block: Block) -> u32 {
        block.0 / self.segment_blocks
    }

    pub(super) const fn section_of(self, block: Block) -> u32 {
        block.0 / self.section_blocks()
    }
}
