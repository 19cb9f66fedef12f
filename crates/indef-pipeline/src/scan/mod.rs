//! The degree, the place and the cost of fragmentation.
//!
//! Files stream through: of a million of them only the worst are kept.

mod heat;
mod memory;
mod plain;
mod records;
mod remembered;
mod swept;
mod tally;
mod upkeep;
mod verdict;
mod whole;

use std::{
    path::{Path, PathBuf},
    sync::Mutex,
};

use indef_core::{
    SkipReason,
    access::READAHEAD,
    layout::{FreeSpace, Layout, Unreachable},
    plan::{Decision, FileFacts, PlanOptions, Policy, Weight, plan_file},
};
use indef_engine::{
    Cancel,
    collect::{CollectOptions, CollectSummary, FoundFile, Seen, Select, collect},
};
use indef_fs::{Filesystem, Refusal, free_space};
use units::Bytes;

use crate::{
    engines::Engines,
    error::Error,
    geometry::{Geometries, GeometryChoice, file_systems},
    heat::Accesses,
    note::{Note, Notes},
    sync::{into_inner, lock},
    weigh,
};
pub use heat::{FileHeat, Heat, HotRange, Hottest, Lost, ReadCost};
use remembered::Subvolume;
use swept::Swept;
pub use tally::{FileScan, Tally};
pub use upkeep::Upkeep;
pub use verdict::{Gain, Verdict};
use whole::WholeScan;

/// The paths to scan, and the options.
#[derive(Clone, Debug)]
pub struct Scanner {
    /// Files and directories.
    pub paths: Vec<PathBuf>,
    /// What to leave out of them.
    pub select: Select,
    /// A profile: puts heat beside fragmentation.
    pub profile: Option<PathBuf>,
    /// How far the kernel reads ahead of a sequential reader, for profiles of single accesses; `None`
    /// for what the device of each file says.
    pub readahead: Option<Bytes>,
    /// The internal geometry of the devices; `None` to ask them, without a note where they
    /// report nothing.
    pub geometry: Option<GeometryChoice>,
    /// The I/O size for which fragments are counted.
    pub io_size: Bytes,
    /// Number of the worst files and ranges to keep.
    pub top: usize,
    /// Number of files examined at the same time; 0 for a default for this machine.
    pub jobs: usize,
    /// Open and map each file, also where the file system's metadata tells of many at once; nothing is remembered.
    pub full: bool,
    /// `visit` gets each file. Otherwise those in one piece may be left out: a whole XFS needs no walk then, and on Btrfs
    /// what did not change since the last scan of a whole subvolume is remembered.
    pub each: bool,
}

/// The findings of a scan.
#[derive(Debug)]
pub struct Scanned {
    /// Sums, and the worst files.
    pub tally: Tally,
    /// The walk in numbers; whether it was cancelled.
    pub summary: CollectSummary,
    /// Files that an earlier scan has looked at, and this one has not.
    pub remembered: u64,
    /// The internal geometries of the devices.
    pub geometries: Geometries,
    /// The heat of the whole profile, if there is one.
    pub heat: Option<Heat>,
    /// Whether defragmenting is worth it.
    pub verdict: Verdict,
    /// Whether a file system of the paths gives its SSD die hints.
    pub gives_die_hints: bool,
    /// The free space of the file systems of the paths that can tell.
    pub free_spaces: Vec<FreeOn>,
}

/// The free space of a file system.
#[derive(Debug)]
pub struct FreeOn {
    /// The first of the paths that is on it.
    pub path: PathBuf,
    /// Its free space.
    pub space: FreeSpace,
}

impl Scanner {
    /// A scanner for everything below `paths`, in reads as long as Linux' read-ahead.
    pub fn new(paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        Self {
            paths: paths.into_iter().map(Into::into).collect(),
            select: Select::default(),
            profile: None,
            readahead: None,
            geometry: None,
            io_size: READAHEAD,
            top: 20,
            jobs: 0,
            full: false,
            each: true,
        }
    }

    /// Walk and examine. `visit` gets each file, from many threads.
    ///
    /// # Errors
    ///
    /// The profile cannot be read. Problems of single files are noted.
    pub fn scan(
        &self,
        cancel: &Cancel,
        notes: &dyn Notes,
        visit: &(dyn Fn(&FileScan) + Sync),
    ) -> Result<Scanned, Error> {
        let geometries = Geometries::new(self.geometry, &self.paths, notes);
        let heat = match &self.profile {
            Some(path) => {
                let accesses = Accesses::load(path, self.readahead, notes)?;
                let mut options = heat::plan_options(self.io_size, geometries.main());
                let calibration = weigh::calibration(
                    &options,
                    &geometries,
                    &accesses,
                    &self.paths,
                    self.jobs,
                    cancel,
                );
                match &calibration {
                    Ok(found) => options.weight = Weight::Measured(found.weights),
                    Err(why) => notes.note(Note::NoWeights { why, probed: false }),
                }
                Some(Heat::new(accesses, options, calibration))
            }
            None => None,
        };
        let tally = Mutex::new(Tally::new(self.top));
        let engines = Engines::default();
        let options = PlanOptions {
            policy: Policy::Sequential,
            io_size: self.io_size,
            geometry: geometries.main(),
            ..PlanOptions::default()
        };
        // Without a geometry nothing is told of where contiguous files lie.
        let places = heat.is_some() || geometries.any();
        let take = |file: FileScan| {
            notes.note(Note::File);
            visit(&file);
            lock(&tally).add(file);
        };
        let refuse = |path: &Path, refusal: &Refusal| notes.note(Note::Refused { path, refusal });
        let look_at = |seen: Seen| match seen {
            Seen::Problem(problem) => refuse(&problem.path, &problem.refusal),
            Seen::File(found) => {
                match look(&options, &geometries, heat.as_ref(), &engines, found) {
                    Ok(file) => take(file),
                    Err((path, refusal)) => {
                        notes.note(Note::File);
                        refuse(&path, &refusal);
                    }
                }
            }
        };
        let collect_options = CollectOptions {
            jobs: self.jobs,
            sync: false,
            places,
            blocks: self.full,
            held: true,
            select: self.select.clone(),
            open_all: self.full,
            ..CollectOptions::default()
        };
        notes.note(Note::Walk);
        let is_whole = !(self.each || self.full || places) && self.select.is_everything();
        let by_metadata = || {
            scan_whole(
                &self.paths,
                self.io_size,
                &collect_options,
                cancel,
                &look_at,
            )
        };
        let (summary, remembered) = match is_whole.then(by_metadata).flatten() {
            Some(found) => {
                lock(&tally).add_plain(&found.counts.plain, found.fs.kind);
                (found.summary, found.remembered)
            }
            None => (collect(&self.paths, &collect_options, cancel, &look_at), 0),
        };
        let tally = into_inner(tally);
        let systems = file_systems(&self.paths);
        let free_on = |(path, fs): &(&PathBuf, Filesystem)| {
            Some(FreeOn {
                path: path.to_path_buf(),
                space: free_space(fs)?,
            })
        };
        Ok(Scanned {
            verdict: Verdict::of(&tally, heat.as_ref(), summary.problems),
            gives_die_hints: systems.iter().any(|(_, fs)| fs.gives_die_hints()),
            free_spaces: systems.iter().filter_map(free_on).collect(),
            tally,
            summary,
            remembered,
            geometries,
            heat,
        })
    }
}

/// Scan what the paths lead to, for reads of this size, if that is all of a file system or subvolume that can tell;
/// `visit` gets each file that is not plain, from many threads. `None` where a walk has to do it, before any file was
/// visited.
fn scan_whole(
    paths: &[PathBuf],
    io_size: Bytes,
    options: &CollectOptions,
    cancel: &Cancel,
    visit: &(dyn Fn(Seen) + Sync),
) -> Option<WholeScan> {
    let [path] = paths else { return None };
    match Subvolume::open(path, options, cancel) {
        Some(subvolume) => subvolume.scan(io_size, &|found| visit(Seen::File(found))),
        None => Swept::open(paths, path, options, cancel)?.scan(io_size, visit),
    }
}

/// Examine one file.
fn look(
    options: &PlanOptions,
    geometries: &Geometries,
    heat: Option<&Heat>,
    engines: &Engines,
    found: FoundFile,
) -> Result<FileScan, (PathBuf, Refusal)> {
    let (layout, skip) = match found.result {
        Ok(layout) => (layout, None),
        Err(Refusal::Skip(reason)) => (Layout::default(), Some(reason)),
        Err(failed) => return Err((found.path, failed)),
    };
    let unreachable = (found.held.as_ref()).map(|held| Unreachable::of(&layout, held));
    let extents = layout.fragments();
    let dolf = layout.windowed_dolf(options.io_size);
    let dopf = layout.windowed_dopf(options.io_size, &geometries.of(found.fs.dev));
    // For a contiguous file it is known without a plan and without an engine that nothing is
    // worth moving.
    let skip = skip.or_else(|| match extents {
        0 | 1 => None,
        _ => engines.of(&found.fs).refused,
    });
    let (mut worth_moving, mut shared, mut saved_requests) = (Bytes::ZERO, Bytes::ZERO, 0);
    if extents > 1 && skip.is_none() {
        let facts = FileFacts {
            size: found.size,
            block_size: found.block_size,
            layout: &layout,
            accesses: None,
        };
        let mut options = geometries.options(options, found.fs.dev);
        if engines.of(&found.fs).sharing.is_some() {
            options.to_mut().keeps_sharing = true;
        }
        let chunks = plan_file(&options, &facts);
        for chunk in &chunks {
            match chunk.decision {
                Decision::Migrate => {
                    worth_moving += chunk.cost;
                    saved_requests += chunk.edges.excess;
                }
                Decision::Skip(SkipReason::Shared) => shared += chunk.cost,
                Decision::Skip(_) => {}
            }
        }
    }
    let heat = heat.map(|heat| {
        let sizes = (found.size, found.block_size);
        heat.of(&found.path, &found.id, sizes, &layout, geometries)
    });
    Ok(FileScan {
        path: found.path,
        fs: found.fs,
        size: found.size,
        allocated: found.allocated,
        extents,
        ideal: layout.ideal_fragments(),
        dolf,
        dopf,
        worth_moving,
        shared,
        unreachable,
        saved_requests,
        heat,
        skip,
    })
}
