//! The outcome of a test, from the status of its process and the output of its harness.

use std::{os::unix::process::ExitStatusExt, process::ExitStatus, time::Duration};

use super::{programs::ProgramKind, schedule::TestJob};

/// How a test's process ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Exited(ExitStatus),
    /// It was ended, after this time.
    TimedOut(Duration),
}

/// The outcome of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TestOutcome {
    Passed,
    /// With the reason: how its process ended.
    Failed(String),
    /// With the reason.
    Skipped(String),
}

/// The time that a test took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    pub(crate) time: Duration,
    /// Processor time of its processes; zero where it is not known.
    pub(crate) processor: Duration,
}

/// One test's result.
#[derive(Clone, Debug)]
pub(crate) struct TestResult {
    pub(crate) program: String,
    pub(crate) test: String,
    pub(crate) outcome: TestOutcome,
    pub(crate) spent: Spent,
    /// The end of its output.
    pub(crate) said: String,
}

impl TestResult {
    /// A finding of the runner itself, about something with this name.
    pub(crate) fn of_runner(name: &str, outcome: TestOutcome) -> Self {
        Self {
            program: "cargo xtask test".into(),
            test: name.into(),
            outcome,
            spent: Spent::default(),
            said: String::new(),
        }
    }
}

/// The results of a job: of one test, or of all doc tests.
pub(crate) fn results(
    job: &TestJob,
    end: End,
    spent: Spent,
    said: String,
    skipped: Option<String>,
) -> Vec<TestResult> {
    let result = |test: &str, outcome, spent, said| TestResult {
        program: job.program.name.clone(),
        test: test.into(),
        outcome,
        spent,
        said,
    };
    match job.program.kind {
        ProgramKind::Harness(_) => {
            let outcome = judge(end, &said, skipped);
            vec![result(&job.test, outcome, spent, said)]
        }
        ProgramKind::Docs(_) => {
            let tests = doc_tests(&said);
            let failed = |outcome: &TestOutcome| matches!(outcome, TestOutcome::Failed(_));
            let explained = tests.iter().any(|(_, outcome)| failed(outcome));
            // The time of each of them is not known: they are built together.
            let count = u32::try_from(tests.len()).unwrap_or(u32::MAX).max(1);
            let each = Spent {
                time: spent.time / count,
                processor: spent.processor / count,
            };
            let mut results: Vec<_> = tests
                .into_iter()
                .map(|(name, outcome)| result(&name, outcome, each, String::new()))
                .collect();
            if !explained && let Some(why) = failure(end) {
                results.push(result(&job.test, TestOutcome::Failed(why), spent, said));
            } else if let Some(first) = results.iter_mut().find(|one| failed(&one.outcome)) {
                first.said = said;
            }
            results
        }
    }
}

/// The result of one test. Its process's status decides; the last line of its harness shows that
/// exactly that test ran to its end, and not, for example, an `exit(0)` on the way.
fn judge(end: End, said: &str, skipped: Option<String>) -> TestOutcome {
    if let Some(why) = failure(end) {
        return TestOutcome::Failed(why);
    }
    match said.lines().rev().find_map(harness_line) {
        Some((1, 0, 0)) => skipped.map_or(TestOutcome::Passed, TestOutcome::Skipped),
        Some((0, 0, 1)) => TestOutcome::Skipped("ignored".into()),
        _ => TestOutcome::Failed("it ended before its harness said what came of it".into()),
    }
}

/// The reason why this end is a failure, if it is one.
fn failure(end: End) -> Option<String> {
    match end {
        End::TimedOut(limit) => Some(format!("no end after {} s", limit.as_secs())),
        End::Exited(status) if status.success() => None,
        End::Exited(status) => Some(match status.signal() {
            Some(signal) => format!("signal {signal}"),
            None => format!("exit status {}", status.code().unwrap_or_default()),
        }),
    }
}

/// Passed, failed and ignored of `test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; …`.
fn harness_line(line: &str) -> Option<(u64, u64, u64)> {
    let counts = line.strip_prefix("test result: ")?.split_once(". ")?.1;
    let mut counts = counts.split("; ");
    let mut next = |name: &str| {
        let (count, of) = counts.next()?.split_once(' ')?;
        (of == name).then(|| count.parse().ok()).flatten()
    };
    Some((next("passed")?, next("failed")?, next("ignored")?))
}

/// The doc tests that ran according to rustdoc: `test src/lib.rs - item (line 3) ... ok`. rustdoc
/// withholds their own output.
fn doc_tests(said: &str) -> Vec<(String, TestOutcome)> {
    let test = |line: &str| {
        let (name, came) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
        let outcome = match came {
            "ok" => TestOutcome::Passed,
            "FAILED" => TestOutcome::Failed("see what rustdoc says".into()),
            "ignored" => TestOutcome::Skipped("ignored".into()),
            _ => return None,
        };
        Some((name.to_owned(), outcome))
    };
    said.lines().filter_map(test).collect()
}
