//! What the service needs of the world around it, so that a test can be one.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use linux_abi::local_time::LocalTime;

use super::{
    decision::Outlook,
    event::Event,
    ledger::Moment,
    portion::{Portion, PortionLimit, Traced},
    settings::Settings,
    status::{Status, Totals},
};
use crate::{
    apart::NotTraced,
    consider::{Limits, Reading},
};

/// Somebody wants something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// An orderly end.
    Stop,
    /// That settings and mounts are read again. Asked until the settings are, at the latest until [`Event::Began`] is told.
    Reload,
}

/// The moves that follow one decision about a file system, up to the end of a window or of a budget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Round<'a> {
    /// The first portion is about to move.
    Begins,
    /// No more follows.
    Ends {
        /// What was done.
        done: &'a Totals,
        /// Why some is left, if so: the name of a [`super::Hold`], `signal`, `reload`, `stale` or `ledger`.
        left: Option<&'static str>,
    },
}

/// Clocks, signals and readings.
pub trait World {
    /// The time.
    fn now(&self) -> Moment;

    /// The time of day.
    fn local(&self) -> LocalTime;

    /// Wait so long, or until something is asked.
    fn wait(&mut self, time: Duration);

    /// What is asked. Called often: at each step of the work.
    fn asked(&mut self) -> Option<Asked>;

    /// The readings for these drives. `working`: we have worked since the last look.
    fn look(&mut self, drives: &[String], working: bool, limits: &Limits) -> Vec<Reading>;

    /// Something happened.
    fn tell(&mut self, event: &Event<'_>);

    /// Moves begin or end on the file system of this path. To be kept, not told: events tell.
    fn round(&mut self, place: &Path, round: Round<'_>);

    /// The numbers, as of now.
    fn publish(&mut self, status: &Status);
}

/// A file system to look after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Paths on it, at least one.
    pub paths: Vec<PathBuf>,
    /// Its drives, by the kernel's names.
    pub drives: Vec<String>,
}

/// Asked at each step; true: stop.
pub type Halt<'a> = &'a mut (dyn FnMut() -> bool + Send);

/// The work itself.
pub trait Work {
    /// Use these settings from now on.
    fn set(&mut self, settings: &Settings);

    /// The file systems to look after.
    ///
    /// # Errors
    ///
    /// There are none, or they cannot be looked at.
    fn places(&mut self) -> Result<Vec<Place>, String>;

    /// Trace for so long, into the profile; `aside`: only where nobody else wants a processor.
    ///
    /// # Errors
    ///
    /// It is not possible, or what was counted was not kept.
    fn learn(&mut self, time: Duration, aside: bool, halt: Halt<'_>) -> Result<Traced, NotTraced>;

    /// Whether another file system is by now where this one was when [`Self::places`] was asked: it was unmounted, say, and the
    /// path is a folder of the one above.
    fn is_elsewhere(&self, place: usize) -> bool;

    /// Whether the traces since the last look at a file system have the reads of another load.
    fn is_another_load(&self, place: usize) -> bool;

    /// Look at a file system, and decide. What is to be moved is kept for [`Self::portion`]. `None`: it was halted.
    ///
    /// # Errors
    ///
    /// It cannot be looked at.
    fn plan(&mut self, place: usize, halt: Halt<'_>) -> Result<Option<Outlook>, String>;

    /// Move a part of what is to be moved.
    fn portion(&mut self, place: usize, limit: &PortionLimit, halt: Halt<'_>) -> Portion;

    /// Give up the file whose next range was too large for the last portion.
    fn pass_over(&mut self, place: usize);

    /// Give up what is to be moved there.
    fn forget(&mut self, place: usize);
}
