//! Sections, and the heads of the logs in them.

use super::{
    shape::{Log, Shape},
    table::{Owner, Table},
};
use crate::block::{Block, Full};

/// Whether heads may write into segments that hold data (F2FS: mount option `mode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogMode {
    /// Never: a section is written from its beginning to its end.
    Lfs,
    /// When there are no more free sections than this.
    Adaptive {
        /// Free sections.
        below: u32,
    },
}

/// The state of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Free,
    /// A log is writing it from its beginning.
    Open,
    Closed,
    /// Without a valid block; free after the next checkpoint.
    Empty,
}

/// Where a log writes next.
#[derive(Clone, Copy, Debug)]
struct Head {
    segment: u32,
    /// Block in the segment.
    next: u32,
    /// Only into blocks that are free in between valid ones.
    fills_holes: bool,
}

/// Segments that a checkpoint releases once it is on the device.
#[derive(Debug)]
#[must_use = "sections stay empty until the checkpoint ends"]
pub struct Checkpoint {
    sections: Vec<u32>,
    stale: Vec<Block>,
}

/// The blocks of a volume with logs.
#[derive(Clone, Debug)]
pub struct LogSpace {
    pub(super) shape: Shape,
    mode: LogMode,
    pub(super) table: Table,
    pub(super) uses: Vec<Use>,
    free_sections: u32,
    valid_blocks: u32,
    heads: [Option<Head>; Log::ALL.len()],
    /// The section that was opened last; the next one is looked for after it.
    last_opened: u32,
    /// Empty sections of which no checkpoint knows yet.
    emptied: Vec<u32>,
}

impl LogSpace {
    /// A volume without data.
    #[must_use]
    pub fn new(shape: Shape, mode: LogMode) -> Self {
        Self {
            table: Table::new(shape, mode != LogMode::Lfs),
            uses: vec![Use::Free; shape.sections as usize],
            free_sections: shape.sections,
            valid_blocks: 0,
            heads: [None; Log::ALL.len()],
            last_opened: shape.sections - 1,
            emptied: Vec::new(),
            shape,
            mode,
        }
    }

    /// The division of the volume.
    #[must_use]
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// Sections that a log can be opened in.
    #[must_use]
    pub const fn free_sections(&self) -> u32 {
        self.free_sections
    }

    /// Whether a log goes on in a segment with holes, if there is one, when its own is full (F2FS: `f2fs_need_SSR`).
    #[must_use]
    pub const fn fills_holes(&self) -> bool {
        match self.mode {
            LogMode::Lfs => false,
            LogMode::Adaptive { below } => self.free_sections <= below,
        }
    }

    /// Sections that a checkpoint would make free.
    #[must_use]
    pub const fn empty_sections(&self) -> u32 {
        self.emptied.len() as u32
    }

    /// Blocks that are taken by data and nodes.
    #[must_use]
    pub const fn valid_blocks(&self) -> u32 {
        self.valid_blocks
    }

    /// The meaning of a block, if it is valid.
    #[must_use]
    pub fn owner(&self, block: Block) -> Option<Owner> {
        self.table.owner(block)
    }

    /// The valid blocks of a segment, in order.
    pub fn valid(&self, segment: u32) -> impl Iterator<Item = (Block, Owner)> + '_ {
        let blocks = self.shape.run_of(segment).blocks();
        blocks.filter_map(|block| Some((block, self.owner(block)?)))
    }

    /// Takes the next block of a log.
    ///
    /// # Errors
    ///
    /// No section is free, and no segment has room that this log may use.
    pub fn append(&mut self, log: Log, owner: Owner) -> Result<Block, Full> {
        loop {
            if let Some(block) = self.next_of_head(log) {
                self.table.fill(block, owner);
                self.valid_blocks += 1;
                return Ok(block);
            }
            self.open(log)?;
        }
    }

    /// A block holds nothing of use any more.
    pub fn invalidate(&mut self, block: Block) {
        self.table.clear(block);
        self.valid_blocks -= 1;
        self.note_if_empty(self.shape.section_of(block));
    }

    /// Begins a checkpoint: what is invalid by now will be free when it is on the device.
    pub fn begin_checkpoint(&mut self) -> Checkpoint {
        Checkpoint {
            sections: std::mem::take(&mut self.emptied),
            stale: self.table.take_stale(),
        }
    }

    /// Ends a checkpoint; returns the sections that have become free: zones to reset.
    pub fn end_checkpoint(&mut self, checkpoint: Checkpoint) -> Vec<u32> {
        self.table.release_stale(checkpoint.stale);
        for &section in &checkpoint.sections {
            self.uses[section as usize] = Use::Free;
        }
        self.free_sections += checkpoint.sections.len() as u32;
        checkpoint.sections
    }

    fn next_of_head(&mut self, log: Log) -> Option<Block> {
        let head = self.heads[log as usize].as_mut()?;
        while head.next < self.shape.segment_blocks {
            let block = self.shape.run_of(head.segment).start.after(head.next);
            head.next += 1;
            if !head.fills_holes || self.table.is_free(block) {
                return Some(block);
            }
        }
        None
    }

    /// Gives a log whose head is at the end of its segment another segment.
    fn open(&mut self, log: Log) -> Result<(), Full> {
        if let Some(head) = self.heads[log as usize].take() {
            let section = head.segment / self.shape.segments_per_section;
            let next = head.segment + 1;
            if !head.fills_holes && self.shape.segments_of(section).contains(&next) {
                self.set_head(log, next, false);
                return Ok(());
            }
            self.uses[section as usize] = Use::Closed;
            self.note_if_empty(section);
        }
        if self.fills_holes()
            && let Some(segment) = self.segment_with_holes(log)
        {
            self.set_head(log, segment, true);
            return Ok(());
        }
        let order = (self.last_opened + 1..self.shape.sections).chain(0..=self.last_opened);
        let mut free = order.filter(|section| self.uses[*section as usize] == Use::Free);
        let section = free.next().ok_or(Full {
            free: self.shape.blocks() - self.valid_blocks,
        })?;
        self.uses[section as usize] = Use::Open;
        self.free_sections -= 1;
        self.last_opened = section;
        self.set_head(log, self.shape.segments_of(section).start, false);
        Ok(())
    }

    fn set_head(&mut self, log: Log, segment: u32, fills_holes: bool) {
        self.table.open(segment, log);
        self.heads[log as usize] = Some(Head {
            segment,
            next: 0,
            fills_holes,
        });
    }

    /// The closed segment of the same kind with the most room, if any has some.
    fn segment_with_holes(&self, log: Log) -> Option<u32> {
        let sections = 0..self.shape.sections;
        let closed = sections.filter(|section| self.uses[*section as usize] == Use::Closed);
        let segments = closed.flat_map(|section| self.shape.segments_of(section));
        let taken = |segment: u32| {
            let entry = self.table.segment(segment);
            entry.valid + entry.stale
        };
        segments
            .filter(|&segment| {
                let of = self.table.segment(segment).log;
                of.is_some_and(|of| of.has_nodes() == log.has_nodes())
                    && taken(segment) < self.shape.segment_blocks
                    && !self
                        .heads
                        .iter()
                        .flatten()
                        .any(|head| head.segment == segment)
            })
            .min_by_key(|segment| taken(*segment))
    }

    pub(super) fn is_under_a_head(&self, section: u32) -> bool {
        let segments = self.shape.segments_of(section);
        let mut heads = self.heads.iter().flatten();
        heads.any(|head| segments.contains(&head.segment))
    }

    fn note_if_empty(&mut self, section: u32) {
        if self.table.valid_in_section(section) == 0
            && self.uses[section as usize] == Use::Closed
            && !self.is_under_a_head(section)
        {
            self.uses[section as usize] = Use::Empty;
            self.emptied.push(section);
        }
    }
}
