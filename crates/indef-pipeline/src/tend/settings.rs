//! All settings of the service, each with its default.

use std::{path::PathBuf, time::Duration};

use indef_core::plan::Terms;
use indef_engine::{collect::Select, run::RunOptions};
use indef_trace::collect::Sampling;
use units::Bytes;

use super::{ledger::Budgets, window::Window};
use crate::consider::Limits;

/// What the service does, and what it leaves alone.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Files and directories. Each file system is decided by itself. None: every mounted file system that an engine
    /// works on.
    pub paths: Vec<PathBuf>,
    /// What to leave out of them: it is never moved.
    pub select: Select,
    /// How long it traces at a time; zero: it does not trace.
    pub learn: Duration,
    /// From one beginning of a trace to the next.
    pub learn_every: Duration,
    /// The cost of tracing.
    pub sampling: Sampling,
    /// From the end of a round of a file system to its next one. Doubled while there is nothing to do, up to
    /// [`Self::LONGEST_PAUSE`], or until a trace shows another load.
    pub every: Duration,
    /// In which time a move has to pay back.
    pub terms: Terms,
    /// Readings at which work pauses.
    pub limits: Limits,
    /// When files may be looked at and moved; empty: at any time.
    pub windows: Vec<Window>,
    /// Bytes that may be written.
    pub budgets: Budgets,
    /// Bytes of one portion of work.
    pub portion: Bytes,
    /// The longest time of one portion, after which others are looked at in quiet.
    pub portion_time: Duration,
    /// How files are moved: rate, longest stall, free space, workers.
    pub run: RunOptions,
    /// Where nothing is known of reads: move what sequential reads would gain by, as if each file was read once a day.
    pub without_profile: bool,
    /// One round of each file system, then the end.
    pub once: bool,
    /// Tell what would be done; trace, move and store nothing.
    pub dry_run: bool,
}

impl Settings {
    /// The longest time between two rounds.
    pub const LONGEST_PAUSE: Duration = Duration::from_secs(24 * 3600);
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            paths: Vec::new(),
            select: Select::default(),
            learn: Duration::from_secs(10 * 60),
            learn_every: Duration::from_secs(3600),
            sampling: Sampling::at_most_percent(1.0),
            every: Duration::from_secs(3600),
            terms: Terms::default(),
            limits: Limits::default(),
            windows: Vec::new(),
            budgets: Budgets {
                day: Some(Bytes::gib(10)),
                year: Some(Bytes::gib(1024)),
            },
            portion: Bytes::mib(256),
            portion_time: Duration::from_secs(5),
            run: RunOptions {
                // Others shall not wait for many of ours.
                jobs: 1,
                rate: Some(Bytes::mib(100)),
                min_free_pct: 10.0,
                keep_maps: 0,
                ..RunOptions::default()
            },
            without_profile: false,
            once: false,
            dry_run: false,
        }
    }
}
