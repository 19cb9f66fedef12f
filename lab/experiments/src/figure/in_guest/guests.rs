//! What all guests have in common, and the acts in them.

use std::sync::atomic::Ordering;

use anyhow::Result;
use guest::Release;

use super::super::{error::FigureError, turn::Turn};

pub(super) const KERNEL: Release = Release::Linux6_12;
pub(super) const CPUS: u32 = 2;
/// A guest's programs are part of it.
pub(super) const MEMORY_MIB: u32 = 1024;

/// A run, act by act.
pub(super) struct Acts<'a> {
    turn: &'a Turn<'a>,
    /// The files, the drive, and the number of the run.
    run: String,
}

impl<'a> Acts<'a> {
    /// Of this run of so many.
    pub(super) fn of(turn: &'a Turn<'a>, what: &str, run: u64, runs: u64) -> Self {
        let run = format!("{what} in a guest, run {run} of {runs}");
        Self { turn, run }
    }

    /// Say what is done now, and do it.
    pub(super) fn act<T>(
        &self,
        act: &str,
        perform: impl FnOnce() -> Result<T>,
    ) -> Result<T, FigureError> {
        let what = format!("{}: {act}", self.run);
        self.turn.begin(&what)?;
        perform().map_err(|error| {
            // A guest ends when a signal comes, and so does whatever waits for it.
            if self.turn.stop.load(Ordering::Relaxed) {
                return FigureError::Stopped;
            }
            FigureError::machine(what)(format!("{error:#}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        cell::RefCell,
        sync::{Arc, atomic::AtomicBool},
    };

    use super::*;

    #[test]
    fn an_act_is_said_and_one_that_a_signal_ends_has_not_failed() {
        let said = RefCell::new(Vec::new());
        let stop = Arc::new(AtomicBool::new(false));
        let turn = Turn {
            stop: &stop,
            say: &|what| said.borrow_mut().push(what.to_owned()),
        };
        let acts = Acts::of(&turn, "F2FS on a drive", 2, 3);
        acts.act("it boots", || Ok(())).unwrap();
        let failed = acts.act::<()>("fsck.f2fs", || anyhow::bail!("not clean"));
        let error = failed.unwrap_err().to_string();
        let run = "F2FS on a drive in a guest, run 2 of 3";
        assert_eq!(error, format!("{run}: fsck.f2fs: not clean"));
        assert_eq!(said.borrow()[0], format!("{run}: it boots"));
        let stopped = acts.act::<()>("it ends", || {
            stop.store(true, Ordering::Relaxed);
            anyhow::bail!("no guest")
        });
        assert!(matches!(stopped, Err(FigureError::Stopped)));
        let next = acts.act("nothing", || -> Result<()> { panic!("it was to stop") });
        assert!(matches!(next, Err(FigureError::Stopped)));
    }
}
