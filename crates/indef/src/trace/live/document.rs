//! The results of a trace for the JSON document (docs/json.md).

use indef_core::plan::PathJson;
use indef_pipeline::learn::{AccessCounts, HotFile, Live};
use serde::Serialize;
use units::Nanos;

use crate::document::SCHEMA;

/// The part of `trace --json` with the observed accesses. The command adds how they were
/// observed.
#[derive(Debug, Serialize)]
pub(crate) struct TraceDocument {
    schema: u64,
    files: Vec<FileEntry>,
    totals: TraceTotals,
}

#[derive(Debug, Serialize)]
struct FileEntry {
    #[serde(flatten)]
    path: Option<PathJson>,
    dev: u64,
    inode: u64,
    generation: u32,
    subvolume: u64,
    #[serde(flatten)]
    counts: CountsEntry,
}

#[derive(Debug, Serialize)]
struct TraceTotals {
    #[serde(flatten)]
    counts: CountsEntry,
    files: u64,
    ranges: u64,
    /// Whether `files` or `ranges` stopped counting.
    more: bool,
    lost: u64,
    /// One in so many accesses was counted; 1 if each was.
    one_in: f64,
    /// Relative standard error of reads and writes together.
    relative_error: f64,
    /// Calls that were made and are not in the counts.
    untold: u64,
    /// Of the BPF programs; null where the cost has no bound.
    programs_ns: Option<u64>,
    collector_ns: u64,
    /// Both, in percent of one processor's time.
    overhead_percent: Option<f64>,
    max_overhead_percent: Option<f64>,
    overhead_held: Option<bool>,
    duration_ns: u64,
}

#[derive(Debug, Serialize)]
struct CountsEntry {
    reads: u64,
    writes: u64,
    bytes_read: u64,
    bytes_written: u64,
    requests: u64,
    timed: u64,
    time_ns: u64,
}

impl TraceDocument {
    /// The document, with the `top` hottest files; `bound` is that of `--max-overhead`.
    pub(crate) fn new(live: &Live, top: usize, bound: Option<f64>) -> Self {
        let spent = live.spent();
        let overhead = spent.percent(live.elapsed());
        let (files, ranges) = (live.files_seen(), live.ranges_seen());
        Self {
            schema: SCHEMA,
            files: live
                .hottest_of_all(top)
                .iter()
                .map(FileEntry::from)
                .collect(),
            totals: TraceTotals {
                counts: live.total().into(),
                files: files.count(),
                ranges: ranges.count(),
                more: files.is_full() || ranges.is_full(),
                lost: live.lost(),
                one_in: live.sampled().one_in(),
                relative_error: live.sampled().relative_error(live.sampled().counted),
                untold: live.untold(),
                programs_ns: spent.programs.map(|time| Nanos::from(time).get()),
                collector_ns: Nanos::from(spent.collector).get(),
                overhead_percent: overhead,
                max_overhead_percent: bound,
                overhead_held: overhead.zip(bound).map(|(is, most)| is <= most),
                duration_ns: Nanos::from(live.elapsed()).get(),
            },
        }
    }
}

impl From<&HotFile<'_>> for FileEntry {
    fn from(file: &HotFile<'_>) -> Self {
        Self {
            path: file.path.map(PathJson::from),
            dev: file.key.dev,
            inode: file.key.inode,
            generation: file.key.generation,
            subvolume: file.key.subvolume,
            counts: (&file.total).into(),
        }
    }
}

impl From<&AccessCounts> for CountsEntry {
    fn from(counts: &AccessCounts) -> Self {
        Self {
            reads: counts.reads,
            writes: counts.writes,
            bytes_read: counts.read.get(),
            bytes_written: counts.written.get(),
            requests: counts.observed.requests,
            timed: counts.observed.timed,
            time_ns: counts.observed.time.get(),
        }
    }
}
