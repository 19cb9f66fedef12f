//! `indef compact`: free space made whole.

mod json;
mod text;

use std::{io, slice};

use anyhow::{Context, Result};
use indef_engine::collect::Select;
use indef_pipeline::{
    Cancel, Note,
    compact::{CompactEnd, Compactor},
    run::is_free,
};
use units::Bytes;

use crate::{
    args::CompactArgs,
    made::Made,
    notes::tell,
    outcome::Outcome,
    output::{Console, UNPRINTED, json::Document},
    recorder::{self, Recorder},
    refusal::explain,
    run::{Watch, on_yield},
    signals::{self, Second},
};

/// Make free space whole, and show the result.
pub(crate) fn compact(args: &CompactArgs, console: &Console) -> Result<Outcome> {
    let cancel = Cancel::new();
    signals::watch(console, &cancel, Second::Abort)?;
    let options = args.run_options();
    let select = Select::new(args.exclude.exclude.iter().cloned(), Bytes::ZERO)?;
    let given = slice::from_ref(&args.path);
    let record = Recorder::begin("compact", options.dry_run, console);
    if !options.dry_run
        && let Err(error) = is_free(given).map_err(explain)
    {
        record.failed(given, &error);
        return Err(error);
    }
    let document = console
        .json
        .then(|| Document::begin("files", &Made::of(given), None));
    let watch = Watch::new(console, document.as_ref());
    let compactor = Compactor {
        path: args.path.clone(),
        select,
        want: args.want,
        walkers: args.workers.count(),
        options,
        cancel: &cancel,
        observer: &watch,
        notes: &|note: Note<'_>| watch.suspend(|| tell(console, note)),
        on_yield: Some(on_yield(console)),
    };
    let done = compactor.compact().map_err(explain);
    watch.finish();
    drop(watch);
    let (done, failure) = match done {
        Ok(mut done) => {
            let failure = done.error.take().map(explain);
            let outcome = recorder::of_compact(&done, failure.as_ref());
            record.end(given, &[], outcome);
            (done, failure)
        }
        // A begun document is ended, so that it stays valid.
        Err(error) => {
            record.failed(given, &error);
            if let Some(document) = document {
                document.end(&json::CompactFailed::new(&error))?;
            }
            return Err(error);
        }
    };
    let printed = match document {
        Some(document) => {
            let why = failure.as_ref();
            document.end(&json::CompactRest::new(&args.path, &done, why))
        }
        None if console.quiet => Ok(()),
        None => text::write(&mut io::stdout().lock(), console, &args.path, &done),
    };
    match printed {
        // The work is done, whether or not the result is read.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        printed => printed.context(UNPRINTED)?,
    }
    if let Some(error) = failure {
        return Err(error);
    }
    Ok(match done.end {
        CompactEnd::Stopped(_) | CompactEnd::Budget | CompactEnd::Short => Outcome::Stopped,
        CompactEnd::Whole
        | CompactEnd::Reached
        | CompactEnd::DryRun
        | CompactEnd::NoRegion
        | CompactEnd::Failed => Outcome::Done,
    })
}
