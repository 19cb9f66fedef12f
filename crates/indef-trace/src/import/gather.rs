//! From single accesses to the ranges of a store, in bounded memory.
//!
//! Accesses are collected in batches; each goes through the read-ahead model and is counted in a
//! table of ranges. When the table is full, it is added to the store, sorted, in a few transactions.
//! So a trace that accesses the same ranges again and again, as most do, is counted in memory and
//! written once; one that never does costs a write for every range.
//!
//! It takes at most 160 MiB, for a trace of any length: a batch of 32 MiB, the table, and its sorted
//! copy while it is written. The store itself (8 MiB) and the names of files come on top.

use std::{collections::HashMap, ops::ControlFlow, time::SystemTime};

use indef_core::{
    access::{AccessOptions, AccessRange, AccessRecord, Observed, Op, ReadAhead},
    profile::{ProfileFile, ProfileSink},
};
use units::{Bytes, FileRange};

use crate::{
    identify, readahead,
    store::{SessionId, Store, StoreError},
    tally::{FileKey, Tally, TracedFile},
};

/// Accesses in a batch, of 32 bytes each.
const BATCH: usize = 1 << 20;

/// Ranges in the table: as many as a hash table of 2²¹ places of 33 bytes takes without growing.
const TABLE: usize = (1 << 21) / 8 * 7;

/// Ranges in one transaction, which has to stay in memory as a whole.
const TRANSACTION: usize = 100_000;

/// File (its number here), first byte, length.
type Key = (u32, u64, u64);

/// Reads and writes.
type Counts = [u32; 2];

/// Adds the accesses of an importer to a store.
pub struct Gather<'a> {
    store: &'a mut Store,
    session: SessionId,
    now: SystemTime,
    /// The keys of the files, by their numbers in the trace.
    files: Vec<FileKey>,
    /// Not yet in the store.
    new_files: Vec<TracedFile>,
    batch: Vec<AccessRecord>,
    model: ReadAhead,
    /// Asks the devices of files for their read-ahead, unless it was given.
    devices: Option<readahead::ReadAhead>,
    table: HashMap<Key, Counts>,
    /// Ranges that were counted already.
    counted: Vec<Tally>,
    gathered: Gathered,
    error: Option<StoreError>,
}

/// The additions to the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gathered {
    /// Files of the trace.
    pub files: u64,
    /// Those of them that do not exist any more, or never did on this machine: they are kept by their
    /// path.
    pub absent: u64,
    /// Ranges written, including those that were added to an equal one.
    pub ranges: u64,
    /// How often the table was full.
    pub spills: u64,
}

impl<'a> Gather<'a> {
    /// Add to a session of a store, as of `now`. A `readahead` of zero means that the accesses are
    /// those of the device; without one, each file's device tells.
    pub fn new(
        store: &'a mut Store,
        session: SessionId,
        now: SystemTime,
        readahead: Option<Bytes>,
    ) -> Self {
        let usual = AccessOptions::default();
        let options = AccessOptions {
            readahead: readahead.unwrap_or(usual.readahead),
            ..usual
        };
        Self {
            store,
            session,
            now,
            files: Vec::new(),
            new_files: Vec::new(),
            batch: Vec::new(),
            model: ReadAhead::new(&options),
            devices: readahead.is_none().then(readahead::ReadAhead::default),
            table: HashMap::new(),
            counted: Vec::new(),
            gathered: Gathered::default(),
            error: None,
        }
    }

    /// Write the rest.
    ///
    /// # Errors
    ///
    /// The store failed, now or earlier; ranges that were written before are in it.
    pub fn finish(mut self) -> Result<Gathered, StoreError> {
        if self.error.is_none() {
            let done = self.count().and_then(|()| self.spill());
            self.error = done.and_then(|()| self.write_counted()).err();
        }
        match self.error {
            Some(error) => Err(error),
            None => Ok(self.gathered),
        }
    }

    /// Count the batch.
    fn count(&mut self) -> Result<(), StoreError> {
        self.model.apply(&mut self.batch);
        let batch = std::mem::take(&mut self.batch);
        for record in &batch {
            if self.table.len() == TABLE {
                self.spill()?;
            }
            let key = (record.file, record.offset.0, record.len.0);
            let [reads, writes] = self.table.entry(key).or_default();
            let count = match record.op {
                Op::Read => reads,
                Op::Write => writes,
            };
            *count = count.saturating_add(1);
        }
        self.batch = batch;
        self.batch.clear();
        Ok(())
    }

    /// Write the table.
    fn spill(&mut self) -> Result<(), StoreError> {
        if self.table.is_empty() {
            return Ok(());
        }
        self.gathered.spills += u64::from(self.table.len() == TABLE);
        let mut ranges: Vec<(Key, Counts)> = self.table.drain().collect();
        ranges.sort_unstable_by_key(|(key, _)| *key);
        for part in ranges.chunks(TRANSACTION) {
            let tally = |&((file, start, len), [reads, writes]): &(Key, Counts)| Tally {
                file: self.files[file as usize],
                range: FileRange::new(start, len),
                reads: reads.into(),
                writes: writes.into(),
                observed: Observed::default(),
            };
            let tallies: Vec<Tally> = part.iter().map(tally).collect();
            self.write(&tallies)?;
        }
        Ok(())
    }

    fn write_counted(&mut self) -> Result<(), StoreError> {
        let counted = std::mem::take(&mut self.counted);
        self.write(&counted)?;
        self.counted = counted;
        self.counted.clear();
        Ok(())
    }

    fn write(&mut self, tallies: &[Tally]) -> Result<(), StoreError> {
        self.store
            .add(self.session, &self.new_files, tallies, self.now)?;
        self.gathered.ranges += tallies.len() as u64;
        self.new_files.clear();
        Ok(())
    }

    /// Go on, unless the store fails.
    fn keep(&mut self, done: Result<(), StoreError>) -> ControlFlow<()> {
        match done {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.error = Some(error);
                ControlFlow::Break(())
            }
        }
    }
}

impl ProfileSink for Gather<'_> {
    fn file(&mut self, file: ProfileFile) -> ControlFlow<()> {
        let (traced, there) = identify::file(&file);
        self.gathered.files += 1;
        self.gathered.absent += u64::from(!there);
        if let Some(devices) = &mut self.devices
            && there
        {
            let window = devices.of_traced(&traced);
            self.model.set_window(self.files.len() as u32, window);
        }
        self.files.push(traced.key);
        self.new_files.push(traced);
        ControlFlow::Continue(())
    }

    fn record(&mut self, record: AccessRecord) -> ControlFlow<()> {
        if self.batch.capacity() == 0 {
            self.batch.reserve_exact(BATCH);
        }
        self.batch.push(record);
        if self.batch.len() < BATCH {
            return ControlFlow::Continue(());
        }
        let done = self.count();
        self.keep(done)
    }

    fn range(&mut self, file: u32, range: AccessRange) -> ControlFlow<()> {
        self.counted.push(Tally {
            file: self.files[file as usize],
            range: range.range,
            reads: range.reads,
            writes: range.writes,
            observed: range.observed,
        });
        if self.counted.len() < TRANSACTION {
            return ControlFlow::Continue(());
        }
        let done = self.write_counted();
        self.keep(done)
    }
}
