//! Guests that several tests use, one after the other: a test that may share a guest starts its keeper or
//! finds one (`guest::shared`). Here is their folder, and their end.

use std::{fs, os::unix::fs::symlink, path::Path, process::Command, time::Duration};

use anyhow::{Context, Result};

use super::{
    room::{Run, end_processes, processes_with},
    running::processor_time,
};

/// Names the folder of the guests, and so identifies their processes.
const FOLDER: &str = "INDEF_GUESTS";

/// The guests of a run. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Guests {
    variable: String,
}

impl Guests {
    /// Those of a run, kept by this program.
    pub(crate) fn new(run: &Run, keeper: &Path) -> Result<Self> {
        symlink(keeper, run.file("keeper"))
            .with_context(|| format!("no link to {}", keeper.display()))?;
        Ok(Self {
            variable: format!("{FOLDER}={}", run.folder().display()),
        })
    }

    /// Let a test use them.
    pub(crate) fn offer(&self, command: &mut Command) {
        if let Some((name, folder)) = self.variable.split_once('=') {
            command.env(name, folder);
        }
    }

    /// The processor time that they have used so far, without those that have ended.
    pub(crate) fn processor(&self) -> Duration {
        let stat = |process| fs::read_to_string(format!("/proc/{process}/stat"));
        processes_with(&self.variable)
            .into_iter()
            .map(|process| processor_time(&stat(process.as_raw_nonzero()).unwrap_or_default()))
            .sum()
    }
}

impl Drop for Guests {
    fn drop(&mut self) {
        // Their files go with the run's folder.
        end_processes(&self.variable);
    }
}
