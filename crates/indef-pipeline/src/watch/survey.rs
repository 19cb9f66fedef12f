//! Finds the places of the hot ranges: each is mapped by itself, so that the effort grows with the
//! number of hot ranges and not with the size of the files.
//!
//! A range is judged by `indef-core`'s own planner, so a range is called fragmented here exactly if
//! a repair would move it; it is examined again at intervals, because files change.

use std::{
    collections::{HashMap, hash_map::Entry},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use indef_core::{
    SkipReason,
    access::AccessRange,
    layout::{Extent, Geometry, Layout},
    plan::{Chunk, Decision, FileFacts, PlanOptions, Policy, plan_file},
};
use indef_engine::{Cancel, run::RunOptions};
use indef_fs::{Mapper, TargetId};
use indef_trace::{
    FsId, TracedFile,
    resolve::{Located, Resolver},
};
use units::{Bytes, FileRange};

use super::ranges::{Finding, RangeKey, RangePlace, Ranges};
use crate::opened::Opened;

/// A range is examined again after this time.
const REFRESH: Duration = Duration::from_secs(20);
/// Maximum number of ranges that are examined between two snapshots.
const AT_A_TIME: usize = 8 << 10;
/// Maximum number of files that are open at a time.
const MAX_OPEN: usize = 64;
/// The details of a range are shown up to this many bytes.
const MAX_DETAILS: Bytes = Bytes::mib(64);

/// The present place of a file. A collector, or a store that one filled, identifies it by
/// everything by which the kernel identifies it; a profile that a person wrote, only by its name
/// and number.
fn locate(file: &TracedFile, resolver: &Resolver) -> Option<(PathBuf, TargetId)> {
    if file.fs == FsId::default() {
        let id = TargetId {
            dev: file.key.dev,
            inode: file.key.inode,
        };
        return Some((file.path.clone()?, id));
    }
    let Located { dev, inode, path } = resolver.find(file)?;
    Some((path?, TargetId { dev, inode }))
}

/// Options of the planner under which the gain of a range is the number of fragments removed from
/// one read.
pub(super) fn plan_options(run: &RunOptions) -> PlanOptions {
    PlanOptions {
        policy: Policy::Indef,
        alpha: 1.0,
        beta: 0.0,
        truncate_pct: 0.0,
        geometry: Geometry::Unknown,
        allow_unshare: run.allow_unshare,
        ..PlanOptions::default()
    }
}

/// The planner's chunks for ranges (ordered), each read once.
pub(super) fn decide(
    options: &PlanOptions,
    file: &Opened,
    layout: &Layout,
    ranges: &[FileRange],
) -> Vec<Chunk> {
    let accesses: Vec<_> = ranges
        .iter()
        .map(|range| AccessRange {
            range: *range,
            reads: 1,
            ..AccessRange::default()
        })
        .collect();
    let facts = FileFacts {
        size: file.size,
        block_size: file.block_size,
        layout,
        accesses: Some(&accesses),
    };
    plan_file(options, &facts)
}

/// Finds the places of ranges.
pub(super) struct Survey {
    options: PlanOptions,
    paths: Vec<PathBuf>,
    mapper: Mapper,
}

impl Survey {
    /// A survey of files below `paths`, with the limits of the repairs that may follow.
    pub(super) fn new(paths: Vec<PathBuf>, run: &RunOptions) -> Self {
        Self {
            options: plan_options(run),
            paths,
            mapper: Mapper::default(),
        }
    }

    /// Examine the ranges that are due, hottest first, for as long as the `limit` allows.
    pub(super) fn look(
        &mut self,
        ranges: &mut Ranges,
        now: Duration,
        limit: Option<Duration>,
        cancel: &Cancel,
    ) {
        let most = if limit.is_some() {
            AT_A_TIME
        } else {
            usize::MAX
        };
        let due = ranges.to_look_at(now.saturating_sub(REFRESH), most);
        if due.is_empty() {
            return;
        }
        // Not kept: it holds every mounted file system open, so that none could be unmounted.
        let resolver = Resolver::new();
        let mut open: HashMap<_, Option<Opened>> = HashMap::new();
        let begin = Instant::now();
        for key in due {
            if limit.is_some_and(|limit| begin.elapsed() > limit) || cancel.is_cancelled() {
                break;
            }
            if open.len() >= MAX_OPEN && !open.contains_key(&key.file) {
                open.clear();
            }
            let file = match open.entry(key.file) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    let file = ranges.file(&key.file);
                    entry.insert(file.and_then(|file| self.open(file, &resolver)))
                }
            };
            let place = file.as_ref().and_then(|file| self.place(file, key.range));
            ranges.found(&key, Finding { at: now, place });
        }
    }

    /// Open a file if it is requested.
    fn open(&self, file: &TracedFile, resolver: &Resolver) -> Option<Opened> {
        let (path, id) = locate(file, resolver)?;
        is_below(&path, &self.paths)
            .then(|| Opened::open(&path, id))
            .flatten()
    }

    fn place(&mut self, file: &Opened, range: FileRange) -> Option<RangePlace> {
        let layout = file.map(file.around(range), false, &mut self.mapper)?;
        let chunks = decide(&self.options, file, &layout, &[range]);
        let measured = layout.measure(range, &self.options.geometry, self.options.max_request);
        let moving = || chunks.iter().filter(|chunk| chunk.migrates());
        let skip = chunks.iter().find_map(|chunk| match chunk.decision {
            Decision::Skip(SkipReason::Contiguous) | Decision::Migrate => None,
            Decision::Skip(reason) => Some(reason),
        });
        Some(RangePlace {
            path: Arc::clone(&file.path),
            id: file.id,
            dolf: measured.dolf,
            fragments: chunks.iter().map(|chunk| chunk.dolf).sum(),
            extra: chunks.iter().map(|chunk| chunk.gain.round() as u64).sum(),
            cost: moving().map(|chunk| chunk.cost).sum(),
            skip: skip.filter(|_| moving().next().is_none()),
        })
    }

    /// The extents of a range, for display; of a long one, those at its beginning.
    pub(super) fn details(&mut self, ranges: &Ranges, key: &RangeKey) -> Option<Vec<Extent>> {
        let file = self.open(ranges.file(&key.file)?, &Resolver::new())?;
        let range = FileRange {
            start: key.range.start,
            len: key.range.len.min(MAX_DETAILS),
        };
        let layout = file.map(range, false, &mut self.mapper)?;
        Some(layout.extents().to_vec())
    }
}

/// Whether a file is requested.
fn is_below(path: &Path, paths: &[PathBuf]) -> bool {
    paths.is_empty() || paths.iter().any(|folder| path.starts_with(folder))
}
