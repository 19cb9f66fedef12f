//! The files of a fileset: which are there, how long, and in whose hands.

use crate::Numbers;

use super::{Ageing, PREALLOC_PERCENT, Personality, size::file_bytes};

/// The number of a file in its set.
pub type FileId = usize;

/// One file.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// The size that it is written with.
    wanted: u64,
    /// Its length, if it is there.
    bytes: Option<u64>,
    /// The part of that size that is still to be written.
    promised: u64,
    /// A flow has it: no other one takes it.
    is_held: bool,
    /// How often it was created.
    generation: u32,
}

/// All files; by default none.
#[derive(Clone, Debug, Default)]
pub struct Fileset {
    entries: Vec<Entry>,
    /// Files that are there.
    there: usize,
    fill_bytes: u64,
    live_bytes: u64,
    /// Bytes that files in the making are still to get.
    promised_bytes: u64,
    written_bytes: u64,
    bytes_to_write: u64,
    /// Writes so far.
    pub appends: u64,
    /// Files created so far.
    pub created: u64,
    /// Files deleted so far.
    pub deleted: u64,
}

impl Fileset {
    /// The fileset, without files. fileserver has more entries than files, as with filebench's
    /// `prealloc=80`; all of varmail's can be there.
    #[must_use]
    pub fn new(ageing: Ageing) -> Self {
        let mut numbers = Numbers::stream(ageing.seed, u64::MAX);
        let count = match ageing.personality {
            Personality::Fileserver => (ageing.files * 100).div_ceil(PREALLOC_PERCENT),
            Personality::Varmail => ageing.files,
        };
        let mean = ageing.mean_bytes;
        let entry = |_| Entry {
            wanted: file_bytes(&mut numbers, mean),
            ..Entry::default()
        };
        Self {
            entries: (0..count).map(entry).collect(),
            there: 0,
            fill_bytes: ageing.fill_bytes(),
            live_bytes: 0,
            promised_bytes: 0,
            written_bytes: 0,
            bytes_to_write: ageing.bytes_to_write(),
            appends: 0,
            created: 0,
            deleted: 0,
        }
    }

    /// The flows begin: only what they write counts as ageing.
    pub(super) const fn begin_flows(&mut self) {
        self.written_bytes = 0;
    }

    /// The flows write so many bytes, in place of those that their ageing has.
    pub const fn go_on(&mut self, bytes: u64) {
        self.bytes_to_write = bytes;
    }

    /// The flows write so many bytes beyond those that they were to write, of which they may have written some already.
    pub const fn go_on_for(&mut self, bytes: u64) {
        self.bytes_to_write += bytes;
    }

    /// The bytes of all files.
    #[must_use]
    pub const fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// Whether the flows have written enough.
    #[must_use]
    pub const fn is_aged(&self) -> bool {
        self.written_bytes >= self.bytes_to_write
    }

    /// Whether `more` bytes, beside the files in the making, go beyond the fill.
    pub(super) const fn is_full(&self, more: u64) -> bool {
        let there = self.live_bytes + self.promised_bytes;
        there > 0 && there + more > self.fill_bytes
    }

    /// The files that are there, and their lengths.
    pub fn files(&self) -> impl Iterator<Item = (FileId, u64)> {
        let bytes = |(id, entry): (FileId, &Entry)| entry.bytes.map(|bytes| (id, bytes));
        self.entries.iter().enumerate().filter_map(bytes)
    }

    /// Take any file that is there (or is not), and hold it; `None` if there is none that is free.
    pub(super) fn take(&mut self, numbers: &mut Numbers, is_there: bool) -> Option<FileId> {
        let begin = numbers.below(self.entries.len());
        let such = match is_there {
            true => self.there,
            false => self.entries.len() - self.there,
        };
        if such == 0 {
            return None;
        }
        let from = (begin..self.entries.len()).chain(0..begin);
        let mut free = from.filter(|id| {
            let entry = &self.entries[*id];
            !entry.is_held && entry.bytes.is_some() == is_there
        });
        let id = free.next()?;
        self.entries[id].is_held = true;
        Some(id)
    }

    /// Let it go.
    pub(super) fn release(&mut self, id: FileId) {
        self.entries[id].is_held = false;
    }

    /// The size with which it is written.
    pub(super) fn wanted(&self, id: FileId) -> u64 {
        self.entries[id].wanted
    }

    /// Its length; 0 if it is not there.
    #[must_use]
    pub fn bytes(&self, id: FileId) -> u64 {
        self.entries[id].bytes.unwrap_or(0)
    }

    /// How often it was created.
    #[must_use]
    pub fn generation(&self, id: FileId) -> u32 {
        self.entries[id].generation
    }

    /// It is created, empty; `promised` bytes will follow at once.
    pub(super) fn create(&mut self, id: FileId, promised: u64) {
        let entry = &mut self.entries[id];
        self.there += usize::from(entry.bytes.replace(0).is_none());
        entry.promised = promised;
        self.promised_bytes += promised;
        entry.generation += 1;
        self.created += 1;
    }

    /// It grows.
    pub(super) fn append(&mut self, id: FileId, bytes: u64) {
        let entry = &mut self.entries[id];
        // A flow appends to a file that it has created or taken.
        entry.bytes = entry.bytes.map(|there| there + bytes);
        let kept = entry.promised.min(bytes);
        entry.promised -= kept;
        self.promised_bytes -= kept;
        self.live_bytes += bytes;
        self.written_bytes += bytes;
        self.appends += 1;
    }

    /// It is deleted.
    pub(super) fn delete(&mut self, id: FileId) {
        if let Some(bytes) = self.entries[id].bytes.take() {
            self.there -= 1;
            self.live_bytes -= bytes;
        }
        self.deleted += 1;
    }
}
