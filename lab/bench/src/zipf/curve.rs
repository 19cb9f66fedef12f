//! The results: gain over bytes moved, as table and as JSON.

use std::fmt;

use serde::Serialize;

use super::{super::report::Report, timing::Cost};

/// One workload.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Curve {
    pub(super) fs: &'static str,
    pub(super) skew: f64,
    /// Whether the profile was traced, or written from the known sequence.
    pub(super) traced: bool,
    pub(super) points: Vec<Point>,
    pub(super) targets: Vec<Target>,
}

/// A state in which a part of the file was moved.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Point {
    pub(super) contender: &'static str,
    /// Bytes moved, as a percentage of the file's.
    pub(super) moved_pct: f64,
    pub(super) mib_per_s: f64,
    /// The time saved, as a percentage of the time that moving all saves.
    pub(super) time_gain_pct: f64,
    /// The requests saved, as a percentage of those that moving all saves.
    pub(super) request_gain_pct: f64,
}

/// A target gain: the prediction, and the result.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Target {
    pub(super) predicted_pct: f64,
    pub(super) moved_pct: f64,
    pub(super) time_gain_pct: f64,
    pub(super) request_gain_pct: f64,
}

/// The share of the savings of moving all, in percent: of time, and of
/// requests.
pub(super) fn gain(before: Cost, after: Cost, now: Cost) -> (f64, f64) {
    let part = |value: fn(Cost) -> u64| {
        let (before, after, now) = (value(before) as f64, value(after) as f64, value(now) as f64);
        (before - now) / (before - after) * 100.0
    };
    (part(|cost| cost.time_ns), part(|cost| cost.requests))
}

impl Curve {
    /// Add all points and targets to the figures of `report`.
    pub(super) fn add_to(&self, report: &mut Report) {
        let case = format!("{} skew {}", self.fs, self.skew);
        for p in &self.points {
            let contender = match p.contender {
                "before" | "after" => p.contender.to_owned(),
                name => format!("{name} {:.0} %", p.moved_pct),
            };
            let mut add = |quantity, value| report.figure(&case, &contender, quantity, &[value]);
            add("moved_pct", p.moved_pct);
            add("read_mib_per_s", p.mib_per_s);
            add("time_gain_pct", p.time_gain_pct);
            add("request_gain_pct", p.request_gain_pct);
        }
        for t in &self.targets {
            let contender = format!("target {:.0} %", t.predicted_pct);
            let mut add = |quantity, value| report.figure(&case, &contender, quantity, &[value]);
            add("moved_pct", t.moved_pct);
            add("time_gain_pct", t.time_gain_pct);
            add("request_gain_pct", t.request_gain_pct);
        }
    }

    /// The largest deficit of `indef` against the oracle: in time, and in
    /// requests.
    pub(super) fn behind_oracle(&self) -> (f64, f64) {
        let of = |name| self.points.iter().filter(move |p| p.contender == name);
        of("oracle").zip(of("indef")).fold(
            (0.0, 0.0),
            |(time, requests): (f64, f64), (oracle, ours)| {
                (
                    time.max(oracle.time_gain_pct - ours.time_gain_pct),
                    requests.max(oracle.request_gain_pct - ours.request_gain_pct),
                )
            },
        )
    }
}

impl fmt::Display for Curve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = if self.traced { "traced" } else { "known" };
        writeln!(f, "{}, skew {}, profile {from}", self.fs, self.skew)?;
        writeln!(
            f,
            "  {:12} {:>8} {:>12} {:>11} {:>15}",
            "", "moved", "read speed", "time saved", "requests saved"
        )?;
        for p in &self.points {
            writeln!(
                f,
                "  {:12} {:>6.1} % {:>6.0} MiB/s {:>9.1} % {:>13.1} %",
                p.contender, p.moved_pct, p.mib_per_s, p.time_gain_pct, p.request_gain_pct
            )?;
        }
        for t in &self.targets {
            writeln!(
                f,
                "  predicted {:.1} % with {:.1} % of the bytes: {:.1} % of the time, {:.1} % of the requests",
                t.predicted_pct, t.moved_pct, t.time_gain_pct, t.request_gain_pct
            )?;
        }
        Ok(())
    }
}
