//! The history as a JSON document (docs/json.md).

use std::collections::BTreeMap;

use indef_engine::history::{End, History, Outcome, Record, State, WorkedOn};
use serde::Serialize;
use units::{Bytes, Nanos};

use crate::document::SCHEMA;

#[derive(Serialize)]
pub(super) struct HistoryJson<'a> {
    schema: u64,
    runs: Vec<RunJson<'a>>,
    damaged_lines: u64,
}

/// A run. What is not known of one that goes on, or was killed, is null.
#[derive(Serialize)]
struct RunJson<'a> {
    started_at: String,
    started_ns: u64,
    /// `done`, `stopped` or `failed`; null while it goes on.
    ended: Option<&'static str>,
    why: Option<&'a str>,
    verb: &'a str,
    command: &'a [String],
    file_systems: Option<&'a [WorkedOn]>,
    duration_ns: Option<Nanos>,
    files_moved: Option<u64>,
    files_skipped: Option<u64>,
    files_failed: Option<u64>,
    problems: Option<u64>,
    skipped: Option<&'a BTreeMap<String, u64>>,
    extents_before: Option<u64>,
    extents_after: Option<u64>,
    requests_saved: Option<u64>,
    bytes_relocated: Option<Bytes>,
    bytes_written: Option<Bytes>,
    bytes_reclaimed: Option<Bytes>,
    predicted_gain: Option<f64>,
    predicted_gain_unit: Option<&'a str>,
    longest_lock_ns: Option<Nanos>,
    stalls_over_limit: Option<u64>,
    largest_before_bytes: Option<Bytes>,
    largest_after_bytes: Option<Bytes>,
}

/// The whole document.
pub(super) fn document(history: &History) -> HistoryJson<'_> {
    HistoryJson {
        schema: SCHEMA,
        runs: history.records.iter().map(RunJson::from).collect(),
        damaged_lines: history.damaged_lines,
    }
}

impl<'a> From<&'a Record> for RunJson<'a> {
    fn from(record: &'a Record) -> Self {
        let (ended, why) = match &record.state {
            State::Running => (None, None),
            State::Killed => (Some("failed"), Some("killed")),
            State::Ended(outcome) => (Some(word(outcome.ended)), outcome.why.as_deref()),
        };
        let known: Option<&'a Outcome> = match &record.state {
            State::Running | State::Killed => None,
            State::Ended(outcome) => Some(outcome),
        };
        let begun = &record.begun;
        Self {
            started_at: humantime::format_rfc3339_seconds(begun.started()).to_string(),
            started_ns: begun.started_ns,
            ended,
            why,
            verb: &begun.verb,
            command: &begun.command,
            file_systems: known.map(|of| &*of.file_systems),
            duration_ns: known.map(|of| of.duration_ns),
            files_moved: known.map(|of| of.files_moved),
            files_skipped: known.map(|of| of.files_skipped),
            files_failed: known.map(|of| of.files_failed),
            problems: known.map(|of| of.problems),
            skipped: known.map(|of| &of.skipped),
            extents_before: known.map(|of| of.extents_before),
            extents_after: known.map(|of| of.extents_after),
            requests_saved: known.map(Outcome::requests_saved),
            bytes_relocated: known.map(|of| of.bytes_relocated),
            bytes_written: known.map(|of| of.bytes_written),
            bytes_reclaimed: known.map(|of| of.bytes_reclaimed),
            predicted_gain: known.and_then(|of| of.predicted_gain),
            predicted_gain_unit: known.and_then(|of| of.predicted_gain_unit.as_deref()),
            longest_lock_ns: known.map(|of| of.longest_lock_ns),
            stalls_over_limit: known.map(|of| of.stalls_over_limit),
            largest_before_bytes: known.and_then(|of| of.largest_before_bytes),
            largest_after_bytes: known.and_then(|of| of.largest_after_bytes),
        }
    }
}

/// The word for an end.
pub(super) fn word(end: End) -> &'static str {
    match end {
        End::Done => "done",
        End::Stopped => "stopped",
        End::Failed => "failed",
    }
}
