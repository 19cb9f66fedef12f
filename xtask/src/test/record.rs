//! The record of a run below `target/test`: the results for readers, and the times, by which the
//! next run starts the longest first.

use std::{collections::BTreeMap, fs, path::PathBuf, time::Duration};

use anyhow::{Context, Result};
use serde::Serialize;

use super::{
    company::last_part,
    outcome::{TestOutcome, TestResult},
    programs::DOCS,
    report::Report,
};

/// The times of tests in earlier runs, in seconds, by program and name.
#[derive(Debug, Default)]
pub(crate) struct Times(BTreeMap<String, f64>);

impl Times {
    /// The times of earlier runs. Without any, or where they cannot be read, times are guessed by
    /// kind of test.
    pub(crate) fn load() -> Self {
        let text = fs::read(folder().join("times.json")).unwrap_or_default();
        Self(serde_json::from_slice(&text).unwrap_or_default())
    }

    /// The expected time of this test.
    pub(crate) fn expect(&self, program: &str, test: &str) -> Duration {
        let known = self.0.get(&format!("{program} {test}")).copied();
        let guess = || match last_part(test) {
            name if name.starts_with("vm_") => 60.0,
            name if name.starts_with("loop_") => 4.0,
            _ if program == DOCS => 60.0,
            _ => 0.1,
        };
        Duration::try_from_secs_f64(known.unwrap_or_else(guess)).unwrap_or_default()
    }
}

#[derive(Serialize)]
struct TestDocument<'a> {
    schema: u32,
    tier: &'a str,
    build_seconds: f64,
    total_seconds: f64,
    /// Of processor time of guests that several tests have used.
    shared_guests_processor_seconds: f64,
    tests: Vec<TestEntry<'a>>,
}

#[derive(Serialize)]
struct TestEntry<'a> {
    program: &'a str,
    test: &'a str,
    outcome: &'a str,
    reason: Option<&'a str>,
    seconds: f64,
    /// Of processor time.
    processor_seconds: f64,
}

/// Store a run's results (`TIER.json`) and add its times to the known ones.
pub(crate) fn save(report: &Report, mut times: Times) -> Result<()> {
    let folder = folder();
    fs::create_dir_all(&folder).with_context(|| format!("{}", folder.display()))?;
    for result in &report.results {
        let name = format!("{} {}", result.program, result.test);
        times.0.insert(name, seconds(result.spent.time));
    }
    let (build, total) = report.times();
    let document = TestDocument {
        schema: 1,
        tier: report.tier.name(),
        build_seconds: seconds(build),
        total_seconds: seconds(total),
        shared_guests_processor_seconds: seconds(report.guests.unwrap_or_default()),
        tests: report.results.iter().map(entry).collect(),
    };
    write(&format!("{}.json", report.tier.name()), &document)?;
    write("times.json", &times.0)
}

fn entry(result: &TestResult) -> TestEntry<'_> {
    let (outcome, reason) = match &result.outcome {
        TestOutcome::Passed => ("passed", None),
        TestOutcome::Failed(why) => ("failed", Some(why.as_str())),
        TestOutcome::Skipped(why) => ("skipped", Some(why.as_str())),
    };
    TestEntry {
        program: &result.program,
        test: &result.test,
        outcome,
        reason,
        seconds: seconds(result.spent.time),
        processor_seconds: seconds(result.spent.processor),
    }
}

fn write(name: &str, what: &impl Serialize) -> Result<()> {
    let path = folder().join(name);
    let mut text = serde_json::to_vec_pretty(what)?;
    text.push(b'\n');
    // A reader meanwhile gets the old one.
    let new = path.with_extension("new");
    fs::write(&new, text)
        .and_then(|()| fs::rename(&new, &path))
        .with_context(|| format!("cannot write {}", path.display()))
}

fn folder() -> PathBuf {
    source_tree::target().join("test")
}

/// Seconds, to a millisecond.
fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1000.0).round() / 1000.0
}
