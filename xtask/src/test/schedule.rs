//! The choice of the next test: the longest that may run beside the running ones.

use std::{rc::Rc, time::Duration};

use super::{company::Company, programs::Program};

/// One test to run.
#[derive(Clone, Debug)]
pub(crate) struct TestJob {
    pub(crate) program: Rc<Program>,
    pub(crate) test: String,
    pub(crate) company: Company,
    /// Its time limit.
    pub(crate) limit: Duration,
    /// Its expected time.
    pub(crate) expected: Duration,
    /// The variables that select the version of it that its tier wants.
    pub(crate) environment: Vec<(&'static str, &'static str)>,
}

impl TestJob {
    /// Program and test.
    pub(crate) fn full_name(&self) -> String {
        format!("{} {}", self.program.name, self.test)
    }
}

/// The waiting tests, the longest first.
#[derive(Debug)]
pub(crate) struct Queue {
    waiting: Vec<TestJob>,
}

impl Queue {
    pub(crate) fn new(mut jobs: Vec<TestJob>) -> Self {
        // Equal ones keep the order of the list.
        jobs.sort_by_key(|job| std::cmp::Reverse(job.expected));
        Self { waiting: jobs }
    }

    /// The next one beside these, of which `at_once` may be running, not counting those that wait. Heavy
    /// ones first, as long as there is room for one: they run one after the other, so others have to be
    /// left to run beside them. Tests that run alone come last.
    pub(crate) fn take(&mut self, running: &[Company], at_once: usize) -> Option<TestJob> {
        if running.contains(&Company::Alone) {
            return None;
        }
        let first = |company| self.waiting.iter().position(|job| job.company == company);
        let run = |company| running.iter().filter(|one| **one == company).count();
        let one_more = |company| {
            let room = run(company) < Company::AT_ONCE;
            room.then(|| first(company)).flatten()
        };
        let busy = running.len() - run(Company::Waiting);
        let index = (busy < at_once)
            .then(|| one_more(Company::Heavy).or_else(|| first(Company::Any)))
            .flatten()
            .or_else(|| one_more(Company::Waiting))
            .or_else(|| {
                let alone = running.is_empty().then(|| first(Company::Alone));
                alone.flatten()
            })?;
        Some(self.waiting.remove(index))
    }
}
