//! The stored form of a run, so that a stopped or killed one can be resumed.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use indef_core::{
    SkipReason,
    plan::{FilePlan, PlanOptions},
};
use indef_engine::{
    resume::{StoredRun, state_directory},
    run::RunOptions,
};
use indef_fs::{Mounts, Refusal, Roots};
use units::Bytes;

use crate::{
    error::Error,
    note::{Note, Notes},
};

/// Store the work. Where that is not possible, the run goes on without: it is safe at any time, it
/// only cannot be resumed.
///
/// Earlier runs without any other work left are then of no use any more.
pub(super) fn store(
    files: &[FilePlan],
    plan_options: &PlanOptions,
    (given, roots): (&[PathBuf], &Roots),
    options: &RunOptions,
    notes: &dyn Notes,
) -> Option<StoredRun> {
    let mut stored = None;
    if !files.is_empty() {
        match store_anew(files, plan_options, options) {
            Ok(new) => stored = Some(new),
            Err(error) => {
                // Then the rest of earlier runs is all that can be resumed.
                notes.note(Note::NotStored(&error));
                return None;
            }
        }
    }
    let superseded = state().and_then(|directory| {
        let covered = covers(files, plan_options, given, roots);
        Ok(StoredRun::supersede(&directory, &covered)?)
    });
    if let Err(error) = superseded {
        tracing::debug!(%error, "what is left of runs stays");
    }
    stored
}

/// Whether this run does everything that an earlier one has to do with a file: it was examined because
/// it lies below a given path, or it is planned, and for the same purpose. A run that gives space back
/// leaves fragments as they are, and one that moves fragments gives nothing back.
fn covers<'a>(
    files: &[FilePlan],
    options: &PlanOptions,
    given: &'a [PathBuf],
    roots: &'a Roots,
) -> impl Fn(&PlanOptions, &FilePlan) -> bool + use<'a> {
    let reclaims = options.reclaim_ratio.is_some();
    let given: Vec<_> = given.iter().map(|path| (path, names(path))).collect();
    let planned: HashSet<(u64, u64)> = files.iter().map(|plan| (plan.dev, plan.inode)).collect();
    move |old_options, old| {
        old_options.reclaim_ratio.is_some() == reclaims
            && (planned.contains(&(old.dev, old.inode))
                || (given.iter()).any(|(path, names)| was_looked_at(path, names, old, roots)))
    }
}

/// A path as it was given, and without links.
fn names(path: &Path) -> Vec<PathBuf> {
    let names = [std::path::absolute(path), path.canonicalize()];
    names.into_iter().flatten().collect()
}

/// Whether a walk of this path, with these names, looks at a file, if that is still there: a walk follows no link, and leaves
/// neither the file system nor the mount of the path.
fn was_looked_at(path: &Path, names: &[PathBuf], file: &FilePlan, roots: &Roots) -> bool {
    let below = |name: &PathBuf| file.path.strip_prefix(name).ok();
    let Some(below) = names.iter().find_map(below) else {
        return false;
    };
    // The path of a file is that of the file alone.
    if below.as_os_str().is_empty() {
        return true;
    }
    let Ok(root) = roots.get(path, Mounts::Stay) else {
        return false;
    };
    let is_here = root.id().dev == file.dev;
    match root.find(below) {
        // Its device may have another number by now.
        Ok(found) => is_here || found.id().inode == file.inode,
        Err(Refusal::Skip(SkipReason::Gone)) => is_here,
        Err(_) => false,
    }
}

fn store_anew(
    files: &[FilePlan],
    plan_options: &PlanOptions,
    options: &RunOptions,
) -> Result<StoredRun, Error> {
    let budget = options.budget;
    let cost = files
        .iter()
        .map(FilePlan::cost)
        .fold(Bytes::ZERO, Bytes::saturating_add);
    let limit = budget.map_or(cost, |budget| budget.min(cost));
    // A resumed run finds out from this whether a budget was requested.
    let plan_options = PlanOptions {
        budget,
        ..plan_options.clone()
    };
    let directory = state()?;
    Ok(StoredRun::create(
        &directory,
        &plan_options,
        files,
        limit,
        options,
    )?)
}

pub(super) fn state() -> Result<PathBuf, Error> {
    state_directory().map_err(Error::NoStateDirectory)
}
