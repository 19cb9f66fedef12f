//! Where the counts come from.

use std::{
    cmp::Reverse,
    collections::HashSet,
    fs::{self, File},
    io::BufReader,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::SystemTime,
};

use anyhow::{Context, Result, anyhow};
use indef_core::{
    access::{AccessOptions, AccessRange, join},
    profile::Profile,
};
use indef_trace::{
    FileKey, FsId, Tally, TracedFile,
    collect::{Collector, Drained, Filter, Layer, TraceOptions},
    store::Store,
};
use units::Bytes;

use super::ranges::MAX_RANGES;
use crate::{
    output::{Console, Name},
    refusal::{advice, plain},
};

/// What came in since the last time.
#[derive(Clone, Debug, Default)]
pub(super) struct Batch {
    pub(super) tallies: Vec<Tally>,
    /// Files met for the first time.
    pub(super) files: Vec<TracedFile>,
    /// Events lost.
    pub(super) lost: u64,
}

/// Where the counts come from: a collector, a profile, a test.
pub(super) trait Feed: Send {
    /// What came in since the last time. Does not wait.
    ///
    /// # Errors
    ///
    /// Nothing more will come.
    fn drain(&mut self) -> Result<Batch>;

    /// All that is left; nothing will come any more.
    ///
    /// # Errors
    ///
    /// It is lost.
    fn finish(&mut self) -> Result<Batch> {
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
        }
    }
}

/// What reaches the devices now.
pub(super) struct LiveFeed {
    /// Until it is finished.
    collector: Option<Collector>,
}

impl LiveFeed {
    /// Watch reads of files below `paths`, or of all.
    pub(super) fn start(paths: &[PathBuf], console: &Console) -> Result<Self> {
        let options = TraceOptions {
            layer: Layer::Fs,
            writes: false,
            filter: Filter {
                paths: paths.to_vec(),
                ..Filter::default()
            },
            ..TraceOptions::default()
        };
        let collector = Collector::start(&options).context(
            "what is read now cannot be watched (a recorded profile can be shown: --profile)",
        )?;
        for source in collector.sources() {
            if let Some(why) = &source.why_not {
                console.detail(format_args!("not seen: {}: {why}", source.what));
            }
        }
        Ok(Self {
            collector: Some(collector),
        })
    }
}

impl Feed for LiveFeed {
    fn drain(&mut self) -> Result<Batch> {
        match &mut self.collector {
            Some(collector) => Ok(collector.drain()?.into()),
            None => Ok(Batch::default()),
        }
    }

    fn finish(&mut self) -> Result<Batch> {
        match self.collector.take() {
            Some(collector) => Ok(collector.finish()?.into()),
            None => Ok(Batch::default()),
        }
    }

    fn is_live(&self) -> bool {
        true
    }
}

/// A profile that was recorded before: all of it comes at once.
#[derive(Debug)]
pub(super) struct ProfileFeed {
    all: Batch,
}

impl ProfileFeed {
    /// Read it: a store, or a profile of lines. Files of the latter that are gone are noted and left
    /// out; those of a store are looked for when they are looked at.
    pub(super) fn load(path: &Path, readahead: Bytes, console: &Console) -> Result<Self> {
        if Store::is_store(path).unwrap_or(false) {
            return Ok(Self {
                all: of_store(&Store::open(path)?)?,
            });
        }
        let file = File::open(path)
            .map_err(|error| anyhow!("{}: {}: {}", Name(path), plain(&error), advice(&error)))?;
        let profile = Profile::read(BufReader::new(file))
            .map_err(|error| anyhow!("{}: {error}", Name(path)))?;
        Ok(Self {
            all: of_profile(profile, readahead, console),
        })
    }
}

impl Feed for ProfileFeed {
    fn drain(&mut self) -> Result<Batch> {
        Ok(std::mem::take(&mut self.all))
    }

    fn is_live(&self) -> bool {
        false
    }
}

/// The hottest ranges of a store: it may hold millions.
fn of_store(store: &Store) -> Result<Batch> {
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

/// As many ranges as are watched, and their files.
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

fn of_profile(profile: Profile, readahead: Bytes, console: &Console) -> Batch {
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
            console.note(format_args!(
                "{}: in the profile, but no longer there; its accesses are left out",
                Name(&file.path)
            ));
        }
        keys.push(key);
        batch.files.extend(key.map(|key| TracedFile {
            key,
            fs: FsId::default(),
            path: Some(path),
        }));
    }
    let options = AccessOptions {
        readahead,
        ..AccessOptions::default()
    };
    for (file, accesses) in join(profile.records, profile.ranges, &options).iter() {
        let Some(Some(key)) = keys.get(file as usize) else {
            continue;
        };
        let tallies = accesses.iter().map(|access| tally(*key, access));
        batch.tallies.extend(tallies);
    }
    batch
}
