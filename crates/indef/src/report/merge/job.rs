//! One run of `run`, `compact` or `watch`, as a result or the history tells of it.

use super::told::{Kind, RunTold, Told};

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// Single files may have failed.
    Done,
    /// With work left.
    Stopped,
    /// As a whole.
    Failed,
}

/// The verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Run,
    Compact,
    Watch,
}

/// The unit of a predicted gain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Ns,
    Iodp,
    Bytes,
}

/// What one run did.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) verb: Verb,
    pub(super) ended: Ended,
    /// When; 0 if it is not known.
    pub(super) ended_ns: u64,
    pub(super) files_moved: u64,
    pub(super) files_failed: u64,
    /// Paths that could not be looked at.
    problems: u64,
    /// Requests that reading the moved files once takes fewer, as found before and after.
    pub(super) requests_saved: u64,
    pub(super) bytes_moved: u64,
    pub(super) bytes_written: u64,
    pub(super) stalls: u64,
    pub(super) predicted: Option<(Unit, f64)>,
}

/// As much of a record of the history as recognizes a result of the same run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) started_ns: u64,
    ended_ns: u64,
    bytes_moved: u64,
    files_moved: u64,
    verb: Verb,
}

impl Job {
    /// Of the result of a run that was no dry one, if it is one.
    pub(super) fn of_result(kind: Kind, told: &Told, ended_ns: u64) -> Option<Self> {
        if told.dry_run {
            return None;
        }
        let totals = &told.totals;
        let base = Self {
            verb: Verb::Run,
            ended: match (&told.error, &told.stopped) {
                (Some(_), _) => Ended::Failed,
                (None, Some(_)) => Ended::Stopped,
                (None, None) => Ended::Done,
            },
            ended_ns,
            files_moved: totals.files_moved.unwrap_or(0),
            files_failed: totals.files_failed,
            problems: totals.problems,
            requests_saved: told.files.as_ref().map_or(0, |files| files.extents_fewer),
            bytes_moved: totals.bytes_relocated,
            // As the history has it: what the kernel writes by itself it does not tell.
            bytes_written: totals
                .bytes_host_written
                .saturating_add(totals.bytes_offloaded)
                .max(totals.bytes_relocated),
            stalls: totals.stalls_over_limit,
            predicted: None,
        };
        match kind {
            Kind::Run => Some(base),
            Kind::Compact => Some(Self {
                verb: Verb::Compact,
                ended: match told.ended.as_deref() {
                    Some("failed") => Ended::Failed,
                    _ => base.ended,
                },
                files_moved: told.files_moved,
                files_failed: told.files_failed,
                // It makes free space whole; that files have fewer fragments is not its aim.
                requests_saved: 0,
                bytes_moved: told.bytes_relocated,
                bytes_written: told.bytes_written,
                ..base
            }),
            Kind::Watch => Some(Self {
                verb: Verb::Watch,
                ended: match told.work_left {
                    Some(true) => Ended::Stopped,
                    _ => base.ended,
                },
                files_failed: totals.failures,
                requests_saved: totals.extents_removed,
                bytes_written: totals.bytes_written,
                ..base
            }),
            Kind::Scan | Kind::Plan | Kind::History => None,
        }
    }

    /// Of a record of the history, if the run has ended.
    pub(super) fn of_record(run: &RunTold) -> Option<(Self, Record)> {
        let ended = match run.ended.as_deref()? {
            "done" => Ended::Done,
            "stopped" => Ended::Stopped,
            _ => Ended::Failed,
        };
        let verb = match run.verb.as_str() {
            "compact" => Verb::Compact,
            "watch" => Verb::Watch,
            _ => Verb::Run,
        };
        let unit = match run.predicted_gain_unit.as_deref() {
            Some("ns") => Some(Unit::Ns),
            Some("iodp") => Some(Unit::Iodp),
            Some("bytes") => Some(Unit::Bytes),
            _ => None,
        };
        let gain = run.predicted_gain.filter(|gain| gain.is_finite());
        let job = Self {
            verb,
            ended,
            ended_ns: run.started_ns.saturating_add(run.duration_ns.unwrap_or(0)),
            files_moved: run.files_moved.unwrap_or(0),
            files_failed: run.files_failed.unwrap_or(0),
            problems: run.problems.unwrap_or(0),
            requests_saved: match verb {
                Verb::Compact => 0,
                Verb::Run | Verb::Watch => run.requests_saved.unwrap_or(0),
            },
            bytes_moved: run.bytes_relocated.unwrap_or(0),
            bytes_written: run.bytes_written.unwrap_or(0),
            stalls: run.stalls_over_limit.unwrap_or(0),
            predicted: unit.zip(gain),
        };
        let record = Record {
            started_ns: run.started_ns,
            ended_ns: job.ended_ns,
            bytes_moved: job.bytes_moved,
            files_moved: job.files_moved,
            verb,
        };
        Some((job, record))
    }

    /// Whether it came to its end, and no file or path failed.
    pub(super) fn is_success(&self) -> bool {
        self.ended == Ended::Done && !self.has_failures()
    }

    /// Whether it failed, or a file or path of it did.
    pub(super) fn has_failed(&self) -> bool {
        self.ended == Ended::Failed || self.has_failures()
    }

    fn has_failures(&self) -> bool {
        self.files_failed > 0 || self.problems > 0
    }

    /// Whether the record is of this run. A result has the time at which it was written, at the run's begin or end.
    pub(super) fn is_in(&self, record: &Record) -> bool {
        let from = record.started_ns.saturating_sub(2 * SECOND);
        let to = record.ended_ns.saturating_add(60 * SECOND);
        self.verb == record.verb
            && (from..=to).contains(&self.ended_ns)
            && (self.bytes_moved, self.files_moved) == (record.bytes_moved, record.files_moved)
    }

    /// Forget what a history tells as well: that it ended well is left.
    pub(super) fn without_amounts(self) -> Self {
        Self {
            files_moved: 0,
            files_failed: 0,
            problems: 0,
            requests_saved: 0,
            bytes_moved: 0,
            bytes_written: 0,
            stalls: 0,
            ..self
        }
    }
}
