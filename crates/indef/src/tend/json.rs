//! The outcome of one round as a JSON document (docs/json.md).

use std::collections::BTreeMap;

use indef_core::plan::PathJson;
use indef_pipeline::{
    consider::Reading,
    tend::{PlaceStatus, Status},
};
use serde::Serialize;

use crate::document::SCHEMA;

#[derive(Serialize)]
pub(super) struct WatchDocument {
    schema: u64,
    file_systems: Vec<PlaceJson>,
    totals: TotalsJson,
    budget_left_day_bytes: Option<u64>,
    budget_left_year_bytes: Option<u64>,
    dry_run: bool,
    work_left: bool,
}

#[derive(Serialize)]
struct PlaceJson {
    #[serde(flatten)]
    path: PathJson,
    decision: Option<&'static str>,
    text: Option<String>,
    worth_moving_bytes: u64,
    saved_requests_per_day: f64,
    saved_ns_per_day: Option<u64>,
    held: Option<&'static str>,
    held_text: Option<String>,
    bytes_relocated: u64,
    bytes_written: u64,
    readings: Vec<ReadingJson>,
}

#[derive(Serialize)]
struct ReadingJson {
    quantity: &'static str,
    drive: Option<String>,
    value: Option<f64>,
    limit: Option<f64>,
    unknown: Option<String>,
}

#[derive(Serialize)]
struct TotalsJson {
    files_moved: u64,
    bytes_relocated: u64,
    bytes_written: u64,
    extents_removed: u64,
    longest_step_ns: u64,
    stalls_over_limit: u64,
    failures: u64,
    skipped: BTreeMap<&'static str, u64>,
}

impl WatchDocument {
    pub(super) fn new(status: &Status, work_left: bool, dry_run: bool) -> Self {
        let totals = &status.totals;
        let skipped = totals.skipped.iter();
        Self {
            schema: SCHEMA,
            file_systems: status.places.iter().map(PlaceJson::new).collect(),
            totals: TotalsJson {
                files_moved: totals.files_moved,
                bytes_relocated: totals.relocated.get(),
                bytes_written: totals.written.get(),
                extents_removed: totals.extents_removed,
                longest_step_ns: totals.longest_step.get(),
                stalls_over_limit: totals.stalls,
                failures: totals.failures,
                skipped: skipped
                    .map(|(reason, files)| (reason.as_str(), *files))
                    .collect(),
            },
            budget_left_day_bytes: status.left_day.map(|bytes| bytes.get()),
            budget_left_year_bytes: status.left_year.map(|bytes| bytes.get()),
            dry_run,
            work_left,
        }
    }
}

impl PlaceJson {
    fn new(place: &PlaceStatus) -> Self {
        let (decision, text) = place.decision.clone().unzip();
        let (held, held_text) = place.held.clone().unzip();
        Self {
            path: PathJson::from(place.path.as_path()),
            decision,
            text,
            worth_moving_bytes: place.wanted.get(),
            saved_requests_per_day: place.saved_requests,
            saved_ns_per_day: place.saved_s.map(|seconds| (seconds * 1e9) as u64),
            held,
            held_text,
            bytes_relocated: place.relocated.get(),
            bytes_written: place.written.get(),
            readings: place.readings.iter().map(ReadingJson::new).collect(),
        }
    }
}

impl ReadingJson {
    fn new(reading: &Reading) -> Self {
        Self {
            quantity: reading.quantity.as_str(),
            drive: reading.drive.clone(),
            value: reading.value.as_ref().ok().copied(),
            limit: Some(reading.limit).filter(|limit| limit.is_finite()),
            unknown: reading.value.as_ref().err().map(ToString::to_string),
        }
    }
}

#[cfg(test)]
mod tests {
    use indef_pipeline::consider::Quantity;
    use serde_json::Value;

    use super::*;
    use crate::documented::is_documented;

    /// All names of fields in a document.
    fn names(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    found.push(name.clone());
                    names(value, found);
                }
            }
            Value::Array(entries) => entries.iter().for_each(|entry| names(entry, found)),
            _ => {}
        }
    }

    #[test]
    fn every_field_is_documented() {
        let status = Status {
            places: vec![PlaceStatus {
                path: "/srv".into(),
                readings: vec![Reading {
                    quantity: Quantity::Battery,
                    drive: None,
                    value: Ok(0.0),
                    limit: f64::INFINITY,
                }],
                ..PlaceStatus::default()
            }],
            ..Status::default()
        };
        let document = serde_json::to_value(WatchDocument::new(&status, true, false)).unwrap();
        let mut found = Vec::new();
        names(&document, &mut found);
        for name in &found {
            assert!(is_documented("watch", name), "{name}");
        }
        assert_eq!(
            document["file_systems"][0]["readings"][0]["limit"],
            Value::Null
        );
    }
}
