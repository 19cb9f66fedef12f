//! The table as one self-contained page.

use askama::Template;

use super::{
    fleet::Fleet,
    summary::{Fact, Row, facts, nothing_to_do, sentence},
};
use crate::{
    output::{Name, counted},
    report::html::{SCRIPT, SCRIPT_HASH, STYLE},
};

/// Files that cannot be read, and are named on the page.
const BAD: usize = 100;

#[derive(Template)]
#[template(path = "fleet.html")]
struct Page {
    version: &'static str,
    style: &'static str,
    script: &'static str,
    script_hash: &'static str,
    sentence: String,
    tone: &'static str,
    facts: Vec<Fact>,
    rows: Vec<Row>,
    left_out: Option<String>,
    /// Files and their faults.
    bad: Vec<(String, String)>,
    bad_left_out: usize,
}

/// The page, with at most `top` hosts.
pub(super) fn page(fleet: &Fleet, top: usize) -> Result<String, askama::Error> {
    let sums = fleet.sums();
    let hosts = fleet.hosts();
    let left_out = hosts.len().saturating_sub(top) as u64;
    let bad = fleet.bad.iter().take(BAD);
    Page {
        version: env!("INDEF_VERSION"),
        style: STYLE,
        script: SCRIPT,
        script_hash: SCRIPT_HASH,
        sentence: sentence(&sums),
        tone: match (sums.hosts_failed, sums.worth_bytes) {
            (1.., _) => "bad",
            (0, 1..) => "warn",
            (0, 0) if nothing_to_do(&sums) => "good",
            (0, 0) => "",
        },
        facts: facts(&sums),
        rows: (hosts.iter().take(top))
            .map(|(who, host)| Row::new(who, host))
            .collect(),
        left_out: (left_out > 0).then(|| counted(left_out, "more host", "more hosts")),
        bad: bad
            .map(|bad| (Name(&bad.source).to_string(), bad.error.clone()))
            .collect(),
        bad_left_out: fleet.bad.len().saturating_sub(BAD),
    }
    .render()
}
