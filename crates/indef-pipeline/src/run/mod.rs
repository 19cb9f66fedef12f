//! From plans to a run: claim its file systems, store it, execute it.

mod claim;
mod free;
mod renumber;
mod store;
mod work;

use std::path::PathBuf;

use indef_engine::{
    Cancel,
    run::{Observer, RunOptions, RunResult, StopCause, run_beneath},
};

pub use crate::claimed::is_free;
use crate::{
    error::Error,
    note::{Note, Notes},
};
pub use claim::OnYield;
pub(crate) use claim::take as claim_file_systems;
use free::FreeSpace;
pub use work::Work;

/// The options of the execution, and its observers.
pub struct Runner<'a> {
    /// Workers, limits, engine. The budget is that of this run; see [`Work::budget`].
    pub options: RunOptions,
    /// The given paths of which every file was looked at: the rest that earlier stored runs have below them is of no
    /// use once this run is stored.
    pub given: &'a [PathBuf],
    /// What the run is for, by which [`Work::from_rest_for`] finds the rest of it.
    pub purpose: Option<&'a str>,
    /// Stops the run after its current steps.
    pub cancel: &'a Cancel,
    /// Sees every file.
    pub observer: &'a dyn Observer,
    /// Receives the other messages.
    pub notes: &'a dyn Notes,
    /// Called, on a thread of its own, when this run ends because root's begins.
    pub on_yield: Option<OnYield>,
    /// Store the work, so that a stopped or killed run can be resumed. Whoever plans anew needs no such thing.
    pub store: bool,
}

impl<'a> Runner<'a> {
    /// A runner with default options, and without an observer.
    #[must_use]
    pub fn new(cancel: &'a Cancel) -> Self {
        Self {
            options: RunOptions::default(),
            given: &[],
            purpose: None,
            cancel,
            observer: &(),
            notes: &(),
            on_yield: None,
            store: true,
        }
    }

    /// Claim the file systems, store the work so that it can be resumed (with [`Self::store`]), and
    /// execute it. A stopped run stays stored.
    ///
    /// # Errors
    ///
    /// Another run works on one of the file systems; nothing was done.
    pub fn run(&self, mut work: Work) -> Result<RunResult, Error> {
        if work.interrupted {
            return Ok(RunResult {
                stopped: Some(StopCause::Cancelled),
                ..RunResult::default()
            });
        }
        let options = &RunOptions {
            row: work.plan_options.placed_on(),
            reclaim_ratio: work.plan_options.reclaim_ratio,
            ..self.options
        };
        let cancel = self.cancel;
        let claim = if options.dry_run {
            None
        } else {
            let on_yield = self.on_yield.clone();
            let claim = claim::claim(&work.roots, &work.files, cancel, on_yield, self.notes)?;
            match &work.stored {
                Some(stored) => stored.continue_with(options),
                None if !self.store => {}
                None => {
                    let (files, planned_with) = (&work.files, &work.plan_options);
                    let given = (self.given, &work.roots);
                    work.stored = store::store(files, planned_with, given, options, self.notes);
                    if let (Some(stored), Some(purpose)) = (&work.stored, self.purpose) {
                        stored.mark(purpose);
                    }
                }
            }
            claim
        };
        let Work {
            roots,
            files,
            stored,
            ..
        } = work;
        let free_space = (options.reclaim_ratio.is_some() && !options.dry_run)
            .then(|| FreeSpace::on(&claim::file_systems(&roots, &files)));
        let free_before = free_space.as_ref().and_then(FreeSpace::bytes);
        let mut result = match &stored {
            // A dry run does nothing of the work: nothing of it is noted as done.
            Some(stored) if !options.dry_run => {
                let observer = stored.observer(self.observer, cancel);
                let mut result = run_beneath(&roots, files, options, cancel, &observer);
                if let (Some(error), Some(cause)) = (stored.failure(), &mut result.stopped) {
                    *cause = StopCause::Journal;
                    self.notes.note(Note::JournalFailed(error));
                }
                result
            }
            _ => run_beneath(&roots, files, options, cancel, self.observer),
        };
        let free_after = free_space.as_ref().and_then(FreeSpace::bytes);
        result.free_growth = free_before
            .zip(free_after)
            .and_then(|(before, after)| i64::try_from(i128::from(after) - i128::from(before)).ok());
        drop(claim);
        // The rest of a stopped run stays stored.
        if let Some(stored) = stored
            && result.stopped.is_none()
            && !options.dry_run
            && let Err(error) = stored.finish()
        {
            self.notes.note(Note::StaysStored(&error));
        }
        Ok(result)
    }
}
