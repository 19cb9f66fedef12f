//! Record the actual reads and writes of applications: from a trace to a profile.
//!
//! The collector counts in the kernel; about once a second its counts go into [`Live`], for
//! observers, and into a table in memory, and from there at intervals into the profile.

mod aside;
mod keep;
mod live;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use indef_trace::{
    collect::{Collector, Drained, Source, TraceError, TraceOptions},
    store::StoreError,
};

use crate::error::Error;
pub(crate) use aside::{aside, hurry};
pub use keep::Keep;
use keep::Keeper;
pub use live::{AccessCounts, Batch, Distinct, HotFile, Live, MAX_FILES, Rates};

/// The longest time for which a signal or the end of a command goes unnoticed.
const TICK: Duration = Duration::from_millis(50);
/// The same of a trace that is made beside others, while nothing is counted.
const ASIDE: Duration = Duration::from_secs(1);
/// Interval at which the counts are drained.
const ROUND: Duration = Duration::from_secs(1);

/// A trace that has begun. The kernel counts; no counts are drained yet.
pub struct Session {
    collector: Collector,
    keeper: Keeper,
    live: Live,
    /// Single accesses are kept, so they are drained often.
    raw: bool,
    /// The longest sleep.
    patience: Duration,
}

/// Progress of a trace.
#[derive(Debug)]
pub enum TraceUpdate<'a> {
    /// The results so far; about once a second.
    Live(&'a Live),
    /// The store takes no more. The counts stay in memory and are tried again; reported once.
    NotStored(&'a StoreError),
}

/// A finished trace.
#[derive(Debug)]
pub struct Learned {
    /// The results of the trace.
    pub live: Live,
    /// Whether the trace ran to its end.
    pub watched: Result<(), Error>,
    /// Whether everything is kept. The recorded accesses are kept, whatever happened to the trace.
    pub kept: Result<(), Error>,
}

impl Session {
    /// Begin. The place for the accesses is prepared first: a profile that cannot be written should
    /// not cost a trace.
    ///
    /// # Errors
    ///
    /// The profile cannot be written, or nothing can be collected.
    pub fn begin(options: &TraceOptions, keep: Option<&Keep>) -> Result<Self, Error> {
        Ok(Self {
            keeper: Keeper::open(keep, options.layer)?,
            collector: Collector::start(options)?,
            live: Live::default(),
            raw: options.raw,
            patience: match options.aside {
                true => ASIDE,
                false => TICK,
            },
        })
    }

    /// The sources of accesses; those that cannot be observed hold the reason.
    #[must_use]
    pub fn sources(&self) -> &[Source] {
        self.collector.sources()
    }

    /// Layers of overlays in which accesses are not seen.
    #[must_use]
    pub fn hidden_layers(&self) -> &[PathBuf] {
        self.collector.hidden_layers()
    }

    /// Count a process, with its later children.
    ///
    /// # Errors
    ///
    /// The kernel refuses it.
    pub fn follow(&self, pid: u32) -> Result<(), Error> {
        Ok(self.collector.follow(pid)?)
    }

    /// Record accesses until `is_over`, which gets the time since the beginning, returns true. `again` is asked at the end,
    /// each time that the store does not take the rest for a reason that may pass: whether to try it again.
    pub fn learn(
        mut self,
        mut is_over: impl FnMut(Duration) -> bool,
        again: &mut dyn FnMut() -> bool,
        show: &mut dyn FnMut(TraceUpdate<'_>),
    ) -> Learned {
        let began = Instant::now();
        let mut round = began;
        let mut watched = Ok(());
        while watched.is_ok() {
            self.collector.wait(TICK, self.patience);
            let many = self.collector.keep_up();
            if is_over(began.elapsed()) {
                break;
            }
            if self.raw || many || round.elapsed() >= ROUND {
                round = Instant::now();
                let collector = &mut self.collector;
                watched = take(&mut self.live, &mut self.keeper, began, show, |sink| {
                    collector.drain_into(sink)
                });
            }
        }
        let Self {
            collector,
            mut keeper,
            mut live,
            ..
        } = self;
        if watched.is_ok() {
            watched = take(&mut live, &mut keeper, began, show, |sink| {
                collector.finish_into(sink)
            });
        }
        Learned {
            kept: keeper.finish(live.lost(), again),
            live,
            watched,
        }
    }
}

/// Take the parts that `drain` returns, one by one, and show them.
fn take(
    live: &mut Live,
    keeper: &mut Keeper,
    began: Instant,
    show: &mut dyn FnMut(TraceUpdate<'_>),
    drain: impl FnOnce(&mut dyn FnMut(Drained)) -> Result<(), TraceError>,
) -> Result<(), Error> {
    let mut kept = Ok(());
    let mut sink = |part: Drained| {
        let batch = Batch {
            tallies: &part.tallies,
            files: &part.files,
            lost: part.lost,
            sampled: part.sampled,
            untold: part.untold,
            spent: part.spent,
            windows: part.windows,
        };
        live.add(&batch, began.elapsed());
        match keeper.add(part) {
            Ok(None) => {}
            Ok(Some(problem)) => show(TraceUpdate::NotStored(&problem)),
            Err(error) => kept = Err(error),
        }
    };
    drain(&mut sink)?;
    show(TraceUpdate::Live(live));
    kept
}
