//! Where the plans of a run come from, and where what is left of it stays: the engine stores every
//! run while it goes on, so that one that was stopped or killed can go on.

use std::{
    collections::BTreeMap,
    fs::File,
    io::BufReader,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, anyhow, bail};
use indef_core::{
    SkipReason,
    plan::{FilePlan, PlanOptions, format::PlanReader, limit},
};
use indef_engine::{
    Cancel,
    resume::{StoredRun, state_directory},
};
use indef_fs::Roots;
use units::Bytes;

use super::outcome::untouched_file;
use crate::{
    accesses::Accesses,
    args::RunArgs,
    geometry::Geometries,
    output::{Console, Name, json::Document},
    planning::{Request, plan_paths, untouched_reason},
    refusal::{advice, plain},
    weighing,
};

/// What is to be run.
#[derive(Debug, Default)]
pub(super) struct Source {
    /// The directories that were given, as the walk resolved them.
    pub(super) roots: Roots,
    /// Files of which something moves.
    pub(super) files: Vec<FilePlan>,
    /// The other files, by reason.
    pub(super) skipped: BTreeMap<SkipReason, u64>,
    /// What they were planned with.
    pub(super) plan_options: PlanOptions,
    /// Whether a signal came before everything was planned.
    pub(super) interrupted: bool,
    /// What a resumed run may still write.
    pub(super) left: Option<Bytes>,
    /// The run as the engine keeps it.
    pub(super) stored: Option<StoredRun>,
}

/// Plan the paths, or read the plan.
pub(super) fn load(
    args: &RunArgs,
    console: &Console,
    cancel: &Cancel,
    document: Option<&Document>,
) -> Result<Source> {
    if args.resume {
        return from_rest(document);
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
    let geometries = Geometries::new(args.plan.geometry, &args.paths, console);
    let mut plan_options = args.plan.options(&args.bounds, geometries.main());
    if let (true, Some(accesses)) = (args.plan.measured(), &accesses) {
        let jobs = args.workers.count();
        // What cannot be measured was noted, and is no obstacle.
        let _ = weighing::measure(
            &mut plan_options,
            &geometries,
            accesses,
            &args.paths,
            jobs,
            console,
            cancel,
        );
    }
    let roots = Roots::new();
    let request = Request {
        roots: &roots,
        paths: &args.paths,
        options: &plan_options,
        geometries: &geometries,
        engine: args.how.engine.named(),
        accesses: accesses.as_ref(),
        rankings: None,
        jobs: args.workers.count(),
    };
    let untouched = |plan: FilePlan, reason: SkipReason| {
        if let Some(document) = document {
            document.entry(&untouched_file(&plan, reason));
        }
    };
    let planned = plan_paths(&request, console, cancel, &untouched);
    let mut source = Source {
        roots,
        files: planned.files,
        skipped: planned.skipped,
        plan_options,
        interrupted: planned.summary.cancelled,
        ..Source::default()
    };
    let limited = limit(&mut source.files, &source.plan_options);
    if source.plan_options.target_gain_pct.is_some() {
        console.detail(format_args!(
            "predicted: {:.1} % of the gain with {:.1} % of the bytes",
            limited.gain_pct(),
            limited.cost_pct()
        ));
    }
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

/// The run that was stopped or killed last.
fn from_rest(document: Option<&Document>) -> Result<Source> {
    let directory = state()?;
    let Some(resumed) = StoredRun::newest(&directory)? else {
        bail!("no run was stopped with work left: give a PATH or --plan");
    };
    let mut source = Source {
        files: resumed.plans,
        // A piece that a stop interrupted is written again, and counts again. Where a budget was
        // asked for, that comes out of it; else what is left to do is done, and what it costs is
        // the limit.
        left: resumed.options.budget.is_some().then_some(resumed.left),
        plan_options: resumed.options,
        stored: Some(resumed.run),
        ..Source::default()
    };
    set_aside(&mut source, document);
    Ok(source)
}

impl Source {
    /// Store what is to be done, unless it is stored already. Where that is not possible, the run
    /// goes on without: it is safe at any time, it only cannot be resumed.
    pub(super) fn store(&mut self, budget: Option<Bytes>, console: &Console) {
        if self.stored.is_some() || self.files.is_empty() {
            return;
        }
        let cost = self
            .files
            .iter()
            .map(FilePlan::cost)
            .fold(Bytes::ZERO, Bytes::saturating_add);
        let limit = budget.map_or(cost, |budget| budget.min(cost));
        // Whoever resumes it knows by this whether a budget was asked for.
        self.plan_options.budget = budget;
        let stored = state().and_then(|directory| {
            Ok(StoredRun::create(
                &directory,
                &self.plan_options,
                &self.files,
                limit,
            )?)
        });
        match stored {
            Ok(stored) => self.stored = Some(stored),
            Err(error) => console.note(format_args!("--resume will not be possible: {error:#}")),
        }
    }
}

fn state() -> Result<PathBuf> {
    state_directory().context("no directory for the state of runs: set HOME or XDG_STATE_HOME")
}
