//! The work of a run: from a walk, a plan file, or the rest of a stopped run. Files of which
//! nothing moves are noted, counted by reason, and left out.

use std::{collections::BTreeMap, fs::File, io::BufReader, path::Path, time::Duration};

use indef_core::{
    SkipReason,
    plan::{FilePlan, PlanOptions, format::PlanReader},
};
use indef_engine::{
    collect::Excluded,
    resume::{Resumed, StoredRun},
    run::RunOptions,
};
use indef_fs::Roots;
use units::Bytes;

use super::{renumber::renumber, store};
use crate::{
    error::Error,
    note::{Note, Notes},
    plan::{Planned, untouched_reason},
};

/// How long a plan is as good as a new one, which takes a walk through everything.
const FRESH: Duration = Duration::from_secs(7 * 24 * 3600);

/// The work of a run.
#[derive(Debug, Default)]
pub struct Work {
    /// The given directories, as the walk resolved them.
    pub(super) roots: Roots,
    /// Files of which something moves.
    pub(super) files: Vec<FilePlan>,
    /// The other files, by reason.
    pub skipped: BTreeMap<SkipReason, u64>,
    /// Files and folders that the walk left out.
    pub excluded: Excluded,
    /// The options with which they were planned.
    pub(super) plan_options: PlanOptions,
    /// The walk was cancelled, so that there is no whole plan: nothing will be moved.
    pub interrupted: bool,
    /// Bytes that a resumed run may still write.
    left: Option<Bytes>,
    /// The options of a resumed run.
    pub run_options: Option<RunOptions>,
    /// The stored form of the run.
    pub(super) stored: Option<StoredRun>,
}

impl Work {
    /// The work of a whole plan.
    pub fn from_planned(planned: Planned, notes: &dyn Notes) -> Self {
        let mut work = Self {
            roots: planned.roots,
            files: planned.files,
            skipped: planned.skipped,
            excluded: planned.summary.excluded,
            plan_options: planned.options,
            interrupted: planned.summary.cancelled,
            ..Self::default()
        };
        work.set_aside(notes);
        work
    }

    /// The content of a plan file. The whole of it is read before anything is modified: a damaged
    /// one is not run in part.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is damaged.
    pub fn from_file(path: &Path, notes: &dyn Notes) -> Result<Self, Error> {
        let file = File::open(path).map_err(|source| Error::Open {
            path: path.to_owned(),
            source,
        })?;
        let damaged = |source| Error::Plan {
            path: path.to_owned(),
            source,
        };
        let mut reader = PlanReader::new(BufReader::new(file)).map_err(damaged)?;
        let plan_options = reader.options().clone();
        let files = reader
            .by_ref()
            .collect::<Result<Vec<_>, _>>()
            .map_err(damaged)?;
        let mut work = Self {
            files,
            plan_options,
            ..Self::default()
        };
        renumber(&work.roots, &mut work.files);
        work.set_aside(notes);
        Ok(work)
    }

    /// The rest of the run that was stopped or killed last.
    ///
    /// # Errors
    ///
    /// There is none, or it cannot be read.
    pub fn from_rest(notes: &dyn Notes) -> Result<Self, Error> {
        let resumed = StoredRun::newest(&store::state()?)?.ok_or(Error::NothingStopped)?;
        Ok(Self::of_rest(resumed, notes))
    }

    /// The rest of the last run that was stored for this purpose, if it has something left to do, may still write, and
    /// was planned so lately that most of its plan is true.
    ///
    /// # Errors
    ///
    /// The state directory cannot be read.
    pub fn from_rest_for(purpose: &str, notes: &dyn Notes) -> Result<Option<Self>, Error> {
        let resumed = StoredRun::newest_for(&store::state()?, purpose, FRESH)?;
        let resumed = resumed.filter(|rest| !rest.plans.is_empty() && rest.left > Bytes::ZERO);
        Ok(resumed.map(|rest| Self::of_rest(rest, notes)))
    }

    fn of_rest(resumed: Resumed, notes: &dyn Notes) -> Self {
        let mut work = Self {
            files: resumed.plans,
            // A piece that a stop interrupted is written again, and counts again. With a requested
            // budget, it is charged to that; otherwise the remaining work is done, and its cost is
            // the limit.
            left: resumed.options.budget.is_some().then_some(resumed.left),
            plan_options: resumed.options,
            run_options: resumed.run_options,
            stored: Some(resumed.run),
            ..Self::default()
        };
        renumber(&work.roots, &mut work.files);
        work.set_aside(notes);
        work
    }

    /// The gain that the plan tells of the files that move.
    #[must_use]
    pub fn predicted_gain(&self) -> f64 {
        self.files.iter().map(FilePlan::gain).sum()
    }

    /// The options with which they were planned.
    #[must_use]
    pub fn plan_options(&self) -> &PlanOptions {
        &self.plan_options
    }

    /// Count the files of which nothing moves, and leave them out.
    fn set_aside(&mut self, notes: &dyn Notes) {
        let skipped = &mut self.skipped;
        self.files.retain(|plan| {
            let Some(reason) = plan.skip.or_else(|| untouched_reason(&plan.chunks)) else {
                return true;
            };
            notes.note(Note::Untouched {
                plan,
                reason,
                named: false,
            });
            *skipped.entry(reason).or_default() += 1;
            false
        });
    }

    /// The budget of the run: the requested one, and no more than a resumed run may still write.
    #[must_use]
    pub fn budget(&self, asked: Option<Bytes>) -> Option<Bytes> {
        match (asked, self.left) {
            (Some(budget), Some(left)) => Some(budget.min(left)),
            (budget, left) => budget.or(left),
        }
    }
}
