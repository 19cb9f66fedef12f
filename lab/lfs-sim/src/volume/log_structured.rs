//! A log-structured volume: data, nodes that map it, and a directory.
//!
//! A file's map is in nodes, as in F2FS: the inode maps the first 923 blocks, each direct node 1018 more; from the
//! third direct node on there is an indirect one. A block that moves makes the node dirty that maps it. fsync
//! writes a file's dirty nodes, a checkpoint all of them, and the entries of the directory that have changed.

use std::collections::HashMap;

use super::Placed;
use crate::{
    block::{Block, Full, Moved, Run},
    files::{FileId, Files},
    log::{Checkpoint, Log, LogMode, LogSpace, Owner, Shape, VictimPolicy},
};

/// Addresses in an inode, and in another node (F2FS: `DEF_ADDRS_PER_INODE`, `DEF_ADDRS_PER_BLOCK`).
const IN_INODE: u32 = 923;
const IN_NODE: u32 = 1018;
/// Numbers of the nodes of a file: 0 is the inode, 1 and 2 are direct, 3 is indirect, then direct ones again.
const INDIRECT: u32 = 3;
/// Entries of a block of a directory (F2FS: `NR_DENTRY_IN_BLOCK`).
const IN_DIRECTORY_BLOCK: u32 = 214;

/// How a defragmenter gives data of a log new places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mover {
    /// In a log of its own, for which room is made: the device's, and a program that works on a volume of its own.
    #[default]
    OwnLog,
    /// `F2FS_IOC_DEFRAGMENT` (fs/f2fs/file.c, `f2fs_defragment_range`, v6.12): in the log of what cleaning moves. It refuses
    /// (`EAGAIN`) where no more free sections than the reserve would be left. Where they are few, but not as few, this log
    /// fills holes like any other.
    Ioctl {
        /// Whether it is called also then.
        into_holes: bool,
    },
}

/// A log-structured volume with one directory.
#[derive(Clone, Debug)]
pub struct LogVolume {
    files: Files,
    space: LogSpace,
    directory: FileId,
    mover: Mover,
    /// The entry of each file in the directory.
    entries: HashMap<FileId, u32>,
    free_entries: Vec<u32>,
    /// Blocks of the directory whose entries have changed.
    dirty_entries: Vec<u32>,
}

impl LogVolume {
    /// A volume without files.
    #[must_use]
    pub fn new(shape: Shape, mode: LogMode) -> Self {
        let mut files = Files::default();
        Self {
            directory: files.create(),
            files,
            space: LogSpace::new(shape, mode),
            mover: Mover::default(),
            entries: HashMap::new(),
            free_entries: Vec::new(),
            dirty_entries: Vec::new(),
        }
    }

    /// The same with another mover.
    #[must_use]
    pub const fn moved_by(mut self, mover: Mover) -> Self {
        self.mover = mover;
        self
    }

    /// The log that moved data goes to.
    #[must_use]
    pub const fn moves_to(&self) -> Log {
        match self.mover {
            Mover::OwnLog => Log::Pinned,
            Mover::Ioctl { .. } => Log::ColdData,
        }
    }

    /// The files, with the directory among them.
    pub(super) const fn files(&self) -> &Files {
        &self.files
    }

    /// Segments and sections.
    #[must_use]
    pub const fn space(&self) -> &LogSpace {
        &self.space
    }

    /// The file that holds the entries of all others.
    #[must_use]
    pub const fn directory(&self) -> FileId {
        self.directory
    }

    pub(super) fn create(&mut self) -> FileId {
        let file = self.files.create();
        let next = self.entries.len() as u32;
        let entry = self.free_entries.pop().unwrap_or(next);
        self.entries.insert(file, entry);
        self.dirty_entry(entry);
        self.files.dirty_node(file, 0);
        file
    }

    pub(super) fn delete(&mut self, file: FileId) {
        if let Some(entry) = self.entries.remove(&file) {
            self.free_entries.push(entry);
            self.dirty_entry(entry);
        }
        for block in self.files.remove(file) {
            self.space.invalidate(block);
        }
    }

    fn dirty_entry(&mut self, entry: u32) {
        let block = entry / IN_DIRECTORY_BLOCK;
        if !self.dirty_entries.contains(&block) {
            self.dirty_entries.push(block);
        }
    }

    pub(super) fn place(
        &mut self,
        file: FileId,
        index: u32,
        len: u32,
        placed: &mut Vec<Placed>,
    ) -> Result<(), Full> {
        (index..index + len).try_for_each(|index| {
            let block = self.write(Log::WarmData, file, index)?;
            push(placed, Log::WarmData, block);
            Ok(())
        })
    }

    /// Appends a block of data to a log and maps it.
    fn write(&mut self, log: Log, file: FileId, index: u32) -> Result<Block, Full> {
        let block = self.space.append(log, Owner::Data { file, index })?;
        if let Some(old) = self.files.set_block(file, index, block) {
            self.space.invalidate(old);
        }
        self.dirty_map(file, index);
        Ok(block)
    }

    fn dirty_map(&mut self, file: FileId, index: u32) {
        let node = node_of(index);
        self.files.dirty_node(file, node);
        // A node that moves changes the one that points to it.
        if node > INDIRECT {
            self.files.dirty_node(file, INDIRECT);
        }
    }

    pub(super) fn place_nodes(
        &mut self,
        file: FileId,
        placed: &mut Vec<Placed>,
    ) -> Result<(), Full> {
        for index in self.files.take_dirty_nodes(file) {
            let log = self.log_of_node(file, index);
            let block = self.space.append(log, Owner::Node { file, index })?;
            if let Some(old) = self.files.set_node(file, index, block) {
                self.space.invalidate(old);
            }
            push(placed, log, block);
        }
        Ok(())
    }

    const fn log_of_node(&self, file: FileId, index: u32) -> Log {
        match index {
            _ if file.0 == self.directory.0 => Log::HotNode,
            INDIRECT => Log::ColdNode,
            _ => Log::WarmNode,
        }
    }

    /// Whether so many blocks are left where they are, for want of free sections.
    #[must_use]
    pub const fn refuses_to_move(&self, blocks: u32, reserved_sections: u32) -> bool {
        let Mover::Ioctl { into_holes } = self.mover else {
            return false;
        };
        let needed = blocks.div_ceil(self.space.shape().section_blocks());
        let is_short = self.space.free_sections() <= reserved_sections + needed;
        is_short || !into_holes && self.space.fills_holes()
    }

    pub(super) fn relocate(
        &mut self,
        file: FileId,
        index: u32,
        len: u32,
        moves: &mut Vec<Moved>,
    ) -> Result<(), Full> {
        for index in index..index + len {
            if let Some(from) = self.files.block(file, index) {
                let to = self.write(self.moves_to(), file, index)?;
                moves.push(Moved { from, to });
            }
        }
        Ok(())
    }

    /// Whether a section should be cleaned before anything else is written.
    #[must_use]
    pub const fn needs_room(&self, reserved_sections: u32) -> bool {
        self.space.free_sections() <= reserved_sections
    }

    /// The segments of the section to clean that hold valid blocks; `None` if cleaning frees nothing.
    #[must_use]
    pub fn victim(&self, policy: VictimPolicy) -> Option<Vec<u32>> {
        let section = self.space.victim(policy)?;
        let segments = self.space.shape().segments_of(section);
        let has_valid = |segment: &u32| self.space.valid(*segment).next().is_some();
        Some(segments.filter(has_valid).collect())
    }

    /// The valid blocks of a segment, in runs: what cleaning reads.
    #[must_use]
    pub fn valid_runs(&self, segment: u32) -> Vec<Run> {
        let mut runs = Vec::new();
        for (start, _) in self.space.valid(segment) {
            Run::push(&mut runs, Run { start, len: 1 });
        }
        runs
    }

    /// Moves every valid block out of a segment.
    ///
    /// # Errors
    ///
    /// No section is free: the reserve was too small.
    pub fn clean(
        &mut self,
        segment: u32,
        placed: &mut Vec<Placed>,
        moves: &mut Vec<Moved>,
    ) -> Result<(), Full> {
        let valid: Vec<_> = self.space.valid(segment).collect();
        for (block, owner) in valid {
            let log = self.log_of_moved(owner);
            let to = self.space.append(log, owner)?;
            self.space.invalidate(block);
            match owner {
                Owner::Data { file, index } => {
                    self.files.set_block(file, index, to);
                    self.dirty_map(file, index);
                }
                Owner::Node { file, index } => {
                    self.files.set_node(file, index, to);
                }
            }
            push(placed, log, to);
            moves.push(Moved { from: block, to });
        }
        Ok(())
    }

    const fn log_of_moved(&self, owner: Owner) -> Log {
        match owner {
            Owner::Data { .. } => Log::ColdData,
            Owner::Node { file, index } => self.log_of_node(file, index),
        }
    }

    /// Places what a checkpoint writes, and begins it.
    ///
    /// # Errors
    ///
    /// As [`Self::clean`].
    pub fn begin_checkpoint(&mut self, placed: &mut Vec<Placed>) -> Result<Checkpoint, Full> {
        for index in std::mem::take(&mut self.dirty_entries) {
            let block = self.write(Log::HotData, self.directory, index)?;
            push(placed, Log::HotData, block);
        }
        for file in self.files.take_dirty() {
            self.place_nodes(file, placed)?;
        }
        Ok(self.space.begin_checkpoint())
    }

    /// Ends it; returns the sections that are free now.
    pub fn end_checkpoint(&mut self, checkpoint: Checkpoint) -> Vec<u32> {
        self.space.end_checkpoint(checkpoint)
    }
}

/// The node that maps a block of a file.
const fn node_of(index: u32) -> u32 {
    match index.checked_sub(IN_INODE) {
        None => 0,
        Some(past) => match past / IN_NODE {
            direct @ 0..2 => 1 + direct,
            more => INDIRECT + 1 + (more - 2),
        },
    }
}

fn push(placed: &mut Vec<Placed>, log: Log, start: Block) {
    let run = Run { start, len: 1 };
    let log = Some(log);
    Placed::push(placed, Placed { run, log });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ioctl_leaves_the_reserve_alone() {
        let shape = Shape {
            segment_blocks: 8,
            segments_per_section: 2,
            sections: 12,
        };
        let volume = LogVolume::new(shape, LogMode::Lfs);
        let by_ioctl = (volume.clone()).moved_by(Mover::Ioctl { into_holes: false });
        for (blocks, reserve, is_refused) in [
            (1, 10, false),
            (16, 10, false),
            (17, 10, true),
            (1, 11, true),
            (1, 12, true),
        ] {
            assert_eq!(by_ioctl.refuses_to_move(blocks, reserve), is_refused);
            assert!(!volume.refuses_to_move(blocks, reserve));
        }
    }

    #[test]
    fn nodes_are_numbered_as_in_f2fs() {
        let last_direct = IN_INODE + 2 * IN_NODE;
        for (index, node) in [
            (0, 0),
            (IN_INODE - 1, 0),
            (IN_INODE, 1),
            (IN_INODE + IN_NODE, 2),
            (last_direct - 1, 2),
            (last_direct, 4),
            (last_direct + IN_NODE, 5),
        ] {
            assert_eq!(node_of(index), node, "{index}");
        }
    }
}
