//! A scan as a JSON document (docs/json.md).

use std::collections::BTreeMap;

use indef_core::{SkipReason, layout::FreeSpace, plan::PathJson};
use indef_engine::collect::CollectSummary;
use indef_pipeline::scan::{FileHeat, FileScan, Heat, HotRange, Lost, Scanned, Tally};
use serde::Serialize;
use units::{Bytes, Nanos};

use super::{inside::DeviceInside, verdict::VerdictJson};
use crate::excluded::ExcludedJson;

/// A file of the list.
#[derive(Serialize)]
pub(super) struct FileJson<'a> {
    #[serde(flatten)]
    path: PathJson,
    fs: String,
    size_bytes: Bytes,
    allocated_bytes: Bytes,
    extents: u64,
    ideal_extents: u64,
    dof: f64,
    dolf_mean: f64,
    dolf_max: u64,
    dopf_mean: Option<f64>,
    dopf_max: Option<f64>,
    worth_moving_bytes: Bytes,
    /// Null where it cannot be told.
    unreachable_bytes: Option<Bytes>,
    /// Of extents that others refer to, who may reach them.
    unreached_shared_bytes: Option<Bytes>,
    reflink_extra_ns: Option<Nanos>,
    delete_extra_ns: Option<Nanos>,
    skip: Option<&'a str>,
    #[serde(flatten)]
    heat: Option<FileHeatJson>,
}

/// The accesses of a profile to a file.
#[derive(Serialize)]
struct FileHeatJson {
    reads: u64,
    writes: u64,
    reads_pct: f64,
    observed_ns: Nanos,
    lost_requests: u64,
    lost_ns: Option<Nanos>,
}

impl From<&FileHeat> for FileHeatJson {
    fn from(heat: &FileHeat) -> Self {
        Self {
            reads: heat.reads,
            writes: heat.writes,
            reads_pct: heat.share_pct,
            observed_ns: heat.observed,
            lost_requests: heat.lost.requests,
            lost_ns: heat.lost.time,
        }
    }
}

/// The accesses of a profile to all files.
#[derive(Serialize)]
struct HeatJson {
    /// Reads in the whole profile.
    reads: u64,
    lost_requests: u64,
    lost_ns: Option<Nanos>,
    /// The reason for which no times are given.
    no_times: Option<String>,
    hottest: Vec<HotRangeJson>,
}

#[derive(Serialize)]
struct HotRangeJson {
    #[serde(flatten)]
    path: PathJson,
    start_bytes: u64,
    len_bytes: u64,
    reads: u64,
    dolf: u64,
    lost_requests: u64,
    lost_ns: Option<Nanos>,
}

impl HeatJson {
    fn new(heat: &Heat, lost: Lost, hottest: Vec<HotRange>) -> Self {
        let one = |range: HotRange| HotRangeJson {
            path: PathJson::from(&*range.path),
            start_bytes: range.range.start.get(),
            len_bytes: range.range.len.get(),
            reads: range.reads,
            dolf: range.dolf,
            lost_requests: range.lost.requests,
            lost_ns: range.lost.time,
        };
        Self {
            reads: heat.reads,
            lost_requests: lost.requests,
            lost_ns: lost.time,
            no_times: heat.calibration.as_ref().err().map(ToString::to_string),
            hottest: hottest.into_iter().map(one).collect(),
        }
    }
}

impl<'a> From<&'a FileScan> for FileJson<'a> {
    fn from(file: &'a FileScan) -> Self {
        Self {
            path: PathJson::from(file.path.as_path()),
            fs: file.fs.kind.to_string(),
            size_bytes: file.size,
            allocated_bytes: file.allocated,
            extents: file.extents,
            ideal_extents: file.ideal,
            dof: file.dof(),
            dolf_mean: file.dolf.mean(),
            dolf_max: file.dolf.max,
            dopf_mean: file.dopf.mean(),
            dopf_max: file.dopf.mean().map(|_| file.dopf.max),
            worth_moving_bytes: file.worth_moving,
            unreachable_bytes: file.unreachable.map(|held| held.alone),
            unreached_shared_bytes: file.unreachable.map(|held| held.shared),
            reflink_extra_ns: file.upkeep().reflink,
            delete_extra_ns: file.upkeep().delete,
            skip: file.skip.map(SkipReason::as_str),
            heat: file.heat.as_ref().map(FileHeatJson::from),
        }
    }
}

/// The sums of a scan, for JSON.
#[derive(Serialize)]
struct ScanTotals {
    files: u64,
    files_fragmented: u64,
    files_skipped: u64,
    directories: u64,
    hard_links: u64,
    problems: u64,
    #[serde(flatten)]
    excluded: ExcludedJson,
    extents: u64,
    ideal_extents: u64,
    size_bytes: Bytes,
    allocated_bytes: Bytes,
    worth_moving_bytes: Bytes,
    reflink_extra_ns: Option<Nanos>,
    delete_extra_ns: Option<Nanos>,
    dolf_mean: f64,
    dolf_max: u64,
    /// Null where no geometry is known.
    dopf_mean: Option<f64>,
    dopf_max: Option<f64>,
    /// Files by skip reason.
    skipped: BTreeMap<&'static str, u64>,
    histogram: Vec<Bucket>,
}

#[derive(Serialize)]
struct Bucket {
    extents_min: u64,
    extents_max: u64,
    files: u64,
}

impl ScanTotals {
    fn new(tally: &Tally, summary: &CollectSummary) -> Self {
        Self {
            files: tally.files(),
            files_fragmented: tally.fragmented,
            files_skipped: tally.skipped.values().sum(),
            directories: summary.directories,
            hard_links: summary.hard_links,
            problems: summary.problems,
            excluded: summary.excluded.into(),
            extents: tally.extents,
            ideal_extents: tally.ideal,
            size_bytes: tally.size,
            allocated_bytes: tally.allocated,
            worth_moving_bytes: tally.worth_moving,
            reflink_extra_ns: tally.upkeep.reflink,
            delete_extra_ns: tally.upkeep.delete,
            dolf_mean: tally.dolf.mean(),
            dolf_max: tally.dolf.max,
            dopf_mean: tally.dopf.mean(),
            dopf_max: tally.dopf.mean().map(|_| tally.dopf.max),
            skipped: tally
                .skipped
                .iter()
                .map(|(reason, n)| (reason.as_str(), *n))
                .collect(),
            histogram: tally
                .histogram()
                .into_iter()
                .map(|(extents_min, extents_max, files)| Bucket {
                    extents_min,
                    extents_max,
                    files,
                })
                .collect(),
        }
    }
}

/// Free space.
#[derive(Serialize)]
struct FreeSpaceJson {
    total_bytes: Bytes,
    largest_bytes: Bytes,
    runs: u64,
    histogram: Vec<FreeRunsJson>,
}

#[derive(Serialize)]
struct FreeRunsJson {
    len_min_bytes: Bytes,
    runs: u64,
    bytes: Bytes,
}

impl From<&FreeSpace> for FreeSpaceJson {
    fn from(free: &FreeSpace) -> Self {
        Self {
            total_bytes: free.total(),
            largest_bytes: free.largest(),
            runs: free.runs(),
            histogram: free
                .histogram()
                .map(|like| FreeRunsJson {
                    len_min_bytes: like.least,
                    runs: like.runs,
                    bytes: like.bytes,
                })
                .collect(),
        }
    }
}

/// The fields after the files.
#[derive(Serialize)]
pub(super) struct ScanRest {
    verdict: VerdictJson,
    totals: ScanTotals,
    /// Of all files; null where it cannot be told of any of them.
    unreachable_bytes: Option<Bytes>,
    unreached_shared_bytes: Option<Bytes>,
    /// The reason for which it cannot be told of all.
    unreachable_untold: Option<String>,
    /// Of all file systems; null where none can tell.
    free_space: Option<FreeSpaceJson>,
    io_size_bytes: Bytes,
    /// Files that an earlier scan has looked at, and this one has not.
    remembered_files: u64,
    geometries: Vec<DeviceInside>,
    heat: Option<HeatJson>,
    stopped: Option<&'static str>,
}

impl ScanRest {
    pub(super) fn new(scanned: Scanned, io_size: Bytes) -> Self {
        let verdict = VerdictJson::new(&scanned, io_size);
        let Scanned {
            tally,
            summary,
            remembered,
            geometries,
            heat,
            free_spaces,
            ..
        } = scanned;
        let free = free_spaces.into_iter().map(|on| on.space);
        let free = free.reduce(|mut all, next| {
            all.add_all(&next);
            all
        });
        let told = tally.files() > tally.untold || tally.untold == 0;
        Self {
            verdict,
            unreachable_bytes: told.then_some(tally.unreachable.alone),
            unreached_shared_bytes: told.then_some(tally.unreachable.shared),
            unreachable_untold: super::unreachable::untold(&tally),
            totals: ScanTotals::new(&tally, &summary),
            free_space: free.as_ref().map(FreeSpaceJson::from),
            io_size_bytes: io_size,
            remembered_files: remembered,
            geometries: super::inside::told(&geometries),
            heat: heat.map(|heat| HeatJson::new(&heat, tally.lost, tally.hottest.finish())),
            stopped: summary.cancelled.then_some("signal"),
        }
    }
}
