//! The words of the table, which text and page share.

use std::{
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use units::{Bytes, Nanos};

use super::{
    fleet::{Sums, Who},
    host::{Host, NO_ENGINE, NOTHING, WORTH_MOVING, Work},
    reasons::Reasons,
};
use crate::output::{Count, Name, Ratio, counted};

/// Reasons in a cell.
const REASONS: usize = 3;

/// The cells of a host.
pub(super) struct Row {
    pub(super) host: String,
    pub(super) verdict: String,
    /// Before and after, by the oldest and the newest scans.
    pub(super) extents: String,
    pub(super) moved: String,
    pub(super) saved: String,
    pub(super) predicted: String,
    pub(super) left_alone: String,
    pub(super) last_success: String,
    /// For its colour: `good`, `warn`, `bad` or nothing.
    pub(super) tone: &'static str,
}

impl Row {
    pub(super) fn new(who: &Who, host: &Host) -> Self {
        let work = &host.work;
        Self {
            host: who.shown(),
            verdict: verdict(host),
            extents: extents(host),
            moved: match work.runs {
                0 => String::new(),
                _ => Bytes(work.bytes_moved).to_string(),
            },
            saved: match work.runs {
                0 => String::new(),
                _ => Count(work.requests_saved).to_string(),
            },
            predicted: predicted(host),
            left_alone: host.left_alone().map(left_alone).unwrap_or_default(),
            last_success: work.last_success_ns.map(time).unwrap_or_default(),
            tone: match (host.has_failed(), host.worth_bytes()) {
                (true, _) => "bad",
                (false, 1..) => "warn",
                (false, 0) => "",
            },
        }
    }
}

fn verdict(host: &Host) -> String {
    let mut words = Vec::new();
    if host.has_failed() {
        words.push("last run failed".to_owned());
    }
    if let Some(verdict) = &host.verdict {
        let mut said = match verdict.kind.as_str() {
            WORTH_MOVING => format!("worth moving {}", Bytes(verdict.move_bytes)),
            kind => Name(Path::new(&kind.replace('-', " "))).to_string(),
        };
        if host.moved_since() {
            said.push_str(" (before the last run)");
        }
        words.push(said);
    }
    words.join("; ")
}

fn extents(host: &Host) -> String {
    match host.fragments() {
        None => String::new(),
        Some(of) if of.extents_first == of.extents => {
            format!("{} of {}", Count(of.extents), Count(of.ideal_extents))
        }
        Some(of) => format!(
            "{} → {} of {}",
            Count(of.extents_first),
            Count(of.extents),
            Count(of.ideal_extents)
        ),
    }
}

/// The gain that was predicted: of what is to move, a day; else of what has moved.
fn predicted(host: &Host) -> String {
    match host.predicted {
        Some(of) if of.saved_ns_per_day.is_some_and(|ns| ns > 0) => {
            format!("{} a day", Nanos(of.saved_ns_per_day.unwrap_or(0)))
        }
        Some(of) if of.saved_requests_per_day >= 0.5 => {
            format!("{} requests a day", Count(of.saved_requests_per_day as u64))
        }
        _ => gain(&host.work),
    }
}

/// What plans of runs had predicted, in each unit.
pub(super) fn gain(work: &Work) -> String {
    let mut gains = Vec::new();
    if work.predicted_ns >= 1.0 {
        gains.push(Nanos(work.predicted_ns as u64).to_string());
    }
    if work.predicted_iodp > 0.0 {
        gains.push(format!("{} IODP", Ratio(work.predicted_iodp)));
    }
    if work.predicted_bytes >= 1.0 {
        gains.push(format!("{} free", Bytes(work.predicted_bytes as u64)));
    }
    gains.join(", ")
}

pub(super) fn left_alone(reasons: &Reasons) -> String {
    let refusals = reasons.refusals(REASONS).into_iter();
    let words: Vec<String> = refusals
        .map(|(reason, files)| format!("{reason} {}", Count(files)))
        .collect();
    words.join(", ")
}

/// A time, to the minute.
fn time(ns: u64) -> String {
    let Some(time) = UNIX_EPOCH.checked_add(Duration::from_nanos(ns)) else {
        return String::new();
    };
    stamp(time)
}

fn stamp(time: SystemTime) -> String {
    let text = humantime::format_rfc3339_seconds(time).to_string();
    let minutes = text.get(..16).unwrap_or(&text);
    minutes.replace('T', " ")
}

/// Whether all hosts say that there is nothing to do.
pub(super) fn nothing_to_do(sums: &Sums) -> bool {
    let nothing = NOTHING.iter().filter_map(|kind| sums.verdicts.get(*kind));
    nothing.sum::<u64>() == sums.hosts
}

/// All in one sentence.
pub(super) fn sentence(sums: &Sums) -> String {
    let of = |kind: &str| sums.verdicts.get(kind).copied().unwrap_or(0);
    let worth = of(WORTH_MOVING);
    let nothing: u64 = NOTHING.iter().map(|kind| of(kind)).sum();
    let mut parts = Vec::new();
    if sums.hosts_failed > 0 {
        parts.push(format!(
            "the last run failed on {}",
            Count(sums.hosts_failed)
        ));
    }
    if worth > 0 {
        let bytes = Bytes(sums.worth_bytes);
        parts.push(format!("{} have {bytes} worth moving", Count(worth)));
    }
    if nothing == sums.hosts {
        parts.push("nothing is worth moving on any of them".to_owned());
    } else if nothing > 0 {
        parts.push(format!("nothing is worth moving on {}", Count(nothing)));
    }
    if of(NO_ENGINE) > 0 {
        parts.push(format!(
            "no engine can move what is on {}",
            Count(of(NO_ENGINE))
        ));
    }
    // Whose documents are of runs alone, or say that they cannot tell.
    let untold = (sums.hosts).saturating_sub(worth + nothing + of(NO_ENGINE));
    if untold > 0 {
        parts.push(format!("it is not known of {}", Count(untold)));
    }
    let hosts = counted(sums.hosts, "host", "hosts");
    format!("{hosts}: {}", parts.join(", "))
}

/// A fact about all hosts.
pub(super) struct Fact {
    pub(super) name: &'static str,
    pub(super) value: String,
    /// A remark, in smaller type.
    pub(super) aside: String,
}

/// The facts about all.
pub(super) fn facts(sums: &Sums) -> Vec<Fact> {
    let work = &sums.work;
    let mut facts = Vec::new();
    let mut add = |name, value: String, aside: String| {
        if !value.is_empty() {
            facts.push(Fact { name, value, aside });
        }
    };
    let none = String::new;
    add("Documents", Count(sums.documents).to_string(), none());
    let ends = [(work.runs_stopped, "stopped"), (work.runs_failed, "failed")];
    let ends = ends.into_iter().filter(|(count, _)| *count > 0);
    let ends: Vec<String> = ends
        .map(|(count, word)| format!("{} {word}", Count(count)))
        .collect();
    add("Runs", Count(work.runs).to_string(), ends.join(", "));
    let failed = match work.files_failed {
        0 => none(),
        failed => format!("{} failed", Count(failed)),
    };
    add("Files moved", Count(work.files_moved).to_string(), failed);
    let written = format!("{} written", Bytes(work.bytes_written));
    add("Bytes moved", Bytes(work.bytes_moved).to_string(), written);
    let requests = Count(work.requests_saved).to_string();
    let how = "of one read of each moved file, by its extents";
    add("Requests saved", requests, how.to_owned());
    add("Predicted", gain(work), "gain of these runs".to_owned());
    if work.stalls > 0 {
        let how = "held a file's locks longer than --max-stall";
        add("Long steps", Count(work.stalls).to_string(), how.to_owned());
    }
    if sums.ideal_extents > 0 {
        let mut aside = format!("{} at best", Count(sums.ideal_extents));
        if sums.extents_first != sums.extents {
            aside = format!("{} at first, {aside}", Count(sums.extents_first));
        }
        add("Extents", Count(sums.extents).to_string(), aside);
    }
    add("Left alone", left_alone(&sums.left_alone), none());
    if sums.versions.len() > 1 {
        let versions = sums.versions.iter();
        let versions: Vec<String> = versions
            .map(|(version, hosts)| {
                let hosts = counted(*hosts, "host", "hosts");
                format!("{}: {hosts}", Name(Path::new(version)))
            })
            .collect();
        add("Versions", versions.join(", "), none());
    }
    facts
}
