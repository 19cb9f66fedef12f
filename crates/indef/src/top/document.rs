//! The list as a JSON document (docs/json.md).

use indef_core::plan::PathJson;
use indef_pipeline::{
    RateError,
    watch::{Lost, RangeRow, Snapshot},
};
use serde::Serialize;
use units::Nanos;

use crate::document::SCHEMA;

/// `top --json`.
#[derive(Debug, Serialize)]
pub(super) struct TopDocument {
    schema: u64,
    ranges: Vec<RangeEntry>,
    totals: TopTotals,
    /// Counts are rates per second of about the last ten seconds; else they are sums.
    live: bool,
}

#[derive(Debug, Serialize)]
struct RangeEntry {
    #[serde(flatten)]
    path: PathJson,
    start_bytes: u64,
    len_bytes: u64,
    reads: f64,
    relative_error: Option<f64>,
    dolf: u64,
    extra_fragments: u64,
    requests_per_read: Option<f64>,
    mean_ns: Option<f64>,
    lost_ns: Option<f64>,
    lost_estimated: bool,
    cost_bytes: u64,
    reason: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct TopTotals {
    ranges: u64,
    ranges_fragmented: u64,
    ranges_out_of_reach: u64,
    ranges_waiting: u64,
    reads: f64,
    relative_error: Option<f64>,
    bytes_read: f64,
    lost: u64,
    duration_ns: u64,
}

impl TopDocument {
    /// The document of a snapshot.
    pub(super) fn new(snapshot: &Snapshot) -> Self {
        Self {
            schema: SCHEMA,
            ranges: snapshot
                .rows
                .iter()
                .map(|row| RangeEntry::new(row, snapshot.error))
                .collect(),
            totals: TopTotals {
                ranges: snapshot.ranges,
                ranges_fragmented: snapshot.fragmented,
                ranges_out_of_reach: snapshot.out_of_reach,
                ranges_waiting: snapshot.waiting,
                reads: snapshot.reads,
                relative_error: relative(snapshot.error, snapshot.reads),
                bytes_read: snapshot.read,
                lost: snapshot.lost,
                duration_ns: Nanos::from(snapshot.elapsed).get(),
            },
            live: snapshot.live,
        }
    }
}

/// A rate of 0 has no relative error.
fn relative(error: Option<RateError>, rate: f64) -> Option<f64> {
    error
        .map(|error| error.relative(rate))
        .filter(|error| error.is_finite())
}

impl RangeEntry {
    fn new(row: &RangeRow, error: Option<RateError>) -> Self {
        Self {
            path: PathJson::from(&*row.path),
            start_bytes: row.key.range.start.get(),
            len_bytes: row.key.range.len.get(),
            reads: row.reads,
            relative_error: relative(error, row.reads),
            dolf: row.dolf,
            extra_fragments: row.extra,
            requests_per_read: row.requests_per_read,
            mean_ns: row.mean_ns,
            lost_ns: row.lost.ns(),
            lost_estimated: matches!(row.lost, Lost::Estimated(_)),
            cost_bytes: row.cost.get(),
            reason: row.skip.map(|reason| reason.as_str()),
        }
    }
}
