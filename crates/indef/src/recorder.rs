//! Keeps a record of a run in the history (`indef history`).

use std::{
    collections::{BTreeMap, HashSet},
    env,
    path::{Path, PathBuf},
    time::Instant,
};

use indef_core::SkipReason;
use indef_engine::{
    history::{self, Begun, End, Outcome, WorkedOn},
    resume::state_directory,
    run::{FileResult, Reason, RunResult, Status},
};
use indef_pipeline::{
    compact::{CompactEnd, Compacted},
    place::{Place, places},
    tend::Totals,
};

use crate::{output::Console, refusal::line};

/// Keeps the record of one run. Nothing that it meets is an error of the run.
pub(crate) struct Recorder<'a> {
    console: &'a Console,
    began: Instant,
    /// None of a dry run, nor where there is no place for it.
    kept: Option<(PathBuf, Begun)>,
}

impl<'a> Recorder<'a> {
    /// Note that a run begins.
    pub(crate) fn begin(verb: &str, dry_run: bool, console: &'a Console) -> Self {
        let word = |word: std::ffi::OsString| word.to_string_lossy().into_owned();
        let began = Instant::now();
        if dry_run {
            return Self {
                console,
                began,
                kept: None,
            };
        }
        let begun = Begun::now(verb, env::args_os().map(word));
        let kept = match state_directory() {
            Ok(directory) => match history::begin(&directory, &begun) {
                Ok(()) => Some((directory, begun)),
                Err(error) => {
                    lacks(console, &error);
                    None
                }
            },
            Err(error) => {
                lacks(console, &error);
                None
            }
        };
        Self {
            console,
            began,
            kept,
        }
    }

    /// Note its result. `given` are the paths that it was about, for where it moved nothing.
    pub(crate) fn end(self, given: &[PathBuf], files: &[FileResult], outcome: Outcome) {
        let Some((directory, begun)) = self.kept else {
            return;
        };
        let outcome = Outcome {
            duration_ns: self.began.elapsed().into(),
            file_systems: worked_on(given, files),
            ..outcome
        };
        if let Err(error) = history::end(&directory, &begun, outcome) {
            lacks(self.console, &error);
        }
    }

    /// Note that it failed as a whole.
    pub(crate) fn failed(self, given: &[PathBuf], error: &anyhow::Error) {
        let outcome = Outcome {
            ended: End::Failed,
            why: Some(cut_short(error)),
            ..Outcome::default()
        };
        self.end(given, &[], outcome);
    }
}

fn cut_short(error: &anyhow::Error) -> String {
    line(error).chars().take(500).collect()
}

fn lacks(console: &Console, error: &dyn std::fmt::Display) {
    console.note(format_args!(
        "indef history will not tell of this run: {error}"
    ));
}

/// The file systems of the files, or of the paths where there are none.
fn worked_on(given: &[PathBuf], files: &[FileResult]) -> Vec<WorkedOn> {
    let mut devices = HashSet::new();
    let mut paths: Vec<PathBuf> = (files.iter())
        .filter(|file| devices.insert(file.id.dev))
        .map(|file| file.path.clone())
        .collect();
    if paths.is_empty() {
        paths = given.to_vec();
    }
    let text = |path: &Path| path.display().to_string();
    let one = |place: Place| WorkedOn {
        fs: place.kind.to_string(),
        uuid: place.uuid,
        mounted_at: place.mount.map(|mount| text(&mount.point)),
        device: place.drive.map(|drive| text(&drive.path)),
    };
    places(&paths).into_iter().map(one).collect()
}

/// The result of a run. `untouched` are the files that planning left alone.
pub(crate) fn of_run(result: &RunResult, untouched: &BTreeMap<SkipReason, u64>) -> Outcome {
    let totals = &result.totals;
    let mut skipped: BTreeMap<String, u64> = (untouched.iter())
        .map(|(reason, files)| (reason.as_str().to_owned(), *files))
        .collect();
    let (mut before, mut after) = (0, 0);
    for file in &result.files {
        match (file.status, &file.reason) {
            (Status::Moved, _) => {
                before += file.extents_before;
                after += file.extents_after;
            }
            (Status::Skipped, Some(Reason::Skip(reason))) => {
                *skipped.entry(reason.as_str().to_owned()).or_default() += 1;
            }
            _ => {}
        }
    }
    Outcome {
        ended: match result.stopped {
            Some(_) => End::Stopped,
            None => End::Done,
        },
        why: result.stopped.map(|cause| cause.as_str().to_owned()),
        files_moved: totals.files_moved,
        files_skipped: totals.files_skipped + untouched.values().sum::<u64>(),
        files_failed: totals.files_failed,
        skipped,
        extents_before: before,
        extents_after: after,
        bytes_relocated: totals.bytes_relocated,
        bytes_written: totals.bytes_written(),
        bytes_reclaimed: totals.bytes_reclaimed,
        longest_lock_ns: result.longest_lock,
        stalls_over_limit: result.stalls_over_limit,
        ..Outcome::default()
    }
}

/// The result of a round of `watch`. `left` says why some is left, if so.
pub(crate) fn of_round(done: &Totals, left: Option<&str>) -> Outcome {
    let skipped = done.skipped.iter();
    Outcome {
        ended: match left {
            Some(_) => End::Stopped,
            None => End::Done,
        },
        why: left.map(str::to_owned),
        files_moved: done.files_moved,
        files_skipped: done.skipped.values().sum(),
        files_failed: done.failures,
        skipped: skipped
            .map(|(reason, files)| (reason.as_str().to_owned(), *files))
            .collect(),
        extents_before: done.extents_removed + done.extents_left,
        extents_after: done.extents_left,
        bytes_relocated: done.relocated,
        bytes_written: done.written,
        longest_lock_ns: done.longest_step,
        stalls_over_limit: done.stalls,
        ..Outcome::default()
    }
}

/// The result of `compact`, and the error that ended it, if one did.
pub(crate) fn of_compact(done: &Compacted, failure: Option<&anyhow::Error>) -> Outcome {
    let (ended, why) = match done.end {
        CompactEnd::Stopped(cause) => (End::Stopped, Some(cause.as_str().to_owned())),
        CompactEnd::Budget | CompactEnd::Short => {
            (End::Stopped, Some(done.end.as_str().to_owned()))
        }
        CompactEnd::Failed => (End::Failed, failure.map(cut_short)),
        CompactEnd::Whole | CompactEnd::Reached | CompactEnd::DryRun | CompactEnd::NoRegion => {
            (End::Done, None)
        }
    };
    Outcome {
        ended,
        why,
        files_moved: done.files_moved,
        files_failed: done.files_failed,
        bytes_relocated: done.bytes_relocated,
        bytes_written: done.bytes_written,
        largest_before_bytes: Some(done.largest_before),
        largest_after_bytes: Some(done.largest_after),
        ..Outcome::default()
    }
}
