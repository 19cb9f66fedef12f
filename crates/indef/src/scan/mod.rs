//! `indef scan`: how fragmented, where, and what it costs.
//!
//! Files stream through: of a million of them only the worst are kept.

mod tally;
mod text;

use std::{
    io,
    sync::{Mutex, PoisonError},
};

use anyhow::{Context, Result};
use indef_core::{
    layout::Layout,
    plan::{FileFacts, PathJson, PlanOptions, Policy, plan_file},
};
use indef_engine::{
    Cancel,
    collect::{CollectOptions, Found, Seen, collect},
};
use indef_fs::Refusal;
use serde::Serialize;
use units::Bytes;

use crate::{
    Outcome,
    args::ScanArgs,
    output::{Console, Progress, UNPRINTED, json::Document},
    refusal,
    signals::{self, Second},
};
use tally::{FileScan, Tally};

/// Scan, and show.
pub(crate) fn scan(args: &ScanArgs, console: &Console) -> Result<Outcome> {
    let cancel = Cancel::new();
    signals::watch(console, &cancel, Second::Abort)?;
    let document = console
        .json
        .then(|| Document::begin("files", Some(&cancel)));
    let progress = Progress::counting(console, "scanning");
    let tally = Mutex::new(Tally::new(args.top));
    let options = PlanOptions {
        policy: Policy::Sequential,
        io_size: args.io_size,
        ..PlanOptions::default()
    };
    let visit = |seen: Seen| match seen {
        Seen::Problem(problem) => {
            progress.suspend(|| refusal::tell(console, &problem.path, &problem.refusal));
        }
        Seen::File(found) => {
            progress.add(1);
            match look(&options, found) {
                Ok(file) => {
                    if let Some(document) = &document {
                        document.entry(&FileJson::from(&file));
                    }
                    tally
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .add(file);
                }
                Err((path, refused)) => {
                    progress.suspend(|| refusal::tell(console, &path, &refused));
                }
            }
        }
    };
    let collect_options = CollectOptions {
        jobs: args.workers.count(),
        sync: false,
        ..CollectOptions::default()
    };
    let summary = collect(&args.paths, &collect_options, &cancel, &visit);
    progress.finish();
    let tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
    let printed = match document {
        Some(document) => document.end(&Rest {
            totals: tally.totals(&summary),
            io_size_bytes: args.io_size,
            stopped: summary.cancelled.then_some("signal"),
        }),
        None if console.quiet => Ok(()),
        None => {
            let mut out = io::stdout().lock();
            text::write(&mut out, console, &tally, &summary, args.io_size)
        }
    };
    printed.context(UNPRINTED)?;
    Ok(if summary.cancelled {
        Outcome::Stopped
    } else {
        Outcome::Done
    })
}

/// Everything that a scan says about a file.
fn look(options: &PlanOptions, found: Found) -> Result<FileScan, (std::path::PathBuf, Refusal)> {
    let (layout, skip) = match found.result {
        Ok(layout) => (layout, None),
        Err(Refusal::Skip(reason)) => (Layout::default(), Some(reason)),
        Err(failed) => return Err((found.path, failed)),
    };
    let extents = layout.fragments();
    let dolf = layout.windowed_dolf(options.io_size);
    // A contiguous file needs no plan to know that nothing is worth moving.
    let worth_moving = if extents > 1 {
        let facts = FileFacts {
            size: found.size,
            block_size: found.block_size,
            layout: &layout,
            accesses: None,
        };
        plan_file(options, &facts)
            .iter()
            .filter(|c| c.migrates())
            .map(|c| c.cost)
            .sum()
    } else {
        Bytes::ZERO
    };
    Ok(FileScan {
        path: found.path,
        fs: found.fs,
        size: found.size,
        allocated: found.allocated,
        extents,
        ideal: layout.ideal_fragments(),
        dolf,
        worth_moving,
        skip,
    })
}

#[derive(Serialize)]
struct FileJson<'a> {
    #[serde(flatten)]
    path: PathJson,
    fs: String,
    size_bytes: Bytes,
    allocated_bytes: Bytes,
    extents: u64,
    ideal_extents: u64,
    dof: f64,
    dolf_mean: f64,
    dolf_max: u64,
    worth_moving_bytes: Bytes,
    skip: Option<&'a str>,
}

impl<'a> From<&'a FileScan> for FileJson<'a> {
    fn from(file: &'a FileScan) -> Self {
        Self {
            path: PathJson::from(file.path.as_path()),
            fs: file.fs.kind.to_string(),
            size_bytes: file.size,
            allocated_bytes: file.allocated,
            extents: file.extents,
            ideal_extents: file.ideal,
            dof: file.dof(),
            dolf_mean: file.dolf.mean(),
            dolf_max: file.dolf.max,
            worth_moving_bytes: file.worth_moving,
            skip: file.skip.map(indef_core::SkipReason::word),
        }
    }
}

#[derive(Serialize)]
struct Rest {
    totals: tally::Totals,
    io_size_bytes: Bytes,
    stopped: Option<&'static str>,
}
