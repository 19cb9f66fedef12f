//! `indef run`: carry plans out, from paths, from a plan file, or from where a run was stopped.

mod observer;
mod outcome;
mod source;

use std::io;

use anyhow::{Context, Result};
use indef_core::plan::FilePlan;
use indef_engine::{
    Cancel,
    resume::StoredRun,
    run::{RunOptions, RunResult, StopCause, run_beneath},
};
use indef_fs::Roots;

use crate::{
    Outcome,
    args::{BoundArgs, HowArgs, RunArgs, Workers},
    document::RunTotals,
    output::{Console, UNPRINTED, json::Document},
    report,
    signals::{self, Second},
};
use observer::Watch;
pub(crate) use outcome::{document, run_file};
use source::Source;

/// Run, and show what became of it.
pub(crate) fn run(args: &RunArgs, console: &Console) -> Result<Outcome> {
    let cancel = Cancel::new();
    signals::watch(console, &cancel, Second::Abort)?;
    let document = console.json.then(|| Document::begin("files", None));
    let source = source::load(args, console, &cancel, document.as_ref());
    let mut source = match source {
        Ok(source) => source,
        // A document that was begun is ended, so that it stays one.
        Err(error) => {
            if let Some(document) = document {
                document.end(&outcome::Rest::default())?;
            }
            return Err(error);
        }
    };
    let base = source.run_options.unwrap_or_else(default_options);
    let mut options = options_over(base, &args.how, &args.bounds, args.workers);
    options.budget = match (options.budget, source.left) {
        (Some(budget), Some(left)) => Some(budget.min(left)),
        (budget, left) => budget.or(left),
    };
    let mut claim = None;
    if !options.dry_run && !source.interrupted {
        claim = match source.claim(console, &cancel) {
            Ok(claim) => claim,
            Err(error) => {
                if let Some(document) = document {
                    document.end(&outcome::Rest::default())?;
                }
                return Err(error);
            }
        };
        source.store(&args.paths, &options, console);
    }
    let Source {
        roots,
        files,
        skipped,
        interrupted,
        stored,
        ..
    } = source;
    let result = if interrupted {
        console.note("stopped while planning; nothing was moved");
        RunResult {
            stopped: Some(StopCause::Cancelled),
            ..RunResult::default()
        }
    } else {
        let watch = Watch::new(console, document.as_ref());
        execute(&roots, files, &options, &cancel, &watch, stored.as_ref())
    };
    drop(claim);
    let stopped = result.stopped;
    let mut totals = RunTotals::from(&result);
    totals.files_skipped += skipped.values().sum::<u64>();
    // What is left of a stopped run stays stored.
    if let Some(stored) = stored
        && stopped.is_none()
        && !options.dry_run
        && let Err(error) = stored.finish()
    {
        console.note(format_args!("{error}"));
    }
    let printed = match document {
        Some(document) => document.end(&outcome::Rest::new(&result, totals, options.dry_run)),
        None if console.quiet => Ok(()),
        None => {
            let whole = outcome::document(&result, totals, options.dry_run);
            let top = if console.verbose > 0 { usize::MAX } else { 20 };
            report::write_run(&mut io::stdout().lock(), console, &whole, &skipped, top)
        }
    };
    match printed {
        // What was done counts, whether or not somebody reads about it.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        printed => printed.context(UNPRINTED)?,
    }
    Ok(if stopped.is_some() {
        Outcome::Stopped
    } else {
        Outcome::Done
    })
}

/// The options of a run from those of the command line.
pub(crate) fn run_options(how: &HowArgs, bounds: &BoundArgs, workers: Workers) -> RunOptions {
    options_over(default_options(), how, bounds, workers)
}

fn default_options() -> RunOptions {
    RunOptions {
        jobs: Workers::default().count(),
        ..RunOptions::default()
    }
}

/// The options that were given, over those of `base`.
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

/// Carry plans out while `watch` shows it; with `stored`, so that it can be resumed.
fn execute(
    roots: &Roots,
    files: Vec<FilePlan>,
    options: &RunOptions,
    cancel: &Cancel,
    watch: &Watch<'_>,
    stored: Option<&StoredRun>,
) -> RunResult {
    let result = match stored {
        Some(stored) => run_beneath(roots, files, options, cancel, &stored.observer(watch)),
        None => run_beneath(roots, files, options, cancel, watch),
    };
    watch.finish();
    result
}

/// Carry plans out for the demo, which cannot be resumed.
pub(crate) fn execute_unstored(
    roots: &Roots,
    files: Vec<FilePlan>,
    console: &Console,
    cancel: &Cancel,
) -> RunResult {
    let watch = Watch::new(console, None);
    execute(roots, files, &RunOptions::default(), cancel, &watch, None)
}
