//! Where the plans of a run come from, and where what is left of it stays: the engine stores every
//! run while it goes on, so that one that was stopped or killed can go on.

use std::{
    collections::{BTreeMap, HashSet},
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
    claim::{Claim, ClaimError, holder},
    resume::{StoredRun, state_directory},
    run::RunOptions,
};
use indef_fs::{FileSystemKey, Mounts, Roots};
use rustix::fs::{Mode, OFlags, open};
use units::Bytes;

use super::outcome::untouched_file;
use crate::{
    accesses::Accesses,
    args::RunArgs,
    engines::Engines,
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
    /// What a resumed run was told.
    pub(super) run_options: Option<RunOptions>,
    /// The run as the engine keeps it.
    pub(super) stored: Option<StoredRun>,
}

/// Look whether another run works on the file systems of the given paths: better before a long walk
/// than after it.
fn is_free(paths: &[PathBuf]) -> Result<()> {
    for path in paths {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let key = open(path, flags, Mode::empty())
            .map_err(std::io::Error::from)
            .and_then(FileSystemKey::of);
        // What cannot be looked at is told by the walk.
        let Ok(key) = key else { continue };
        if let Ok(Some(holder)) = holder(&[key]) {
            bail!("{}: {}", Name(path), ClaimError::Held(holder));
        }
    }
    Ok(())
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
    if !args.how.dry_run {
        is_free(&args.paths)?;
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
        engines: &Engines::new(args.how.engine()),
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
        run_options: resumed.run_options,
        stored: Some(resumed.run),
        ..Source::default()
    };
    set_aside(&mut source, document);
    Ok(source)
}

impl Source {
    /// Claim the file systems that this run will work on: another one there would move the same
    /// files, and both write everything. A user's run ends in order when root's begins.
    pub(super) fn claim(&self, console: &Console, cancel: &Cancel) -> Result<Option<Claim>> {
        let keys = self.file_systems();
        let mut claim = match Claim::take(keys.iter().map(|(key, _)| key.clone())) {
            Ok(claim) => claim,
            Err(ClaimError::Held(holder)) => {
                let place = keys
                    .iter()
                    .find(|(key, _)| matches!(self::holder(std::slice::from_ref(key)), Ok(Some(_))))
                    .or(keys.first())
                    .map_or_else(String::new, |(_, path)| format!("{}: ", Name(path)));
                bail!("{place}{}", ClaimError::Held(holder));
            }
            Err(error) => {
                console.note(format_args!("{error}; another run is not kept off"));
                return Ok(None);
            }
        };
        let (cancel, quiet) = (cancel.clone(), console.quiet);
        claim.watch(move |holder| {
            if !quiet {
                eprintln!("indef: root's run works here now, this one stops: {holder}");
            }
            cancel.cancel();
        });
        Ok(Some(claim))
    }

    /// The file systems of the planned files, each with a path on it.
    fn file_systems(&self) -> Vec<(FileSystemKey, PathBuf)> {
        let mut devices = HashSet::new();
        let mut keys = Vec::new();
        for plan in &self.files {
            if devices.contains(&plan.dev) {
                continue;
            }
            let Some((root, below)) = plan.place() else {
                continue;
            };
            let mounts = match plan.root_len {
                Some(_) => Mounts::Stay,
                None => Mounts::Cross,
            };
            // One that is gone by now tells nothing; another one does.
            let entry = self
                .roots
                .get(root, mounts)
                .and_then(|root| root.find(below));
            if let Ok(entry) = entry
                && entry.id().dev == plan.dev
                && let Ok(key) = FileSystemKey::of(&entry)
            {
                devices.insert(plan.dev);
                let path = match root.as_os_str().is_empty() {
                    true => &plan.path,
                    false => root,
                };
                keys.push((key, path.to_owned()));
            }
        }
        keys
    }

    /// Store what is to be done, unless it is stored already. Where that is not possible, the run
    /// goes on without: it is safe at any time, it only cannot be resumed.
    ///
    /// Runs of before that had nothing else left to do are then of no use any more.
    pub(super) fn store(&mut self, given: &[PathBuf], options: &RunOptions, console: &Console) {
        if let Some(stored) = &self.stored {
            return stored.continue_with(options);
        }
        if !self.files.is_empty() {
            self.store_anew(options, console);
            // Then what is left of before is all that can be resumed.
            if self.stored.is_none() {
                return;
            }
        }
        let superseded = state().and_then(|directory| {
            let covered = self.covers(given);
            Ok(StoredRun::supersede(&directory, &covered)?)
        });
        if let Err(error) = superseded {
            tracing::debug!(error = %format_args!("{error:#}"), "what is left of runs stays");
        }
    }

    /// Whether this run does all that there is to do with a file: it was looked at because it lies
    /// below a given path, or it is planned.
    fn covers(&self, given: &[PathBuf]) -> impl Fn(&FilePlan) -> bool + use<> {
        let given: Vec<PathBuf> = given
            .iter()
            .flat_map(|path| [std::path::absolute(path), path.canonicalize()])
            .flatten()
            .collect();
        let planned: HashSet<(u64, u64)> = self
            .files
            .iter()
            .map(|plan| (plan.dev, plan.inode))
            .collect();
        move |old| {
            planned.contains(&(old.dev, old.inode))
                || given.iter().any(|path| old.path.starts_with(path))
        }
    }

    fn store_anew(&mut self, options: &RunOptions, console: &Console) {
        let budget = options.budget;
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
                options,
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
