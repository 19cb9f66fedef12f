//! `indef run`: execute plans, from paths, from a plan file, or from the rest of a stopped run.

mod configured;
mod observer;
mod outcome;

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use anyhow::{Context, Result};
use indef_core::{SkipReason, plan::FilePlan};
use indef_engine::{
    claim::Holder,
    collect::Excluded,
    history,
    run::{RunOptions, RunResult, StopCause, run_beneath},
};
use indef_fs::Roots;
use indef_pipeline::{
    Cancel, Note,
    plan::Planner,
    run::{OnYield, Runner, Work, is_free},
};

use crate::{
    args::{BoundArgs, HowArgs, RunArgs, Workers},
    chosen::Chosen,
    document::RunTotals,
    notes::{Teller, tell},
    outcome::Outcome,
    output::{Console, Gain, UNPRINTED, json::Document, print_note},
    recorder::{self, Recorder},
    refusal::explain,
    report,
    signals::{self, Second},
};
use configured::{configured, purpose};
pub(crate) use observer::Watch;
pub(crate) use outcome::document;
use outcome::{RunRest, untouched_file};

/// Run, and show the result.
pub(crate) fn run(args: &RunArgs, console: &Console) -> Result<Outcome> {
    let began = Instant::now();
    let args = &configured(args, console)?;
    let cancel = Cancel::new();
    signals::watch(console, &cancel, Second::Abort)?;
    let chosen = Chosen::of(&args.paths, &args.files, console)?;
    let document = console
        .json
        .then(|| Document::begin("files", &chosen.made(), None));
    let record = Recorder::begin("run", args.how.dry_run, console);
    let watch = Watch::new(console, document.as_ref());
    let problems = AtomicU64::new(0);
    let done = load(
        args,
        &chosen,
        console,
        &cancel,
        document.as_ref(),
        &problems,
    )
    .and_then(|work| carry_out(args, &chosen, work, began, console, &cancel, &watch));
    watch.finish();
    drop(watch);
    let problems = problems.into_inner();
    match &done {
        Ok(done) => record.end(&chosen.paths, &done.result.files, done.record(problems)),
        Err(error) => record.failed(&chosen.paths, error),
    }
    let done = match done {
        Ok(done) => done,
        // A begun document is ended, so that it stays valid.
        Err(error) => {
            if let Some(document) = document {
                document.end(&RunRest::failed(&error, args.how.dry_run))?;
            }
            return Err(error);
        }
    };
    let CompletedRun {
        result,
        skipped,
        excluded,
        dry_run,
        predicted_gain: _,
    } = done;
    let stopped = result.stopped;
    let mut totals = RunTotals::from(&result);
    totals.files_skipped += skipped.values().sum::<u64>();
    totals.excluded = excluded.into();
    totals.problems = problems;
    let printed = match document {
        Some(document) => document.end(&RunRest::new(&result, totals, dry_run)),
        None if console.quiet => Ok(()),
        None => {
            let whole = outcome::document(&result, totals, dry_run);
            let top = if console.verbose > 0 { usize::MAX } else { 20 };
            report::write_run(&mut io::stdout().lock(), console, &whole, &skipped, top)
        }
    };
    match printed {
        // The work is done, whether or not the result is read.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        printed => printed.context(UNPRINTED)?,
    }
    Ok(match stopped {
        Some(StopCause::Cancelled | StopCause::TimeLimit) => Outcome::Stopped,
        // A failure, which was told.
        Some(StopCause::Journal | StopCause::DeviceFull) | None => Outcome::Done,
    })
}

/// Plan the paths, read the plan, or load the rest of a stopped run. Counts the paths that cannot be looked at.
fn load(
    args: &RunArgs,
    chosen: &Chosen,
    console: &Console,
    cancel: &Cancel,
    document: Option<&Document>,
    problems: &AtomicU64,
) -> Result<Work> {
    let teller = Teller::new(console, "planning");
    let notes = |note: Note<'_>| {
        if let (Note::Untouched { plan, reason, .. }, Some(document)) = (note, document) {
            document.entry(&untouched_file(plan, reason));
        }
        problems.fetch_add(note.is_problem().into(), Ordering::Relaxed);
        teller.tell(note);
    };
    if args.resume {
        return Work::from_rest(&notes).map_err(explain);
    }
    if let Some(purpose) = purpose(args)
        && let Some(work) = Work::from_rest_for(&purpose, &notes).map_err(explain)?
    {
        console.note("goes on with the rest of the last run with these options, which was stopped");
        return Ok(work);
    }
    if !args.how.dry_run {
        is_free(&chosen.paths).map_err(explain)?;
    }
    if let Some(path) = &args.plan_file {
        return Work::from_file(path, &notes).map_err(explain);
    }
    let planner = Planner {
        engine: args.how.engine(),
        ..chosen.planner(args.plan.planner(&args.bounds, args.workers.count()))
    };
    let planned = planner.plan(cancel, &notes).map_err(explain)?;
    teller.finish();
    if planned.options.target_gain_pct.is_some() {
        console.detail(format_args!(
            "predicted: {:.1} % of the gain with {:.1} % of the bytes",
            planned.limited.gain_pct(),
            planned.limited.cost_pct()
        ));
    }
    Ok(Work::from_planned(planned, &notes))
}

/// A completed run.
struct CompletedRun {
    result: RunResult,
    /// Files without a range to move, by reason.
    skipped: BTreeMap<SkipReason, u64>,
    /// Entries that the walk left out.
    excluded: Excluded,
    dry_run: bool,
    /// The gain that the plan told, and its unit.
    predicted_gain: (f64, &'static str),
}

impl CompletedRun {
    /// What the history keeps of it.
    fn record(&self, problems: u64) -> history::Outcome {
        let (gain, unit) = self.predicted_gain;
        history::Outcome {
            predicted_gain: Some(gain),
            predicted_gain_unit: Some(unit.to_owned()),
            problems,
            ..recorder::of_run(&self.result, &self.skipped)
        }
    }
}

/// Tell why a run ends before its work is done.
pub(crate) fn on_yield(console: &Console) -> OnYield {
    let quiet = console.quiet;
    Arc::new(move |holder: &Holder| {
        if !quiet {
            print_note(format_args!(
                "root's run works here now, this one stops: {holder}"
            ));
        }
    })
}

fn carry_out(
    args: &RunArgs,
    chosen: &Chosen,
    mut work: Work,
    began: Instant,
    console: &Console,
    cancel: &Cancel,
    watch: &Watch<'_>,
) -> Result<CompletedRun> {
    let base = work.run_options.unwrap_or_default();
    let mut options = options_over(base, &args.how, &args.bounds, args.workers);
    options.budget = work.budget(options.budget);
    // What planning took is gone.
    options.time_limit = { options.time_limit }.map(|limit| limit.saturating_sub(began.elapsed()));
    if work.interrupted {
        console.note("stopped while planning; nothing was moved");
    }
    let (skipped, excluded) = (std::mem::take(&mut work.skipped), work.excluded);
    let gain = Gain(work.predicted_gain(), work.plan_options());
    let predicted_gain = (gain.0, gain.unit_word());
    let purpose = purpose(args);
    let runner = Runner {
        options,
        purpose: purpose.as_deref(),
        given: chosen.covered(),
        cancel,
        observer: watch,
        notes: &|note: Note<'_>| watch.suspend(|| tell(console, note)),
        on_yield: Some(on_yield(console)),
        store: true,
    };
    let result = runner.run(work).map_err(explain)?;
    Ok(CompletedRun {
        result,
        skipped,
        excluded,
        dry_run: options.dry_run,
        predicted_gain,
    })
}

/// The options of a run from those of the command line.
pub(crate) fn run_options(how: &HowArgs, bounds: &BoundArgs, workers: Workers) -> RunOptions {
    options_over(RunOptions::default(), how, bounds, workers)
}

/// The given options, falling back to those of `base`.
fn options_over(
    base: RunOptions,
    how: &HowArgs,
    bounds: &BoundArgs,
    workers: Workers,
) -> RunOptions {
    let base = RunOptions {
        jobs: workers.given().unwrap_or(base.jobs),
        ..base
    };
    bounds.over(how.over(base))
}

/// Execute plans for the demo: neither claimed nor stored, since no other process knows the
/// files.
pub(crate) fn execute_unstored(
    roots: &Roots,
    files: Vec<FilePlan>,
    console: &Console,
    cancel: &Cancel,
) -> RunResult {
    let watch = Watch::new(console, None);
    let result = run_beneath(roots, files, &RunOptions::default(), cancel, &watch);
    watch.finish();
    result
}
