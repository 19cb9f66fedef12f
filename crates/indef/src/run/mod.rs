//! `indef run`: carry plans out, from paths, from a plan file, or from where a run was stopped.

mod observer;
mod outcome;
mod source;

use std::io;

use anyhow::{Context, Result};
use indef_core::plan::FilePlan;
use indef_engine::{
    Cancel,
    run::{RunOptions, RunResult, StopCause},
};

use crate::{
    Outcome,
    args::{BoundArgs, HowArgs, RunArgs, Workers},
    document::RunTotals,
    output::{Console, json::Document},
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
    let document = console.json.then(|| Document::begin("files", &cancel));
    let source = source::load(args, console, &cancel, document.as_ref());
    let source = match source {
        Ok(source) => source,
        // A document that was begun is ended, so that it stays one.
        Err(error) => {
            if let Some(document) = document {
                document.end(&outcome::Rest::default())?;
            }
            return Err(error);
        }
    };
    let options = run_options(&args.how, &args.bounds, args.workers);
    let Source {
        files,
        skipped,
        plan_options,
        interrupted,
    } = source;
    let left = args.how.time_limit;
    let result = if interrupted {
        // Stopped while planning: nothing is begun any more, everything is left.
        RunResult {
            stopped: Some(StopCause::Cancelled),
            ..RunResult::default()
        }
    } else {
        let options = RunOptions {
            time_limit: left,
            ..options
        };
        execute(files.clone(), &options, console, &cancel, document.as_ref())
    };
    let stopped = result.stopped;
    let mut totals = RunTotals::from(&result);
    totals.files_skipped += skipped.values().sum::<u64>();
    if stopped.is_some() && !options.dry_run {
        source::keep_rest(&files, &result, &plan_options)
            .context("cannot keep what is left to do for --resume")?;
    } else if args.resume && !options.dry_run {
        source::forget_rest();
    }
    match document {
        Some(document) => document.end(&outcome::Rest::new(&result, totals, options.dry_run))?,
        None if console.quiet => {}
        None => {
            let whole = outcome::document(&result, totals, options.dry_run);
            let top = if console.verbose > 0 { usize::MAX } else { 20 };
            report::write_run(&mut io::stdout().lock(), console, &whole, &skipped, top)?;
        }
    }
    Ok(if stopped.is_some() {
        Outcome::Stopped
    } else {
        Outcome::Done
    })
}

/// The options of a run from those of the command line.
pub(crate) fn run_options(how: &HowArgs, bounds: &BoundArgs, workers: Workers) -> RunOptions {
    RunOptions {
        jobs: workers.count(),
        queue_depth: how.queue_depth,
        engine: how.engine.named(),
        rate: how.rate,
        max_stall: how.max_stall(),
        time_limit: how.time_limit,
        budget: bounds.budget,
        min_free_pct: bounds.min_free_pct(),
        dry_run: how.dry_run,
        allow_unshare: bounds.allow_unshare,
        ..RunOptions::default()
    }
}

/// Carry plans out, with progress; failures are told as they happen, files go to the document as
/// they end.
pub(crate) fn execute(
    files: Vec<FilePlan>,
    options: &RunOptions,
    console: &Console,
    cancel: &Cancel,
    document: Option<&Document>,
) -> RunResult {
    let watch = Watch::new(console, document);
    let result = indef_engine::run::run(files, options, cancel, &watch);
    watch.finish();
    result
}
