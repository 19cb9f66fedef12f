//! Stores the counts in the profile.
//!
//! Counts add up in a bounded table in memory and go to the store every half a minute, in one
//! transaction. If the disk is full or another process holds the store, they stay and are tried
//! again; at the very end they go into a file in the temporary directory, whose name is in the
//! error. Where nobody is there to read an error ([`Keep::is_patient`]), the store may also be opened later.

#[cfg(test)]
mod tests;

use std::{
    env,
    fs::File,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use foldhash::{HashMap, HashMapExt};
use indef_core::{
    access::{AccessRange, AccessRecord, Observed, Op},
    profile::{ProfileFile, ProfileWriter},
};
use indef_trace::{
    FileKey, Tally, TracedFile,
    collect::{Access, Drained, Layer, Sampled},
    store::{SessionId, SessionInfo, Store, StoreError, StoreOptions},
};
use units::FileRange;

use crate::error::{Error, Written};

/// The place and the form in which recorded accesses are kept.
#[derive(Clone, Debug)]
pub struct Keep {
    /// A profile store, created if it does not exist; with `raw`, a profile of lines.
    pub path: PathBuf,
    /// Keep every single access, in order of time.
    pub raw: bool,
    /// The command, for the store's list of sessions.
    pub command: String,
    /// Options of a new store; for an existing store, the given ones replace its own.
    pub store: StoreOptions,
    /// Trace also while the store cannot be opened for a reason that may pass, and open it later. Files with what it did not
    /// take in the end are few.
    pub is_patient: bool,
}

/// Number of ranges in memory at which they go to the store.
const MANY: usize = 25_000;
/// Maximum number of ranges in memory if they cannot go there; further ones are lost.
const TOO_MANY: usize = 1_000_000;
/// Files with what stores did not take that a patient trace leaves in the temporary directory at most: it is often memory.
const MANY_RESCUED: usize = 24;
/// The beginning of their names.
const RESCUED: &str = "indef-trace-";
/// The longest time for which they stay in memory.
const EVERY: Duration = Duration::from_secs(30);

/// Keeps the recorded accesses.
pub(super) enum Keeper {
    /// Nothing is to be kept.
    Nothing,
    /// In a store.
    Store(Box<ToStore>),
    /// As lines, one for each access.
    Lines(Box<ToLines>),
}

impl Keeper {
    /// Make sure that there is a place for the accesses to be recorded.
    pub(super) fn open(keep: Option<&Keep>, layer: Layer) -> Result<Self, Error> {
        let Some(keep) = keep else {
            return Ok(Self::Nothing);
        };
        if keep.raw {
            let lines = ToLines::create(&keep.path, layer)?;
            return Ok(Self::Lines(Box::new(lines)));
        }
        let store = ToStore::open(keep, layer)?;
        Ok(Self::Store(Box::new(store)))
    }

    /// Take drained counts. A problem that may pass is returned once.
    pub(super) fn add(&mut self, drained: Drained) -> Result<Option<StoreError>, Error> {
        match self {
            Self::Nothing => Ok(None),
            Self::Store(store) => Ok(store.add(drained)),
            Self::Lines(lines) => lines.add(drained).map(|()| None),
        }
    }

    /// Write the rest. Where that fails for a reason that may pass, it is tried again as long as `again` says so.
    pub(super) fn finish(self, lost: u64, again: &mut dyn FnMut() -> bool) -> Result<(), Error> {
        match self {
            Self::Nothing => Ok(()),
            Self::Store(store) => store.finish(lost, again),
            Self::Lines(lines) => lines.finish(),
        }
    }
}

/// Writes into a store.
pub(super) struct ToStore {
    keep: Keep,
    layer: Layer,
    began: SystemTime,
    /// `None` as long as it could not be opened.
    open: Option<(Store, SessionId)>,
    /// Files that are not yet in the store; not all, if it takes none for long.
    files: Vec<TracedFile>,
    /// The paths of files, for the case that the counts have to be kept elsewhere in the end; not
    /// of all, if there are very many.
    names: HashMap<FileKey, PathBuf>,
    counts: HashMap<(FileKey, FileRange), FileCounts>,
    written: Instant,
    told: bool,
    lost: u64,
    /// How exact the counts of the session are.
    sampled: Sampled,
}

#[derive(Clone, Copy, Default)]
struct FileCounts {
    reads: u64,
    writes: u64,
    observed: Observed,
}

impl ToStore {
    fn open(keep: &Keep, layer: Layer) -> Result<Self, Error> {
        let path = &keep.path;
        if path.exists() && !Store::is_store(path).unwrap_or(true) && !is_empty(path) {
            return Err(Error::NoStore { path: path.clone() });
        }
        let began = SystemTime::now();
        let open = match begin(keep, layer, began) {
            Ok(open) => Some(open),
            Err(error) if keep.is_patient && error.may_pass() => {
                tracing::debug!(%error, "the store is opened later");
                None
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Self {
            keep: keep.clone(),
            layer,
            began,
            open,
            files: Vec::new(),
            names: HashMap::new(),
            counts: HashMap::new(),
            written: Instant::now(),
            told: false,
            lost: 0,
            sampled: Sampled::default(),
        })
    }

    fn add(&mut self, drained: Drained) -> Option<StoreError> {
        self.sampled.add(drained.sampled);
        for file in drained.files {
            if let Some(path) = &file.path
                && self.names.len() < MANY
            {
                self.names.insert(file.key, path.clone());
            }
            // A file that was never given is kept under its key alone.
            if self.files.len() < TOO_MANY {
                self.files.push(file);
            }
        }
        for tally in &drained.tallies {
            let key = (tally.file, tally.range);
            if self.counts.len() >= TOO_MANY && !self.counts.contains_key(&key) {
                self.lost += tally.reads + tally.writes;
                continue;
            }
            let counts = self.counts.entry(key).or_default();
            counts.reads += tally.reads;
            counts.writes += tally.writes;
            counts.observed += tally.observed;
        }
        // While the store refuses, it is asked less often.
        let due = self.written.elapsed() >= EVERY || (self.counts.len() >= MANY && !self.told);
        if self.counts.is_empty() || !due {
            return None;
        }
        match self.flush(SystemTime::now()) {
            Ok(()) => {
                self.told = false;
                None
            }
            Err(error) if !self.told => {
                self.told = true;
                Some(error)
            }
            Err(_) => None,
        }
    }

    /// Give the store what is not yet in it, as of `now`.
    fn flush(&mut self, now: SystemTime) -> Result<(), StoreError> {
        self.written = Instant::now();
        let tallies: Vec<Tally> = self.tallies().collect();
        let (store, session) = opened(&mut self.open, &self.keep, self.layer, self.began)?;
        store.add(*session, &self.files, &tallies, now)?;
        self.files.clear();
        self.counts.clear();
        // A session that is killed later was sampled, too.
        match (self.sampled.variance, self.sampled.common) {
            (0, 0) => Ok(()),
            _ => store.set_sampling(*session, self.sampled.one_in(), self.sampled.common_error()),
        }
    }

    fn tallies(&self) -> impl Iterator<Item = Tally> {
        self.counts.iter().map(|((file, range), counts)| Tally {
            file: *file,
            range: *range,
            reads: counts.reads,
            writes: counts.writes,
            observed: counts.observed,
        })
    }

    fn finish(mut self, lost: u64, again: &mut dyn FnMut() -> bool) -> Result<(), Error> {
        // The session ends now, whenever the store takes it.
        let now = SystemTime::now();
        let error = loop {
            match self.flush_all(lost, now) {
                Ok(()) => return Ok(()),
                Err(error) if error.may_pass() && again() => {}
                Err(error) => break error,
            }
        };
        if self.counts.is_empty() {
            return Err(error.into());
        }
        Err(match self.rescue(&env::temp_dir()) {
            Ok(path) => Error::Rescued { path, why: error },
            Err(source) => Error::NotRescued { why: error, source },
        })
    }

    fn flush_all(&mut self, lost: u64, now: SystemTime) -> Result<(), StoreError> {
        self.flush(now)?;
        let (store, session) = opened(&mut self.open, &self.keep, self.layer, self.began)?;
        store.finish(*session, lost + self.lost, now)
    }

    /// Write the counts that the store does not take as lines into a folder for temporary files.
    fn rescue(&self, folder: &Path) -> io::Result<PathBuf> {
        if self.keep.is_patient && rescued(folder)? >= MANY_RESCUED {
            return Err(io::Error::other(format!(
                "{} holds {MANY_RESCUED} files {RESCUED}*.profile already",
                folder.display()
            )));
        }
        let mut file = tempfile::Builder::new()
            .prefix(RESCUED)
            .suffix(".profile")
            .tempfile_in(folder)?;
        let mut writer = ProfileWriter::new(BufWriter::new(file.as_file_mut()))?;
        let mut numbers = HashMap::new();
        for tally in self.tallies() {
            let number = match numbers.get(&tally.file) {
                Some(number) => *number,
                None => {
                    let number =
                        writer.file(&profile_file(&tally.file, self.names.get(&tally.file)))?;
                    numbers.insert(tally.file, number);
                    number
                }
            };
            let range = AccessRange {
                range: tally.range,
                reads: tally.reads,
                writes: tally.writes,
                observed: tally.observed,
            };
            writer.range(number, &range)?;
        }
        writer.finish()?;
        let (_, path) = file.keep().map_err(|error| error.error)?;
        Ok(path)
    }
}

/// Open the store of a trace that began then, and begin its session.
fn begin(keep: &Keep, layer: Layer, began: SystemTime) -> Result<(Store, SessionId), StoreError> {
    let mut store = Store::create(&keep.path, &keep.store)?;
    let info = SessionInfo {
        layer: layer.as_str().to_owned(),
        command: keep.command.clone(),
        kernel: rustix::system::uname()
            .release()
            .to_string_lossy()
            .into_owned(),
    };
    let session = store.begin(&info, began)?;
    Ok((store, session))
}

/// The store, opened now if it was not.
fn opened<'a>(
    open: &'a mut Option<(Store, SessionId)>,
    keep: &Keep,
    layer: Layer,
    began: SystemTime,
) -> Result<&'a mut (Store, SessionId), StoreError> {
    match open {
        Some(open) => Ok(open),
        None => Ok(open.insert(begin(keep, layer, began)?)),
    }
}

/// The files with what stores did not take.
fn rescued(folder: &Path) -> io::Result<usize> {
    let names = folder.read_dir()?.flatten().map(|entry| entry.file_name());
    Ok(names
        .filter(|name| name.as_encoded_bytes().starts_with(RESCUED.as_bytes()))
        .count())
}

/// Writes lines.
pub(super) struct ToLines {
    writer: ProfileWriter<BufWriter<File>>,
    numbers: HashMap<FileKey, u32>,
    path: PathBuf,
    /// Whether read-ahead has taken effect already.
    below_cache: bool,
}

impl ToLines {
    fn create(path: &Path, layer: Layer) -> Result<Self, Error> {
        if path.exists() && Store::is_store(path).unwrap_or(false) {
            return Err(Error::IsStore {
                path: path.to_owned(),
            });
        }
        let file = File::create(path).map_err(|source| Error::Open {
            path: path.to_owned(),
            source,
        })?;
        let writer = ProfileWriter::new(BufWriter::new(file)).map_err(|e| unwritten(path, e))?;
        let mut lines = Self {
            writer,
            numbers: HashMap::new(),
            path: path.to_owned(),
            below_cache: layer == Layer::Fs,
        };
        lines.flush()?;
        Ok(lines)
    }

    fn add(&mut self, drained: Drained) -> Result<(), Error> {
        let mut write = || -> io::Result<()> {
            for file in &drained.files {
                let number = self
                    .writer
                    .file(&profile_file(&file.key, file.path.as_ref()))?;
                self.numbers.insert(file.key, number);
            }
            for access in &drained.accesses {
                self.access(access)?;
            }
            Ok(())
        };
        write().map_err(|error| unwritten(&self.path, error))?;
        self.flush()
    }

    fn access(&mut self, access: &Access) -> io::Result<()> {
        let number = match self.numbers.get(&access.file) {
            Some(number) => *number,
            None => {
                let number = self.writer.file(&profile_file(&access.file, None))?;
                self.numbers.insert(access.file, number);
                number
            }
        };
        self.writer.record(&AccessRecord {
            file: number,
            offset: access.range.start,
            len: access.range.len,
            op: if access.write { Op::Write } else { Op::Read },
            direct: access.direct || self.below_cache,
            time: access.time,
        })
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.writer
            .flush()
            .map_err(|error| unwritten(&self.path, error))
    }

    fn finish(self) -> Result<(), Error> {
        let path = self.path;
        self.writer
            .finish()
            .and_then(|mut out| out.flush())
            .map_err(|error| unwritten(&path, error))
    }
}

fn unwritten(path: &Path, source: io::Error) -> Error {
    Error::Write {
        path: path.to_owned(),
        what: Written::Profile,
        source,
    }
}

fn profile_file(key: &FileKey, path: Option<&PathBuf>) -> ProfileFile {
    ProfileFile {
        // Identified by its numbers alone: the path is only for people.
        path: path
            .cloned()
            .unwrap_or_else(|| PathBuf::from(format!("(inode {})", key.inode))),
        dev: Some(key.dev),
        inode: Some(key.inode),
    }
}

fn is_empty(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.len() == 0)
}
