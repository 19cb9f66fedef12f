//! A volume that is written in place: a block that has one keeps it.

use std::collections::HashMap;

use super::Placed;
use crate::{
    block::{Block, Full, Moved, Run},
    files::{FileId, Files},
    groups::{GroupSpace, Window},
};

/// A volume with block groups and one directory, in whose group every file begins.
#[derive(Clone, Debug)]
pub struct InPlaceVolume {
    files: Files,
    space: GroupSpace,
    preallocation: bool,
    /// Blocks that files have beyond those that are written.
    windows: HashMap<FileId, Window>,
}

impl InPlaceVolume {
    /// A volume without files.
    #[must_use]
    pub fn new(blocks: u32, group_blocks: u32, preallocation: bool) -> Self {
        Self {
            files: Files::default(),
            space: GroupSpace::new(blocks, group_blocks),
            preallocation,
            windows: HashMap::new(),
        }
    }

    pub(super) const fn files(&self) -> &Files {
        &self.files
    }

    /// The bitmaps.
    #[must_use]
    pub const fn space(&self) -> &GroupSpace {
        &self.space
    }

    /// Blocks that are kept for the ends of files.
    #[must_use]
    pub fn preallocated_blocks(&self) -> u32 {
        self.windows.values().map(|window| window.run.len).sum()
    }

    pub(super) fn create(&mut self) -> FileId {
        self.files.create()
    }

    pub(super) fn delete(&mut self, file: FileId) {
        self.close(file);
        let mut runs = Vec::new();
        for start in self.files.remove(file) {
            Run::push(&mut runs, Run { start, len: 1 });
        }
        runs.into_iter().for_each(|run| self.space.release(run));
    }

    /// The last writer of a file is gone: the blocks that were kept for it are free again
    /// (`ext4_discard_preallocations`).
    pub fn close(&mut self, file: FileId) {
        if let Some(window) = self.windows.remove(&file) {
            self.space.release(window.run);
        }
    }

    /// Gives blocks that have no place one, without writing them: what a call does without delayed allocation.
    ///
    /// # Errors
    ///
    /// No block is free.
    pub fn reserve(&mut self, file: FileId, index: u32, len: u32) -> Result<(), Full> {
        self.place(file, index, len, &mut Vec::new())
    }

    pub(super) fn place(
        &mut self,
        file: FileId,
        index: u32,
        len: u32,
        placed: &mut Vec<Placed>,
    ) -> Result<(), Full> {
        let (mut at, end) = (index, index + len);
        while at < end {
            let run = match self.files.block(file, at) {
                Some(start) => Run { start, len: 1 },
                None => {
                    let need = (at..end)
                        .take_while(|index| self.files.block(file, *index).is_none())
                        .count();
                    let run = self.take(file, at, need as u32)?;
                    for (index, block) in (at..).zip(run.blocks()) {
                        self.files.set_block(file, index, block);
                    }
                    run
                }
            };
            at += run.len;
            Placed::push(placed, Placed { run, log: None });
        }
        Ok(())
    }

    /// Takes up to `need` blocks for a file from `index` on: of its window, or new ones.
    fn take(&mut self, file: FileId, index: u32, need: u32) -> Result<Run, Full> {
        let window = match self.windows.remove(&file) {
            Some(window) if window.index == index => window,
            other => {
                if let Some(elsewhere) = other {
                    self.space.release(elsewhere.run);
                }
                let want = if self.preallocation && index + need > self.files.blocks(file) {
                    Window::blocks(index + need, need)
                } else {
                    need
                };
                let run = self.allocate(self.goal(file, index), want)?;
                Window { index, run }
            }
        };
        let taken = Run {
            len: window.run.len.min(need),
            ..window.run
        };
        if taken.len < window.run.len {
            let rest = Window {
                index: index + taken.len,
                run: Run {
                    start: taken.end(),
                    len: window.run.len - taken.len,
                },
            };
            self.windows.insert(file, rest);
        }
        Ok(taken)
    }

    /// Takes blocks; where none is free, those that are kept for files are given up first
    /// (`ext4_mb_discard_preallocations`).
    fn allocate(&mut self, goal: Block, want: u32) -> Result<Run, Full> {
        let found = self.space.allocate(goal, want);
        if found.is_ok() || self.windows.is_empty() {
            return found;
        }
        for (_, window) in self.windows.drain() {
            self.space.release(window.run);
        }
        self.space.allocate(goal, want)
    }

    /// After the block before it; at the beginning of a file, the directory's group.
    fn goal(&self, file: FileId, index: u32) -> Block {
        let before = index.checked_sub(1);
        match before.and_then(|before| self.files.block(file, before)) {
            Some(before) => before.after(1),
            None => self.space.start_of_group(0),
        }
    }

    /// The pieces that blocks of a file would lie in, were they given new places now.
    pub(super) fn pieces_after(&self, file: FileId, index: u32, len: u32) -> u32 {
        let mut space = self.space.clone();
        let mut left = (index..index + len)
            .filter(|index| self.files.block(file, *index).is_some())
            .count() as u32;
        let (mut goal, mut pieces) = (self.goal(file, index), 0);
        while left > 0
            && let Ok(run) = space.allocate(goal, left)
        {
            pieces += u32::from(pieces == 0 || run.start != goal);
            (left, goal) = (left - run.len, run.end());
        }
        // What finds no place makes it no better.
        pieces.saturating_add(left)
    }

    pub(super) fn relocate(
        &mut self,
        file: FileId,
        index: u32,
        len: u32,
        moves: &mut Vec<Moved>,
    ) -> Result<(), Full> {
        self.close(file);
        let old: Vec<(u32, Block)> = (index..index + len)
            .filter_map(|index| Some((index, self.files.block(file, index)?)))
            .collect();
        let mut moved = 0;
        // The old blocks are given back at the end, as by a donor file: nothing goes where data still lies.
        let result = loop {
            let left = &old[moved..];
            let Some(&(first, _)) = left.first() else {
                break Ok(());
            };
            let goal = match moves.last() {
                Some(last) if moved > 0 => last.to.after(1),
                _ => self.goal(file, first),
            };
            let want = left.len() as u32;
            let run = match self.allocate(goal, want) {
                Ok(run) => run,
                Err(full) => break Err(full),
            };
            for (&(index, from), to) in left.iter().zip(run.blocks()) {
                self.files.set_block(file, index, to);
                moves.push(Moved { from, to });
            }
            moved += run.len as usize;
        };
        for &(_, start) in &old[..moved] {
            self.space.release(Run { start, len: 1 });
        }
        result
    }
}
