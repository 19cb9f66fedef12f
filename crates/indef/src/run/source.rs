//! Where the plans of a run come from, and where what is left of it stays.
//!
//! A run that was stopped keeps the plans of what it did not finish, as a plan file in the user's
//! state directory; `--resume` runs that. Everything is checked again then, so nothing is moved
//! twice, whatever happened meanwhile.

use std::{
    collections::{BTreeMap, HashSet},
    env,
    fs::{self, File},
    io::BufReader,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, anyhow, bail};
use indef_core::{
    SkipReason,
    plan::{FilePlan, PlanOptions, format::PlanReader, limit},
};
use indef_engine::{Cancel, run::RunResult};
use indef_fs::TargetId;

use super::outcome::untouched_file;
use crate::{
    accesses::Accesses,
    args::RunArgs,
    output::{Console, Name, json::Document},
    plan::write_plan,
    planning::{Request, plan_paths, untouched_reason},
    refusal::{advice, plain},
};

/// What is to be run.
#[derive(Debug, Default)]
pub(super) struct Source {
    /// Files of which something moves.
    pub(super) files: Vec<FilePlan>,
    /// The other files, by reason.
    pub(super) skipped: BTreeMap<SkipReason, u64>,
    /// What they were planned with.
    pub(super) plan_options: PlanOptions,
    /// Whether a signal came before everything was planned.
    pub(super) interrupted: bool,
}

/// Plan the paths, or read the plan.
pub(super) fn load(
    args: &RunArgs,
    console: &Console,
    cancel: &Cancel,
    document: Option<&Document>,
) -> Result<Source> {
    if args.resume {
        let path = rest_path()?;
        if !path.exists() {
            bail!("no run was stopped with work left: give a PATH or --plan");
        }
        return from_plan(&path, document);
    }
    match &args.plan_file {
        Some(path) => from_plan(path, document),
        None => from_paths(args, console, cancel, document),
    }
}

fn from_paths(
    args: &RunArgs,
    console: &Console,
    cancel: &Cancel,
    document: Option<&Document>,
) -> Result<Source> {
    let accesses = match &args.plan.profile {
        Some(path) => Some(Accesses::load(path, args.plan.readahead, console)?),
        None => None,
    };
    let plan_options = args.plan.options(&args.bounds);
    let request = Request {
        paths: &args.paths,
        options: &plan_options,
        engine: args.how.engine.named(),
        accesses: accesses.as_ref(),
        jobs: args.workers.count(),
    };
    let untouched = |plan: FilePlan, reason: SkipReason| {
        if let Some(document) = document {
            document.entry(&untouched_file(&plan, reason));
        }
    };
    let planned = plan_paths(&request, console, cancel, &untouched);
    let mut source = Source {
        files: planned.files,
        skipped: planned.skipped,
        plan_options,
        interrupted: planned.summary.cancelled,
    };
    limit(&mut source.files, &source.plan_options);
    set_aside(&mut source, document);
    Ok(source)
}

/// Read the whole plan before anything is touched: a damaged one is not run in part.
fn from_plan(path: &Path, document: Option<&Document>) -> Result<Source> {
    let file = File::open(path)
        .map_err(|error| anyhow!("{}: {}: {}", Name(path), plain(&error), advice(&error)))?;
    let named = |error| anyhow!("{}: {error}", Name(path));
    let mut reader = PlanReader::new(BufReader::new(file)).map_err(named)?;
    let plan_options = reader.options().clone();
    let files = reader
        .by_ref()
        .collect::<Result<Vec<_>, _>>()
        .map_err(named)?;
    let mut source = Source {
        files,
        plan_options,
        ..Source::default()
    };
    set_aside(&mut source, document);
    Ok(source)
}

/// Count the files of which nothing moves, and leave them out.
fn set_aside(source: &mut Source, document: Option<&Document>) {
    let skipped = &mut source.skipped;
    source.files.retain(|plan| {
        let Some(reason) = plan.skip.or_else(|| untouched_reason(&plan.chunks)) else {
            return true;
        };
        if let Some(document) = document {
            document.entry(&untouched_file(plan, reason));
        }
        *skipped.entry(reason).or_default() += 1;
        false
    });
}

/// Keep the plans of the files that were not finished.
pub(super) fn keep_rest(
    files: &[FilePlan],
    result: &RunResult,
    options: &PlanOptions,
) -> Result<()> {
    let finished: HashSet<TargetId> = result
        .files
        .iter()
        .filter(|file| !file.is_unfinished())
        .map(|file| file.id)
        .collect();
    let rest = files.iter().filter(|plan| {
        !finished.contains(&TargetId {
            dev: plan.dev,
            inode: plan.inode,
        })
    });
    let path = rest_path()?;
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).with_context(|| format!("{}: cannot make it", Name(dir)))?;
    }
    write_plan(&path, options, rest)
}

/// The run that was stopped is complete now.
pub(super) fn forget_rest() {
    if let Ok(path) = rest_path() {
        // It may be gone already.
        let _ = fs::remove_file(path);
    }
}

/// In the state directory of the user (XDG Base Directory Specification 0.8).
fn rest_path() -> Result<PathBuf> {
    let absolute = |path: PathBuf| path.is_absolute().then_some(path);
    env::var_os("XDG_STATE_HOME")
        .map(PathBuf::from)
        .and_then(absolute)
        .or_else(|| {
            env::home_dir()
                .and_then(absolute)
                .map(|home| home.join(".local/state"))
        })
        .map(|state| state.join("indef/stopped.plan"))
        .ok_or_else(|| anyhow!("no state directory: set HOME or XDG_STATE_HOME"))
}
