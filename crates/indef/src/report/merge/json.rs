//! The table as a JSON document (docs/json.md).

use std::collections::BTreeMap;

use indef_core::plan::PathJson;
use serde::Serialize;

use super::{
    fleet::{Bad, Fleet, Sums, Who},
    host::{Host, Work},
    reasons::Reasons,
};
use crate::{document::SCHEMA, made::MadeOn};

#[derive(Serialize)]
pub(super) struct FleetJson<'a> {
    schema: u64,
    hosts: Vec<HostJson<'a>>,
    totals: TotalsJson,
    bad: Vec<BadJson<'a>>,
}

#[derive(Serialize)]
struct HostJson<'a> {
    /// Null where the documents do not tell.
    host: Option<&'a str>,
    /// The file that stands for such a host.
    source: Option<PathJson>,
    documents: u64,
    newest_ns: Option<u64>,
    version: &'a str,
    kernel: &'a str,
    machine: &'a str,
    verdict: Option<VerdictJson<'a>>,
    extents: Option<u64>,
    ideal_extents: Option<u64>,
    extents_first: Option<u64>,
    predicted_saved_requests_per_day: Option<f64>,
    predicted_saved_ns_per_day: Option<u64>,
    #[serde(flatten)]
    work: WorkJson,
    failed: bool,
    skipped: Option<&'a Reasons>,
    file_systems: &'a [MadeOn],
}

#[derive(Serialize)]
struct VerdictJson<'a> {
    time_ns: Option<u64>,
    kind: &'a str,
    text: &'a str,
    move_bytes: u64,
    moved_since: bool,
}

/// Sums over runs.
#[derive(Serialize)]
struct WorkJson {
    runs: u64,
    runs_stopped: u64,
    runs_failed: u64,
    files_moved: u64,
    files_failed: u64,
    bytes_relocated: u64,
    bytes_written: u64,
    requests_saved: u64,
    predicted_gain_ns: f64,
    predicted_gain_iodp: f64,
    predicted_gain_bytes: f64,
    stalls_over_limit: u64,
    last_success_ns: Option<u64>,
}

#[derive(Serialize)]
struct TotalsJson {
    hosts: u64,
    hosts_failed: u64,
    documents: u64,
    verdicts: BTreeMap<String, u64>,
    move_bytes: u64,
    extents: u64,
    ideal_extents: u64,
    extents_first: u64,
    #[serde(flatten)]
    work: WorkJson,
    skipped: Reasons,
    versions: BTreeMap<String, u64>,
}

#[derive(Serialize)]
struct BadJson<'a> {
    source: PathJson,
    error: &'a str,
}

impl<'a> FleetJson<'a> {
    pub(super) fn new(fleet: &'a Fleet) -> Self {
        let hosts = fleet.hosts().into_iter();
        Self {
            schema: SCHEMA,
            hosts: hosts.map(|(who, host)| HostJson::new(who, host)).collect(),
            totals: TotalsJson::from(fleet.sums()),
            bad: fleet.bad.iter().map(BadJson::from).collect(),
        }
    }
}

impl<'a> HostJson<'a> {
    fn new(who: &'a Who, host: &'a Host) -> Self {
        let known = |ns: u64| (ns > 0).then_some(ns);
        let fragments = host.fragments();
        let predicted = host.predicted;
        Self {
            host: match who {
                Who::Host(name) => Some(name),
                Who::Untold(_) => None,
            },
            source: match who {
                Who::Host(_) => None,
                Who::Untold(file) => Some(PathJson::from(file.as_path())),
            },
            documents: host.documents,
            newest_ns: known(host.newest.time_ns),
            version: &host.newest.version,
            kernel: &host.newest.kernel,
            machine: &host.newest.machine,
            verdict: host.verdict.as_ref().map(|verdict| VerdictJson {
                time_ns: known(verdict.time_ns),
                kind: &verdict.kind,
                text: &verdict.text,
                move_bytes: verdict.move_bytes,
                moved_since: host.moved_since(),
            }),
            extents: fragments.map(|fragments| fragments.extents),
            ideal_extents: fragments.map(|fragments| fragments.ideal_extents),
            extents_first: fragments.map(|fragments| fragments.extents_first),
            predicted_saved_requests_per_day: predicted.map(|of| of.saved_requests_per_day),
            predicted_saved_ns_per_day: predicted.and_then(|of| of.saved_ns_per_day),
            work: WorkJson::from(&host.work),
            failed: host.has_failed(),
            skipped: host.left_alone(),
            file_systems: &host.places,
        }
    }
}

impl From<&Work> for WorkJson {
    fn from(work: &Work) -> Self {
        Self {
            runs: work.runs,
            runs_stopped: work.runs_stopped,
            runs_failed: work.runs_failed,
            files_moved: work.files_moved,
            files_failed: work.files_failed,
            bytes_relocated: work.bytes_moved,
            bytes_written: work.bytes_written,
            requests_saved: work.requests_saved,
            predicted_gain_ns: work.predicted_ns,
            predicted_gain_iodp: work.predicted_iodp,
            predicted_gain_bytes: work.predicted_bytes,
            stalls_over_limit: work.stalls,
            last_success_ns: work.last_success_ns,
        }
    }
}

impl From<Sums> for TotalsJson {
    fn from(sums: Sums) -> Self {
        Self {
            hosts: sums.hosts,
            hosts_failed: sums.hosts_failed,
            documents: sums.documents,
            verdicts: sums.verdicts,
            move_bytes: sums.worth_bytes,
            extents: sums.extents,
            ideal_extents: sums.ideal_extents,
            extents_first: sums.extents_first,
            work: WorkJson::from(&sums.work),
            skipped: sums.left_alone,
            versions: sums.versions,
        }
    }
}

impl<'a> From<&'a Bad> for BadJson<'a> {
    fn from(bad: &'a Bad) -> Self {
        Self {
            source: PathJson::from(bad.source.as_path()),
            error: &bad.error,
        }
    }
}
