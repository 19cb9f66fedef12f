//! The printed report: a line for each program, every failure with its output, and sums at the
//! end.

use std::{
    collections::BTreeMap,
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use super::{
    outcome::{Spent, TestOutcome, TestResult},
    running::Running,
    schedule::TestJob,
    tiers::Tier,
};

/// Number of the slowest tests that are named.
const SLOWEST: usize = 20;
/// After this time, and again after each further one, a test that is still running is named.
const PATIENCE: Duration = Duration::from_secs(120);

/// The known facts about a run so far.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) tier: Tier,
    pub(crate) results: Vec<TestResult>,
    /// Processor time of guests that several tests have used, if there were any.
    pub(crate) guests: Option<Duration>,
    begun: Instant,
    built: Duration,
    /// Number of jobs left of each program.
    left: BTreeMap<String, usize>,
    said_running: Instant,
}

/// Number of tests by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResultCounts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
}

impl ResultCounts {
    fn of<'a>(results: impl Iterator<Item = &'a TestResult>) -> Self {
        let mut counts = Self::default();
        for result in results {
            match result.outcome {
                TestOutcome::Passed => counts.passed += 1,
                TestOutcome::Failed(_) => counts.failed += 1,
                TestOutcome::Skipped(_) => counts.skipped += 1,
            }
        }
        counts
    }

    fn line(self) -> String {
        format!(
            "{} passed, {} failed, {} skipped",
            self.passed, self.failed, self.skipped
        )
    }
}

impl Report {
    pub(crate) fn begin(tier: Tier) -> Self {
        Self {
            tier,
            results: Vec::new(),
            guests: None,
            begun: Instant::now(),
            built: Duration::ZERO,
            left: BTreeMap::new(),
            said_running: Instant::now(),
        }
    }

    /// Record that the programs are built.
    pub(crate) fn built(&mut self, programs: usize) {
        self.built = self.begun.elapsed();
        let took = self.built.as_secs_f64();
        eprintln!("{programs} test programs, built in {took:.1} s");
    }

    /// Record the jobs that will be run.
    pub(crate) fn expect(&mut self, jobs: &[TestJob]) {
        for job in jobs {
            *self.left.entry(job.program.name.clone()).or_default() += 1;
        }
        let expected: Duration = jobs.iter().map(|job| job.expected).sum();
        println!(
            "make {}: {} tests of {} programs, about {:.0} s one after the other",
            self.tier.name(),
            jobs.len(),
            self.left.len(),
            expected.as_secs_f64()
        );
    }

    /// Record that a test has ended. A failure is printed at once.
    pub(crate) fn add(&mut self, result: TestResult) {
        if let TestOutcome::Failed(why) = &result.outcome {
            let took = result.spent.time.as_secs_f64();
            println!(
                "FAILED {} {}: {why}, {took:.1} s",
                result.program, result.test
            );
            for line in result.said.lines() {
                println!("    {line}");
            }
        }
        self.results.push(result);
    }

    /// Record that all of this job's results are here. A finished program gets its line.
    pub(crate) fn ended(&mut self, job: &TestJob) {
        let name = &job.program.name;
        let Some(left) = self.left.get_mut(name) else {
            return;
        };
        *left = left.saturating_sub(1);
        if *left > 0 {
            return;
        }
        let mine = || self.results.iter().filter(|one| one.program == *name);
        let took: Duration = mine().map(|one| one.spent.time).sum();
        let at = self.begun.elapsed().as_secs_f64();
        println!(
            "{at:7.1} s  {name}: {}, {:.1} s",
            ResultCounts::of(mine()).line(),
            took.as_secs_f64()
        );
    }

    /// Name tests that take long, so that a log shows where a run is.
    pub(crate) fn still_running(&mut self, running: &[Running]) {
        if self.said_running.elapsed() < PATIENCE {
            return;
        }
        self.said_running = Instant::now();
        for one in running.iter().filter(|one| one.elapsed() >= PATIENCE) {
            let (at, took) = (self.begun.elapsed(), one.elapsed());
            println!(
                "{:7.1} s  still running after {:.0} s: {}",
                at.as_secs_f64(),
                took.as_secs_f64(),
                one.job.full_name()
            );
        }
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.counts().failed > 0
    }

    pub(crate) fn counts(&self) -> ResultCounts {
        ResultCounts::of(self.results.iter())
    }

    /// The duration of the build, and of everything so far.
    pub(crate) fn times(&self) -> (Duration, Duration) {
        (self.built, self.begun.elapsed())
    }

    /// Print the sums. The last line goes into the file that `INDEF_SUMMARY` names, if it does.
    pub(crate) fn conclude(&self, interrupted: bool) -> Result<()> {
        let mut by_time: Vec<&TestResult> = self.results.iter().collect();
        by_time.sort_by_key(|one| std::cmp::Reverse(one.spent.time));
        if by_time.len() > 1 {
            println!("\nslowest, and their processor time:");
        }
        for one in by_time.iter().take(SLOWEST).filter(|_| by_time.len() > 1) {
            let (took, used) = (
                one.spent.time.as_secs_f64(),
                one.spent.processor.as_secs_f64(),
            );
            println!("{took:9.1} s {used:7.1} s  {} {}", one.program, one.test);
        }
        self.name("skipped", |outcome| match outcome {
            TestOutcome::Skipped(why) => Some(why),
            TestOutcome::Passed | TestOutcome::Failed(_) => None,
        });
        self.name("failed", |outcome| match outcome {
            TestOutcome::Failed(why) => Some(why),
            TestOutcome::Passed | TestOutcome::Skipped(_) => None,
        });
        let (built, total) = self.times();
        let sum = |of: fn(&Spent) -> Duration| {
            let all = self.results.iter().map(|one| of(&one.spent));
            all.sum::<Duration>().as_secs_f64()
        };
        println!(
            "\nmake {}: {:.0} s, of these {:.0} s building; {:.0} s of tests, with {:.0} s of processor time, \
             and {:.0} s of shared guests",
            self.tier.name(),
            total.as_secs_f64(),
            built.as_secs_f64(),
            sum(|spent| spent.time),
            sum(|spent| spent.processor),
            self.guests.unwrap_or_default().as_secs_f64()
        );
        let mut counts = self.counts();
        if interrupted {
            println!("interrupted");
            // Tests that did not run have not passed.
            counts.failed = counts.failed.max(1);
        }
        let line = counts.line();
        match std::env::var_os("INDEF_SUMMARY").filter(|path| !path.is_empty()) {
            Some(path) => fs::write(&path, format!("{line}\n"))
                .with_context(|| format!("cannot write {}", path.display())),
            None => {
                println!("{line}");
                Ok(())
            }
        }
    }

    /// List the tests whose outcome deserves a remark.
    fn name(&self, title: &str, about: impl Fn(&TestOutcome) -> Option<&String>) {
        let mut named = self
            .results
            .iter()
            .filter_map(|one| about(&one.outcome).map(|why| (one, why)))
            .peekable();
        if named.peek().is_some() {
            println!("\n{title}:");
        }
        for (one, why) in named {
            println!("  {} {}: {why}", one.program, one.test);
        }
    }
}
