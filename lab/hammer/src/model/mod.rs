//! The required content of every file, and its allowed content after a cut.
//!
//! Only one actor changes a file, one operation at a time. *Before* an operation begins, it tells the
//! model its result: from then on a cut may show it. *After* a call that promises durability has
//! returned, the model is told so. At each instant the model thus allows exactly the durable value and
//! everything newer.

pub(crate) mod history;
mod judge;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use history::History;

use crate::stamp::{BLOCK, BlockValue, Stamp};

pub(crate) use judge::{Findings, Window};

/// Sizes in bytes, both included: a write that extends a file may leave any size between them.
pub(crate) type Sizes = (u64, u64);

/// One inode.
#[derive(Clone, Debug)]
pub(crate) struct FileModel {
    pub(crate) inode: u64,
    blocks: Vec<History<BlockValue>>,
    size: History<Sizes>,
    attribute: History<u32>,
    versions: u32,
}

/// The whole model; cloned at a cut.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    files: Vec<FileModel>,
    names: BTreeMap<String, History<Option<u32>>>,
    watched: bool,
    /// Begin and end of calls that commit everything before them.
    commits_ms: Vec<(u64, u64)>,
    /// Periods in which a stopped or killed mover may have been between a step and its commit.
    halts_ms: Vec<(u64, u64)>,
    now_ms: u64,
}

impl FileModel {
    fn new(inode: u64, most_blocks: u32) -> Self {
        Self {
            inode,
            blocks: vec![History::new(BlockValue::Zero); most_blocks as usize],
            size: History::new((0, 0)),
            attribute: History::new(0),
            versions: 0,
        }
    }

    /// The largest number of blocks that it may get.
    pub(crate) fn most_blocks(&self) -> u32 {
        self.blocks.len() as u32
    }

    /// Its live size in blocks; a part of a block counts as one.
    pub(crate) fn len_blocks(&self) -> u32 {
        self.len().div_ceil(BLOCK as u64) as u32
    }

    /// Its live size.
    pub(crate) fn len(&self) -> u64 {
        self.size.live().1
    }

    /// The live content of a block.
    pub(crate) fn live(&self, block: u32) -> BlockValue {
        *self.blocks[block as usize].live()
    }

    fn live_range(&self, range: Range<u32>) -> Vec<BlockValue> {
        range.map(|block| self.live(block)).collect()
    }

    fn grow(&mut self, end: u32) {
        let (old, new) = (self.len(), u64::from(end) * BLOCK as u64);
        if new > old {
            self.size.push((old, new));
            // From here on the live size is this one.
            self.size.push((new, new));
        }
    }

    /// Set and return new content for `range`.
    fn write(&mut self, file: u32, range: Range<u32>) -> Vec<BlockValue> {
        self.grow(range.end);
        self.versions += 1;
        let version = self.versions;
        range
            .map(|block| {
                let value = BlockValue::Data(Stamp {
                    file,
                    block,
                    version,
                });
                self.blocks[block as usize].push(value);
                value
            })
            .collect()
    }

    /// Set `values` from `start` on.
    fn put(&mut self, start: u32, values: &[BlockValue]) {
        self.grow(start + values.len() as u32);
        for (block, value) in (start..).zip(values) {
            self.blocks[block as usize].push(*value);
        }
    }

    fn zero(&mut self, range: Range<u32>) {
        for block in range {
            self.blocks[block as usize].push(BlockValue::Zero);
        }
    }

    /// Set another size; everything past it is zero from then on.
    fn resize(&mut self, blocks: u32) {
        let new = u64::from(blocks) * BLOCK as u64;
        self.zero(blocks.min(self.most_blocks())..self.most_blocks());
        self.size.push((new, new));
    }

    /// Move blocks from `range.end` on to `range.start` (`collapse`), or make room by moving those from
    /// `range.start` on. The kernel moves each extent in a transaction of its own: a moving extent is a
    /// hole for a while.
    fn shift(&mut self, range: Range<u32>, collapse: bool) {
        let (len, count) = (self.len_blocks(), range.end - range.start);
        let old: Vec<BlockValue> = (0..self.most_blocks()).map(|b| self.live(b)).collect();
        let new_len = if collapse { len - count } else { len + count };
        for block in range.start..self.most_blocks() {
            let value = if collapse {
                old.get((block + count) as usize).copied()
            } else if block < range.end {
                None
            } else {
                old.get((block - count) as usize).copied()
            };
            let history = &mut self.blocks[block as usize];
            let value = value
                .filter(|_| block < new_len)
                .unwrap_or(BlockValue::Zero);
            if *history.live() != value {
                history.push(BlockValue::Zero);
            }
            history.push(value);
        }
        let new = u64::from(new_len) * BLOCK as u64;
        self.size.push((new, new));
    }

    fn durable(&mut self, watched: bool) {
        for block in &mut self.blocks {
            block.durable(watched);
        }
        self.size.durable(watched);
        self.attribute.durable(watched);
    }

    /// Make written data of `range` durable. Zeroes made by a change of the mapping are not promised.
    fn blocks_durable(&mut self, range: Range<u32>, now_ms: u64, watched: bool) {
        for block in range {
            let is_data = |value: &BlockValue| matches!(value, BlockValue::Data(_));
            self.blocks[block as usize].data_durable(is_data, now_ms, watched);
        }
    }

    /// The same, and the size as far as it is needed to read the data.
    fn data_durable(&mut self, range: Range<u32>, now_ms: u64, watched: bool) {
        self.blocks_durable(range.clone(), now_ms, watched);
        // A write promises only the part of the size that it needs itself.
        let promised = (u64::from(range.end) * BLOCK as u64).min(self.len());
        let largest = self.size.allowed().map(|size| size.1).max();
        let smaller = self.size.allowed().any(|size| size.0 < promised);
        if smaller && largest == Some(self.len()) {
            let live = *self.size.live();
            self.size.push((promised, live.1));
            self.size.data_durable(|_| true, now_ms, watched);
            self.size.push(live);
        }
    }

    fn forget_passed(&mut self) {
        for block in &mut self.blocks {
            block.forget_passed();
        }
        self.size.forget_passed();
        self.attribute.forget_passed();
    }
}

impl Model {
    /// Add a new, empty file that has no name yet.
    pub(crate) fn add_file(&mut self, inode: u64, most_blocks: u32) -> u32 {
        self.files.push(FileModel::new(inode, most_blocks));
        self.files.len() as u32 - 1
    }

    /// A file.
    pub(crate) fn file(&self, file: u32) -> &FileModel {
        &self.files[file as usize]
    }

    /// Set the time since the beginning, for the next operation.
    pub(crate) fn set_now(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
    }

    /// Set and return new content for a range of blocks. It is written in place, unless the block is
    /// shared.
    pub(crate) fn write(&mut self, file: u32, range: Range<u32>) -> Vec<BlockValue> {
        let old = self.file(file).live_range(range.clone());
        let new = self.files[file as usize].write(file, range);
        self.written_over(&old, &new);
        new
    }

    /// Set the given content from a block on, written like any other data.
    pub(crate) fn put(&mut self, file: u32, start: u32, values: &[BlockValue]) {
        let old = { self.file(file) }.live_range(start..start + values.len() as u32);
        self.share(file, start, values);
        self.written_over(&old, values);
    }

    /// Set the given content from a block on, in blocks that come with it (a clone).
    pub(crate) fn share(&mut self, file: u32, start: u32, values: &[BlockValue]) {
        self.files[file as usize].put(start, values);
    }

    /// Give a range blocks of its own, with the content that it has.
    pub(crate) fn unshare(&mut self, file: u32, range: Range<u32>) {
        let blocks = &mut self.files[file as usize].blocks;
        blocks[range.start as usize..range.end as usize]
            .iter_mut()
            .for_each(History::move_live);
    }

    /// Note that blocks with `old` in them, wherever they were shared, now hold `new`.
    fn written_over(&mut self, old: &[BlockValue], new: &[BlockValue]) {
        let names = self.names.values();
        let named: BTreeSet<u32> = names.clone().filter_map(|name| *name.live()).collect();
        let may_be_back = names.flat_map(|name| name.allowed().flatten().copied());
        let may_be: BTreeSet<u32> = may_be_back.collect();
        let written: Vec<(BlockValue, BlockValue)> =
            { old.iter().copied().zip(new.iter().copied()) }
                .filter(|(old, new)| *old != BlockValue::Zero && old != new)
                .collect();
        for number in may_be {
            let gone = !named.contains(&number);
            let file = &mut self.files[number as usize];
            for history in file
                .blocks
                .iter_mut()
                .filter(|block| gone || block.in_doubt())
            {
                for (old, new) in &written {
                    history.written_over(old, new, gone);
                }
            }
        }
    }

    /// Set zeroes.
    pub(crate) fn zero(&mut self, file: u32, range: Range<u32>) {
        self.files[file as usize].zero(range);
    }

    /// Set a size in blocks.
    pub(crate) fn resize(&mut self, file: u32, blocks: u32) {
        self.files[file as usize].resize(blocks);
    }

    /// Set a block as it was found after a failed call.
    pub(crate) fn found(&mut self, file: u32, block: u32, value: BlockValue) {
        self.files[file as usize].blocks[block as usize].push(value);
    }

    /// Set a size as it was found after a failed call.
    pub(crate) fn found_size(&mut self, file: u32, bytes: u64) {
        self.files[file as usize].size.push((bytes, bytes));
    }

    /// Note an allocation that extends the file.
    pub(crate) fn grow(&mut self, file: u32, end: u32) {
        self.files[file as usize].grow(end);
    }

    /// Collapse or insert a range.
    pub(crate) fn shift(&mut self, file: u32, range: Range<u32>, collapse: bool) {
        self.files[file as usize].shift(range, collapse);
    }

    /// The live value of the hammer's attribute.
    pub(crate) fn attribute(&self, file: u32) -> u32 {
        *self.file(file).attribute.live()
    }

    /// Set the hammer's attribute.
    pub(crate) fn set_attribute(&mut self, file: u32, value: u32) {
        self.files[file as usize].attribute.push(value);
    }

    /// Note that `fsync` of the file, begun at `begun_ms`, has returned.
    pub(crate) fn fsynced(&mut self, file: u32, begun_ms: u64) {
        self.files[file as usize].durable(self.watched);
        self.commits_ms.push((begun_ms, self.now_ms));
    }

    /// Note that `fdatasync` of the file has returned.
    pub(crate) fn data_synced(&mut self, file: u32) {
        let all = 0..self.file(file).most_blocks();
        self.range_synced(file, all);
    }

    /// Note that a write with `O_DSYNC` has returned.
    pub(crate) fn range_synced(&mut self, file: u32, range: Range<u32>) {
        let (now_ms, watched) = (self.now_ms, self.watched);
        self.files[file as usize].data_durable(range, now_ms, watched);
    }

    /// Note that a write with `O_DSYNC` has returned, on a file system that may forget the size.
    pub(crate) fn blocks_synced(&mut self, file: u32, range: Range<u32>) {
        let (now_ms, watched) = (self.now_ms, self.watched);
        self.files[file as usize].blocks_durable(range, now_ms, watched);
    }

    /// Note that a write with `O_SYNC`, begun at `begun_ms`, has returned.
    pub(crate) fn range_fsynced(&mut self, file: u32, range: Range<u32>, begun_ms: u64) {
        let watched = self.watched;
        let file = &mut self.files[file as usize];
        // Acknowledged at the very beginning, and committed since: no window.
        file.data_durable(range.clone(), 0, watched);
        for block in &mut file.blocks[range.start as usize..range.end as usize] {
            block.end_obsolete(watched);
        }
        self.commits_ms.push((begun_ms, self.now_ms));
    }

    /// Note that `syncfs` or a freeze has returned; no operation was under way while it ran.
    pub(crate) fn all_synced(&mut self, begun_ms: u64) {
        for file in &mut self.files {
            file.durable(self.watched);
        }
        for name in self.names.values_mut() {
            name.durable(self.watched);
        }
        self.commits_ms.push((begun_ms, self.now_ms));
    }

    /// Give the name to this file, or to none.
    pub(crate) fn set_name(&mut self, name: &str, file: Option<u32>) {
        self.names
            .entry(name.to_owned())
            .or_insert_with(|| History::new(None))
            .push(file);
    }

    /// Note that `fsync` of a directory has returned.
    pub(crate) fn directory_synced(&mut self, directory: &str, begun_ms: u64) {
        let within = |name: &str| name.split('/').next() == Some(directory);
        for (_, history) in self.names.iter_mut().filter(|(name, _)| within(name)) {
            history.durable(self.watched);
        }
        self.commits_ms.push((begun_ms, self.now_ms));
    }

    /// Whether the file has no name any more.
    pub(crate) fn is_gone(&self, file: u32) -> bool {
        self.names.values().all(|name| *name.live() != Some(file))
    }

    /// The file that has this name now.
    pub(crate) fn named(&self, name: &str) -> Option<u32> {
        *self.names.get(name)?.live()
    }

    /// Every name that was ever used.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&str, &History<Option<u32>>)> {
        self.names
            .iter()
            .map(|(name, history)| (name.as_str(), history))
    }

    /// Note that a mover is stopped or killed.
    pub(crate) fn mover_halted(&mut self) -> usize {
        self.halts_ms.push((self.now_ms, u64::MAX));
        self.halts_ms.len() - 1
    }

    /// Note that the mover goes on.
    pub(crate) fn mover_continues(&mut self, halt: usize) {
        self.halts_ms[halt].1 = self.now_ms;
    }

    /// Begin a cut: it may show every value that is allowed from now to [`Self::end_cut`].
    pub(crate) fn begin_cut(&mut self) {
        self.watched = true;
    }

    /// End the cut and return the model by which to judge it.
    pub(crate) fn end_cut(&mut self, begun_ms: u64) -> Self {
        let mut cut = self.clone();
        cut.now_ms = begun_ms;
        cut.watched = false;
        self.watched = false;
        for file in &mut self.files {
            file.forget_passed();
        }
        for name in self.names.values_mut() {
            name.forget_passed();
        }
        cut
    }
}
