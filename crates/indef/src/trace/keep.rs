//! What was learned, on its way into the profile.
//!
//! Counts add up in a bounded table in memory and go to the store every half a minute, in one
//! transaction. If the disk is full or somebody holds the store, they stay and are tried again; at
//! the very end they go into a file in the temporary directory, whose name is said.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context, Result, anyhow, bail};
use indef_core::{
    access::{AccessRange, AccessRecord, Observed, Op},
    profile::{ProfileFile, ProfileWriter},
};
use indef_trace::{
    FileKey, Tally, TracedFile,
    collect::{Access, Drained, Layer},
    store::{SessionId, SessionInfo, Store, StoreError, StoreOptions},
};
use units::FileRange;

use crate::{
    args::TraceArgs,
    output::Name,
    refusal::{advice, plain},
};

/// Ranges in memory before they go to the store.
const MANY: usize = 25_000;
/// Ranges in memory if they cannot go there; further ones are lost.
const TOO_MANY: usize = 1_000_000;
/// How long they stay in memory.
const EVERY: Duration = Duration::from_secs(30);

/// Keeps what was learned.
pub(super) enum Keeper {
    /// Nothing is to be kept.
    Nothing,
    /// In a store.
    Store(Box<ToStore>),
    /// As lines, one for each access.
    Lines(Box<ToLines>),
}

impl Keeper {
    /// Make sure that there is a place for what will be learned.
    pub(super) fn open(args: &TraceArgs) -> Result<Self> {
        let Some(path) = &args.output else {
            return Ok(Self::Nothing);
        };
        if args.raw {
            return ToLines::create(path, args).map(|lines| Self::Lines(Box::new(lines)));
        }
        ToStore::open(path, args).map(|store| Self::Store(Box::new(store)))
    }

    /// Take what was drained. A problem that may pass is told once.
    pub(super) fn add(&mut self, drained: Drained) -> Result<Option<String>> {
        match self {
            Self::Nothing => Ok(None),
            Self::Store(store) => Ok(store.add(drained)),
            Self::Lines(lines) => lines.add(drained).map(|()| None),
        }
    }

    /// Write what is left.
    pub(super) fn finish(self, lost: u64) -> Result<()> {
        match self {
            Self::Nothing => Ok(()),
            Self::Store(store) => store.finish(lost),
            Self::Lines(lines) => lines.finish(),
        }
    }
}

/// Into a store.
pub(super) struct ToStore {
    store: Store,
    session: SessionId,
    /// Not yet in the store.
    files: Vec<TracedFile>,
    /// Where files are, should what was learned have to be kept elsewhere in the end; not of all, if
    /// there are very many.
    names: HashMap<FileKey, PathBuf>,
    counts: HashMap<(FileKey, FileRange), Counts>,
    written: Instant,
    told: bool,
    lost: u64,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    reads: u64,
    writes: u64,
    observed: Observed,
}

impl ToStore {
    fn open(path: &Path, args: &TraceArgs) -> Result<Self> {
        if path.exists() && !Store::is_store(path).unwrap_or(true) && !is_empty(path) {
            bail!(
                "{}: there is something else than a profile store; name another file, or import it \
                 (indef profile import)",
                Name(path)
            );
        }
        let options = StoreOptions {
            half_life: args.keep.half_life,
            max_size: args.keep.max_size,
        };
        let mut store = Store::create(path, &options)?;
        let words: Vec<_> = args.command.iter().map(|w| w.to_string_lossy()).collect();
        let info = SessionInfo {
            layer: args.options().layer.word().to_owned(),
            command: words.join(" "),
            kernel: rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned(),
        };
        let session = store.begin(&info, SystemTime::now())?;
        Ok(Self {
            store,
            session,
            files: Vec::new(),
            names: HashMap::new(),
            counts: HashMap::new(),
            written: Instant::now(),
            told: false,
            lost: 0,
        })
    }

    fn add(&mut self, drained: Drained) -> Option<String> {
        for file in drained.files {
            if let Some(path) = &file.path
                && self.names.len() < MANY
            {
                self.names.insert(file.key, path.clone());
            }
            self.files.push(file);
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
        match self.flush() {
            Ok(()) => {
                self.told = false;
                None
            }
            Err(error) if !self.told => {
                self.told = true;
                Some(format!(
                    "{error}; what was learned is kept in memory and tried again"
                ))
            }
            Err(_) => None,
        }
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        self.written = Instant::now();
        let tallies: Vec<Tally> = self.tallies().collect();
        self.store
            .add(self.session, &self.files, &tallies, SystemTime::now())?;
        self.files.clear();
        self.counts.clear();
        Ok(())
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

    fn finish(mut self, lost: u64) -> Result<()> {
        let lost = lost + self.lost;
        let flushed = self
            .flush()
            .and_then(|()| self.store.finish(self.session, lost, SystemTime::now()));
        let Err(error) = flushed else {
            return Ok(());
        };
        if self.counts.is_empty() {
            return Err(error.into());
        }
        match self.rescue() {
            Ok(path) => bail!(
                "{error}. What was not yet in it is kept in {0}; add it with: indef profile import PROFILE {0}",
                Name(&path)
            ),
            Err(second) => bail!("{error}. It could not be kept elsewhere either: {second:#}"),
        }
    }

    /// What the store does not take, as lines in the temporary directory.
    fn rescue(&self) -> Result<PathBuf> {
        let mut file = tempfile::Builder::new()
            .prefix("indef-trace-")
            .suffix(".profile")
            .tempfile()?;
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
        let (_, path) = file.keep()?;
        Ok(path)
    }
}

/// Into lines.
pub(super) struct ToLines {
    writer: ProfileWriter<BufWriter<File>>,
    numbers: HashMap<FileKey, u32>,
    path: PathBuf,
    /// Whether read-ahead has been at work already.
    below_cache: bool,
}

impl ToLines {
    fn create(path: &Path, args: &TraceArgs) -> Result<Self> {
        if path.exists() && Store::is_store(path).unwrap_or(false) {
            bail!(
                "{}: there is a profile store; --raw writes lines, so name another file",
                Name(path)
            );
        }
        let file = File::create(path)
            .map_err(|error| anyhow!("{}: {}: {}", Name(path), plain(&error), advice(&error)))?;
        let mut lines = Self {
            writer: ProfileWriter::new(BufWriter::new(file))?,
            numbers: HashMap::new(),
            path: path.to_owned(),
            below_cache: args.options().layer == Layer::Fs,
        };
        lines.flush()?;
        Ok(lines)
    }

    fn add(&mut self, drained: Drained) -> Result<()> {
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
        write().with_context(|| format!("{}: cannot write the profile", Name(&self.path)))?;
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

    fn flush(&mut self) -> Result<()> {
        self.writer
            .flush()
            .with_context(|| format!("{}: cannot write the profile", Name(&self.path)))
    }

    fn finish(self) -> Result<()> {
        let path = self.path;
        self.writer
            .finish()
            .and_then(|mut out| out.flush())
            .with_context(|| format!("{}: cannot write the profile", Name(&path)))
    }
}

fn profile_file(key: &FileKey, path: Option<&PathBuf>) -> ProfileFile {
    ProfileFile {
        // Known by its numbers alone: the path is only for people.
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
