//! What every file must hold, and may hold after a cut.
//!
//! Each file is changed by one actor only, one operation at a time. An operation tells the model
//! *before* it begins what it will leave: from then on a cut may show it. What has become durable is
//! told after the call that promises it has returned. So at each instant the model allows exactly
//! what is durable and everything newer.

pub(crate) mod history;
mod judge;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use history::History;

use crate::stamp::{BLOCK, Stamp, Value};

pub(crate) use judge::{Findings, Window};

/// Sizes in bytes, both included: a write that extends a file leaves any size on the way.
pub(crate) type Sizes = (u64, u64);

/// One inode.
#[derive(Clone, Debug)]
pub(crate) struct FileModel {
    pub(crate) inode: u64,
    blocks: Vec<History<Value>>,
    size: History<Sizes>,
    attribute: History<u32>,
    versions: u32,
}

/// Everything; cloned at a cut.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    files: Vec<FileModel>,
    names: BTreeMap<String, History<Option<u32>>>,
    watched: bool,
    /// When calls began and returned that commit everything before them.
    commits_ms: Vec<(u64, u64)>,
    /// From when to when a mover may have been between a step and its commit, not working.
    halts_ms: Vec<(u64, u64)>,
    now_ms: u64,
}

impl FileModel {
    fn new(inode: u64, most_blocks: u32) -> Self {
        Self {
            inode,
            blocks: vec![History::new(Value::Zero); most_blocks as usize],
            size: History::new((0, 0)),
            attribute: History::new(0),
            versions: 0,
        }
    }

    /// Most blocks that it may get.
    pub(crate) fn most_blocks(&self) -> u32 {
        self.blocks.len() as u32
    }

    /// Its live size in blocks; part of a block counts.
    pub(crate) fn len_blocks(&self) -> u32 {
        self.len().div_ceil(BLOCK as u64) as u32
    }

    /// Its live size.
    pub(crate) fn len(&self) -> u64 {
        self.size.live().1
    }

    /// What a block holds now.
    pub(crate) fn live(&self, block: u32) -> Value {
        *self.blocks[block as usize].live()
    }

    fn live_range(&self, range: Range<u32>) -> Vec<Value> {
        range.map(|block| self.live(block)).collect()
    }

    fn grow(&mut self, end: u32) {
        let (old, new) = (self.len(), u64::from(end) * BLOCK as u64);
        if new > old {
            self.size.push((old, new));
            // From here on it is this size while the power is on.
            self.size.push((new, new));
        }
    }

    /// New content for `range`, which is returned.
    fn write(&mut self, file: u32, range: Range<u32>) -> Vec<Value> {
        self.grow(range.end);
        self.versions += 1;
        let version = self.versions;
        range
            .map(|block| {
                let value = Value::Data(Stamp {
                    file,
                    block,
                    version,
                });
                self.blocks[block as usize].push(value);
                value
            })
            .collect()
    }

    /// `values` from `start` on.
    fn put(&mut self, start: u32, values: &[Value]) {
        self.grow(start + values.len() as u32);
        for (block, value) in (start..).zip(values) {
            self.blocks[block as usize].push(*value);
        }
    }

    fn zero(&mut self, range: Range<u32>) {
        for block in range {
            self.blocks[block as usize].push(Value::Zero);
        }
    }

    /// Another size; what is behind it is zero from then on.
    fn resize(&mut self, blocks: u32) {
        let new = u64::from(blocks) * BLOCK as u64;
        self.zero(blocks.min(self.most_blocks())..self.most_blocks());
        self.size.push((new, new));
    }

    /// Blocks from `range.end` on move to `range.start` (`collapse`), or those from `range.start` on
    /// make room. The kernel moves extent by extent in transactions of their own: what is on its way
    /// is a hole for a while.
    fn shift(&mut self, range: Range<u32>, collapse: bool) {
        let (len, count) = (self.len_blocks(), range.end - range.start);
        let old: Vec<Value> = (0..self.most_blocks()).map(|b| self.live(b)).collect();
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
            let value = value.filter(|_| block < new_len).unwrap_or(Value::Zero);
            if *history.live() != value {
                history.push(Value::Zero);
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

    /// Written data of `range` is durable. Zeroes made by a change of the mapping are not promised.
    fn blocks_durable(&mut self, range: Range<u32>, now_ms: u64, watched: bool) {
        for block in range {
            let is_data = |value: &Value| matches!(value, Value::Data(_));
            self.blocks[block as usize].data_durable(is_data, now_ms, watched);
        }
    }

    /// The same, and the size as far as it is needed to read it.
    fn data_durable(&mut self, range: Range<u32>, now_ms: u64, watched: bool) {
        self.blocks_durable(range.clone(), now_ms, watched);
        // A write promises no more of the size than it needs itself.
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
    /// A new, empty file, not known under any name yet.
    pub(crate) fn add_file(&mut self, inode: u64, most_blocks: u32) -> u32 {
        self.files.push(FileModel::new(inode, most_blocks));
        self.files.len() as u32 - 1
    }

    /// A file.
    pub(crate) fn file(&self, file: u32) -> &FileModel {
        &self.files[file as usize]
    }

    /// Time since the beginning, for what happens next.
    pub(crate) fn set_now(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
    }

    /// New content for a range of blocks, which is returned. It is written in place, unless the block
    /// is shared.
    pub(crate) fn write(&mut self, file: u32, range: Range<u32>) -> Vec<Value> {
        let old = self.file(file).live_range(range.clone());
        let new = self.files[file as usize].write(file, range);
        self.written_over(&old, &new);
        new
    }

    /// Given content from a block on, written like any other.
    pub(crate) fn put(&mut self, file: u32, start: u32, values: &[Value]) {
        let old = { self.file(file) }.live_range(start..start + values.len() as u32);
        self.share(file, start, values);
        self.written_over(&old, values);
    }

    /// Given content from a block on, in blocks that come with it.
    pub(crate) fn share(&mut self, file: u32, start: u32, values: &[Value]) {
        self.files[file as usize].put(start, values);
    }

    /// Blocks with `old` in them, wherever they were shared, now hold `new`.
    fn written_over(&mut self, old: &[Value], new: &[Value]) {
        let names = self.names.values();
        let named: BTreeSet<u32> = names.clone().filter_map(|name| *name.live()).collect();
        let may_be_back = names.flat_map(|name| name.allowed().flatten().copied());
        let may_be: BTreeSet<u32> = may_be_back.collect();
        let written: Vec<(Value, Value)> = { old.iter().copied().zip(new.iter().copied()) }
            .filter(|(old, new)| *old != Value::Zero && old != new)
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

    /// Zeroes.
    pub(crate) fn zero(&mut self, file: u32, range: Range<u32>) {
        self.files[file as usize].zero(range);
    }

    /// A size in blocks.
    pub(crate) fn resize(&mut self, file: u32, blocks: u32) {
        self.files[file as usize].resize(blocks);
    }

    /// A block that was found after a call that failed.
    pub(crate) fn found(&mut self, file: u32, block: u32, value: Value) {
        self.files[file as usize].blocks[block as usize].push(value);
    }

    /// A size that was found after a call that failed.
    pub(crate) fn found_size(&mut self, file: u32, bytes: u64) {
        self.files[file as usize].size.push((bytes, bytes));
    }

    /// Allocation that makes the file longer.
    pub(crate) fn grow(&mut self, file: u32, end: u32) {
        self.files[file as usize].grow(end);
    }

    /// Collapse or insert a range.
    pub(crate) fn shift(&mut self, file: u32, range: Range<u32>, collapse: bool) {
        self.files[file as usize].shift(range, collapse);
    }

    /// The attribute of the hammer now.
    pub(crate) fn attribute(&self, file: u32) -> u32 {
        *self.file(file).attribute.live()
    }

    /// The attribute of the hammer.
    pub(crate) fn set_attribute(&mut self, file: u32, value: u32) {
        self.files[file as usize].attribute.push(value);
    }

    /// `fsync` of the file, begun at `begun_ms`, has returned.
    pub(crate) fn fsynced(&mut self, file: u32, begun_ms: u64) {
        self.files[file as usize].durable(self.watched);
        self.commits_ms.push((begun_ms, self.now_ms));
    }

    /// `fdatasync` of the file has returned.
    pub(crate) fn data_synced(&mut self, file: u32) {
        let all = 0..self.file(file).most_blocks();
        self.range_synced(file, all);
    }

    /// A write with `O_DSYNC` has returned.
    pub(crate) fn range_synced(&mut self, file: u32, range: Range<u32>) {
        let (now_ms, watched) = (self.now_ms, self.watched);
        self.files[file as usize].data_durable(range, now_ms, watched);
    }

    /// A write with `O_DSYNC` has returned, on a file system that may forget the size.
    pub(crate) fn blocks_synced(&mut self, file: u32, range: Range<u32>) {
        let (now_ms, watched) = (self.now_ms, self.watched);
        self.files[file as usize].blocks_durable(range, now_ms, watched);
    }

    /// A write with `O_SYNC`, begun at `begun_ms`, has returned.
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

    /// `syncfs` or a freeze has returned, and no operation was under way while it ran.
    pub(crate) fn all_synced(&mut self, begun_ms: u64) {
        for file in &mut self.files {
            file.durable(self.watched);
        }
        for name in self.names.values_mut() {
            name.durable(self.watched);
        }
        self.commits_ms.push((begun_ms, self.now_ms));
    }

    /// The name will be that of this file, or of none.
    pub(crate) fn set_name(&mut self, name: &str, file: Option<u32>) {
        self.names
            .entry(name.to_owned())
            .or_insert_with(|| History::new(None))
            .push(file);
    }

    /// `fsync` of a directory has returned.
    pub(crate) fn directory_synced(&mut self, directory: &str, begun_ms: u64) {
        let within = |name: &str| name.split('/').next() == Some(directory);
        for (_, history) in self.names.iter_mut().filter(|(name, _)| within(name)) {
            history.durable(self.watched);
        }
        self.commits_ms.push((begun_ms, self.now_ms));
    }

    /// Whether it has no name any more.
    pub(crate) fn is_gone(&self, file: u32) -> bool {
        self.names.values().all(|name| *name.live() != Some(file))
    }

    /// Whose name it is now.
    pub(crate) fn named(&self, name: &str) -> Option<u32> {
        *self.names.get(name)?.live()
    }

    /// Every name that was ever used.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&str, &History<Option<u32>>)> {
        self.names
            .iter()
            .map(|(name, history)| (name.as_str(), history))
    }

    /// A mover is stopped, or killed.
    pub(crate) fn mover_halted(&mut self) -> usize {
        self.halts_ms.push((self.now_ms, u64::MAX));
        self.halts_ms.len() - 1
    }

    /// It goes on.
    pub(crate) fn mover_continues(&mut self, halt: usize) {
        self.halts_ms[halt].1 = self.now_ms;
    }

    /// A cut begins: whatever is allowed from now to [`Self::end_cut`] is allowed in it.
    pub(crate) fn begin_cut(&mut self) {
        self.watched = true;
    }

    /// The cut is made; the model that it is to be judged by comes back.
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
