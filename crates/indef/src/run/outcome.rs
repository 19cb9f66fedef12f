//! The results of a run, in the form of the documents.

use indef_core::{
    SkipReason,
    plan::{FilePlan, PathJson},
};
use indef_engine::run::{FileResult, RunResult, Status, StopCause};
use serde::Serialize;
use units::Nanos;

use crate::{
    document::{FileMap, FileStatus, RunDocument, RunFile, RunTotals, SCHEMA},
    excluded::ExcludedJson,
    extent_map::file_map,
    refusal::line,
};

/// The entry of a file that the engine processed.
pub(crate) fn run_file(file: &FileResult) -> RunFile {
    RunFile {
        path: PathJson::from(file.path.as_path()),
        fs: file.fs.to_string(),
        engine: file.engine.map(str::to_owned),
        status: match file.status {
            Status::Moved => FileStatus::Moved,
            Status::Skipped => FileStatus::Skipped,
            Status::Failed => FileStatus::Failed,
        },
        reason: file.reason.as_ref().map(ToString::to_string),
        extents_before: file.extents_before,
        extents_after: file.extents_after,
        bytes_planned: file.bytes_planned.get(),
        bytes_relocated: file.bytes_relocated.get(),
        bytes_host_read: file.bytes_host_read.get(),
        bytes_host_written: file.bytes_host_written.get(),
        bytes_offloaded: file.bytes_offloaded.get(),
        bytes_reclaimed: file.bytes_reclaimed.get(),
        holders: file.holders,
        bytes_unshared: file.bytes_unshared.get(),
    }
}

/// The entry of a file that planning left alone already.
pub(super) fn untouched_file(plan: &FilePlan, reason: SkipReason) -> RunFile {
    RunFile {
        path: PathJson::from(plan.path.as_path()),
        fs: plan.fs.to_string(),
        engine: plan.engine.as_deref().map(str::to_owned),
        status: FileStatus::Skipped,
        reason: Some(reason.as_str().to_owned()),
        extents_before: plan.extents_before,
        extents_after: plan.extents_before,
        bytes_planned: 0,
        bytes_relocated: 0,
        bytes_host_read: 0,
        bytes_host_written: 0,
        bytes_offloaded: 0,
        bytes_reclaimed: 0,
        holders: 0,
        bytes_unshared: 0,
    }
}

impl From<&RunResult> for RunTotals {
    fn from(result: &RunResult) -> Self {
        let totals = &result.totals;
        Self {
            files_moved: totals.files_moved,
            files_skipped: totals.files_skipped,
            files_failed: totals.files_failed,
            files_unwritten: totals.files_unwritten,
            problems: 0,
            excluded: ExcludedJson::default(),
            bytes_relocated: totals.bytes_relocated.get(),
            bytes_host_read: totals.bytes_host_read.get(),
            bytes_host_written: totals.bytes_host_written.get(),
            bytes_offloaded: totals.bytes_offloaded.get(),
            bytes_reclaimed: totals.bytes_reclaimed.get(),
            free_growth_bytes: result.free_growth,
            duration_ns: Nanos::from(result.duration).get(),
            longest_lock_ns: result.longest_lock.get(),
            stalls_over_limit: result.stalls_over_limit,
            longest_uncommitted_ns: result.longest_uncommitted.get(),
        }
    }
}

/// The whole result in one document.
pub(crate) fn document(result: &RunResult, totals: RunTotals, dry_run: bool) -> RunDocument {
    RunDocument {
        schema: SCHEMA,
        made: None,
        files: result.files.iter().map(run_file).collect(),
        totals,
        dry_run,
        stopped: result.stopped.map(|cause| cause.as_str().to_owned()),
        error: None,
        maps: maps(result),
        proof: None,
        device: None,
    }
}

/// Maps of the files that moved.
fn maps(result: &RunResult) -> Vec<FileMap> {
    result.maps.iter().map(file_map).collect()
}

/// The fields after the files of a streamed document.
#[derive(Default, Serialize)]
pub(super) struct RunRest {
    totals: RunTotals,
    dry_run: bool,
    stopped: Option<&'static str>,
    error: Option<String>,
    maps: Vec<FileMap>,
}

impl RunRest {
    pub(super) fn new(result: &RunResult, totals: RunTotals, dry_run: bool) -> Self {
        Self {
            totals,
            dry_run,
            stopped: result.stopped.map(StopCause::as_str),
            error: None,
            maps: maps(result),
        }
    }

    /// Of a run that failed as a whole.
    pub(super) fn failed(error: &anyhow::Error, dry_run: bool) -> Self {
        Self {
            dry_run,
            error: Some(line(error)),
            ..Self::default()
        }
    }
}
