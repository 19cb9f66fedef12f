//! The source of counts: a collector, or a profile.

use std::{
    cmp::Reverse,
    collections::HashSet,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    slice,
    time::SystemTime,
};

use indef_core::{
    access::{AccessOptions, AccessRange, join_with},
    profile::Profile,
};
use indef_trace::{
    FileKey, FsId, Tally, TracedFile,
    collect::{Collector, Drained, Filter, Layer, Sampled, Sampling, TraceOptions, Windowed},
    store::Store,
};
use units::Bytes;

use super::ranges::MAX_RANGES;
use crate::{
    error::Error,
    heat::{ReadAheadOf, read_lines},
    note::{LeftOut, Note, Notes},
};

/// The most that watching may cost, in percent of one processor's time.
const COST: f64 = 1.0;

/// The counts since the last time.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Counts.
    pub tallies: Vec<Tally>,
    /// Files met for the first time.
    pub files: Vec<TracedFile>,
    /// Events lost.
    pub lost: u64,
    /// How exact these counts are.
    pub sampled: Sampled,
    /// The windows in which they were counted; `None`: all the time.
    pub windows: Option<Windowed>,
}

/// The source of counts: a collector, a profile, a test.
pub trait Feed: Send {
    /// The counts since the last time. Does not wait.
    ///
    /// # Errors
    ///
    /// No more counts will come.
    fn drain(&mut self) -> Result<Batch, Error>;

    /// Look after the source, some twenty times a second. Returns whether it should be drained now.
    fn keep_up(&mut self) -> bool {
        false
    }

    /// All remaining counts; no more will come.
    ///
    /// # Errors
    ///
    /// The counts are lost.
    fn finish(&mut self) -> Result<Batch, Error> {
        self.drain()
    }

    /// Whether counts come as they happen: they fade then, and are shown as rates.
    fn is_live(&self) -> bool;
}

impl From<Drained> for Batch {
    fn from(drained: Drained) -> Self {
        Self {
            tallies: drained.tallies,
            files: drained.files,
            lost: drained.lost,
            sampled: drained.sampled,
            windows: drained.windows,
        }
    }
}

/// Reads, as they reach the devices at present.
pub struct LiveFeed {
    /// Present until it is finished.
    collector: Option<Collector>,
}

impl LiveFeed {
    /// Watch reads of files below `paths`, or of all.
    ///
    /// # Errors
    ///
    /// Nothing can be collected.
    pub fn start(paths: &[PathBuf], notes: &dyn Notes) -> Result<Self, Error> {
        let options = TraceOptions {
            layer: Layer::Fs,
            writes: false,
            filter: Filter {
                paths: paths.to_vec(),
                ..Filter::default()
            },
            sampling: Sampling::at_most_percent(COST),
            ..TraceOptions::default()
        };
        let collector = Collector::start(&options)?;
        for source in collector.sources() {
            notes.note(Note::Source(source));
        }
        for layer in collector.hidden_layers() {
            notes.note(Note::HiddenLayer(layer));
        }
        Ok(Self {
            collector: Some(collector),
        })
    }
}

impl Feed for LiveFeed {
    fn drain(&mut self) -> Result<Batch, Error> {
        match &mut self.collector {
            Some(collector) => Ok(collector.drain()?.into()),
            None => Ok(Batch::default()),
        }
    }

    fn keep_up(&mut self) -> bool {
        self.collector.as_mut().is_some_and(Collector::keep_up)
    }

    fn finish(&mut self) -> Result<Batch, Error> {
        match self.collector.take() {
            Some(collector) => Ok(collector.finish()?.into()),
            None => Ok(Batch::default()),
        }
    }

    fn is_live(&self) -> bool {
        true
    }
}

/// A recorded profile: all of it comes at once.
#[derive(Debug)]
pub struct ProfileFeed {
    all: Batch,
}

impl ProfileFeed {
    /// Read it: a store, or a profile of lines. Files of the latter that are gone are noted and
    /// left out; those of a store are searched for when they are examined.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub fn load(path: &Path, readahead: Option<Bytes>, notes: &dyn Notes) -> Result<Self, Error> {
        if Store::is_store(path).unwrap_or(false) {
            return Ok(Self {
                all: of_store(&Store::open(path)?)?,
            });
        }
        Ok(Self {
            all: of_profile(read_lines(path)?, readahead, notes),
        })
    }
}

impl Feed for ProfileFeed {
    fn drain(&mut self) -> Result<Batch, Error> {
        Ok(std::mem::take(&mut self.all))
    }

    fn is_live(&self) -> bool {
        false
    }
}

/// The hottest ranges of a store: it may hold millions.
fn of_store(store: &Store) -> Result<Batch, Error> {
    let mut batch = Batch::default();
    let mut latest = None;
    store.visit(SystemTime::now(), |number, file, access| {
        if latest != Some(number) {
            latest = Some(number);
            batch.files.push(file.clone());
        }
        batch.tallies.push(tally(file.key, &access));
        if batch.tallies.len() >= 4 * MAX_RANGES {
            keep_hottest(&mut batch);
        }
    })?;
    keep_hottest(&mut batch);
    Ok(batch)
}

/// Keep as many ranges as are watched, and their files.
fn keep_hottest(batch: &mut Batch) {
    if batch.tallies.len() <= MAX_RANGES {
        return;
    }
    let heat = |tally: &Tally| Reverse(tally.observed.requests.max(tally.reads));
    batch
        .tallies
        .select_nth_unstable_by_key(MAX_RANGES - 1, heat);
    batch.tallies.truncate(MAX_RANGES);
    let used: HashSet<_> = batch.tallies.iter().map(|tally| tally.file).collect();
    // The last file may have ranges to come.
    let last = batch.files.last().map(|file| file.key);
    batch
        .files
        .retain(|file| used.contains(&file.key) || Some(file.key) == last);
}

fn tally(file: FileKey, access: &AccessRange) -> Tally {
    Tally {
        file,
        range: access.range,
        reads: access.reads,
        writes: access.writes,
        observed: access.observed,
    }
}

fn of_profile(profile: Profile, readahead: Option<Bytes>, notes: &dyn Notes) -> Batch {
    let mut batch = Batch::default();
    let mut keys = Vec::with_capacity(profile.files.len());
    for file in &profile.files {
        // A profile may name a file by a symbolic link; an engine follows none.
        let path = file
            .path
            .canonicalize()
            .unwrap_or_else(|_| file.path.clone());
        let now = || {
            let status = fs::metadata(&path).ok()?;
            Some((status.dev(), status.ino()))
        };
        let key = file
            .dev
            .zip(file.inode)
            .or_else(now)
            .map(|(dev, inode)| FileKey {
                dev,
                inode,
                generation: 0,
                subvolume: 0,
            });
        if key.is_none() {
            notes.note(Note::LeftOut {
                paths: slice::from_ref(&file.path),
                why: LeftOut::Gone,
            });
        }
        keys.push(key);
        batch.files.extend(key.map(|key| TracedFile {
            key,
            fs: FsId::default(),
            path: Some(path),
        }));
    }
    let files = &profile.files;
    let model = ReadAheadOf {
        given: readahead,
        files,
    }
    .model(|file| Some(file as u32));
    let options = AccessOptions::default();
    for (file, accesses) in join_with(profile.records, profile.ranges, &options, model).iter() {
        let Some(Some(key)) = keys.get(file as usize) else {
            continue;
        };
        let tallies = accesses.iter().map(|access| tally(*key, access));
        batch.tallies.extend(tallies);
    }
    batch
}
