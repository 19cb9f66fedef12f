//! Guests that several tests use, one after the other: a test that may share a guest starts its keeper or
//! finds one (`guest::shared`). Here is their folder, and their end.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use rustix::process::Pid;

use super::{
    process::processor_time,
    room::{Run, end_processes, is_of_a_test, processes_with},
};

/// Names the folder of the guests, and so identifies their processes.
const FOLDER: &str = "INDEF_GUESTS";

/// Interval of looks at their processor time: a guest that ends takes at most so much of it along.
const INTERVAL: Duration = Duration::from_secs(5);

/// The guests of a run. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Guests {
    variable: String,
    /// The processor time of each of their processes when it was last looked at.
    used: RefCell<HashMap<Pid, Duration>>,
    looked: Cell<Instant>,
}

impl Guests {
    /// Those of a run, kept by this program.
    pub(crate) fn new(run: &Run, keeper: &Path) -> Result<Self> {
        symlink(keeper, run.file("keeper"))
            .with_context(|| format!("no link to {}", keeper.display()))?;
        Ok(Self {
            variable: format!("{FOLDER}={}", run.folder().display()),
            used: RefCell::default(),
            looked: Cell::new(Instant::now()),
        })
    }

    /// Let a test use them.
    pub(crate) fn offer(&self, command: &mut Command) {
        if let Some((name, folder)) = self.variable.split_once('=') {
            command.env(name, folder);
        }
    }

    /// Look at the processor time of those that are up, if that is some time ago.
    pub(crate) fn watch(&self) {
        if self.looked.get().elapsed() >= INTERVAL {
            self.look();
        }
    }

    fn look(&self) {
        self.looked.set(Instant::now());
        let mut used = self.used.borrow_mut();
        for process in processes_with(&self.variable) {
            let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
            if let (Ok(stat), false) = (stat, is_of_a_test(process)) {
                used.insert(process, processor_time(&stat));
            }
        }
    }

    /// The processor time that they have used so far; of those that have ended, what was last seen.
    pub(crate) fn processor(&self) -> Duration {
        self.look();
        self.used.borrow().values().sum()
    }
}

impl Drop for Guests {
    fn drop(&mut self) {
        // Their files go with the run's folder.
        end_processes(&self.variable);
    }
}
