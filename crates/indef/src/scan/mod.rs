//! `indef scan`: how fragmented, where, and what it costs.
//!
//! Files stream through: of a million of them only the worst are kept.

mod heat;
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
use units::{Bytes, Nanos};

use crate::{
    Outcome,
    accesses::Accesses,
    args::ScanArgs,
    engines::Engines,
    geometry::{Geometries, Told},
    output::{Console, Progress, UNPRINTED, json::Document},
    refusal,
    signals::{self, Second},
};
use heat::{FileHeat, Heat, HotRange};
use tally::{FileScan, Tally};

/// Scan, and show.
pub(crate) fn scan(args: &ScanArgs, console: &Console) -> Result<Outcome> {
    let cancel = Cancel::new();
    signals::watch(console, &cancel, Second::Abort)?;
    let geometries = Geometries::new(args.geometry, &args.paths, console);
    let heat = match &args.profile {
        Some(path) => {
            let accesses = Accesses::load(path, args.readahead, console)?;
            Some(Heat::new(args, &geometries, accesses, console, &cancel))
        }
        None => None,
    };
    let document = console
        .json
        .then(|| Document::begin("files", Some(&cancel)));
    let progress = Progress::counting(console, "scanning");
    let tally = Mutex::new(Tally::new(args.top));
    let engines = Engines::default();
    let options = PlanOptions {
        policy: Policy::Sequential,
        io_size: args.io_size,
        geometry: geometries.main(),
        ..PlanOptions::default()
    };
    let visit = |seen: Seen| match seen {
        Seen::Problem(problem) => {
            progress.suspend(|| refusal::tell(console, &problem.path, &problem.refusal));
        }
        Seen::File(found) => {
            progress.add(1);
            match look(&options, &geometries, heat.as_ref(), &engines, found) {
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
            geometries: geometries.told(),
            heat: heat.as_ref().map(|heat| HeatJson::new(heat, tally)),
            stopped: summary.cancelled.then_some("signal"),
        }),
        None if console.quiet => Ok(()),
        None => {
            let mut out = io::stdout().lock();
            text::write(
                &mut out,
                console,
                tally,
                &summary,
                args.io_size,
                &geometries,
                heat.as_ref(),
            )
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
fn look(
    options: &PlanOptions,
    geometries: &Geometries,
    heat: Option<&Heat>,
    engines: &Engines,
    found: Found,
) -> Result<FileScan, (std::path::PathBuf, Refusal)> {
    let (layout, skip) = match found.result {
        Ok(layout) => (layout, None),
        Err(Refusal::Skip(reason)) => (Layout::default(), Some(reason)),
        Err(failed) => return Err((found.path, failed)),
    };
    let extents = layout.fragments();
    let dolf = layout.windowed_dolf(options.io_size);
    let dopf = layout.windowed_dopf(options.io_size, &geometries.of(found.fs.dev));
    // A contiguous file needs no plan to know that nothing is worth moving, and no engine.
    let skip = skip.or_else(|| match extents {
        0 | 1 => None,
        _ => engines.of(&found.fs).refused,
    });
    let worth_moving = if extents > 1 && skip.is_none() {
        let facts = FileFacts {
            size: found.size,
            block_size: found.block_size,
            layout: &layout,
            accesses: None,
        };
        plan_file(&geometries.options(options, found.fs.dev), &facts)
            .iter()
            .filter(|c| c.migrates())
            .map(|c| c.cost)
            .sum()
    } else {
        Bytes::ZERO
    };
    let heat = heat.map(|heat| {
        let sizes = (found.size, found.block_size);
        heat.of(&found.path, &found.id, sizes, &layout, geometries)
    });
    Ok(FileScan {
        heat,
        path: found.path,
        fs: found.fs,
        size: found.size,
        allocated: found.allocated,
        extents,
        ideal: layout.ideal_fragments(),
        dolf,
        dopf,
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
    dopf_mean: Option<f64>,
    dopf_max: Option<f64>,
    worth_moving_bytes: Bytes,
    skip: Option<&'a str>,
    #[serde(flatten)]
    heat: Option<FileHeatJson>,
}

/// What a profile says about a file.
#[derive(Serialize)]
struct FileHeatJson {
    reads: u64,
    writes: u64,
    reads_pct: f64,
    observed_ns: Nanos,
    lost_requests: u64,
    lost_ns: Option<Nanos>,
}

impl From<&FileHeat> for FileHeatJson {
    fn from(heat: &FileHeat) -> Self {
        Self {
            reads: heat.reads,
            writes: heat.writes,
            reads_pct: heat.share_pct,
            observed_ns: heat.observed,
            lost_requests: heat.lost.requests,
            lost_ns: heat.lost.time,
        }
    }
}

/// What a profile says about all of them.
#[derive(Serialize)]
struct HeatJson {
    /// Of the whole profile.
    reads: u64,
    lost_requests: u64,
    lost_ns: Option<Nanos>,
    /// Why no times are told.
    no_times: Option<String>,
    hottest: Vec<HotRangeJson>,
}

#[derive(Serialize)]
struct HotRangeJson {
    #[serde(flatten)]
    path: PathJson,
    start_bytes: u64,
    len_bytes: u64,
    reads: u64,
    dolf: u64,
    lost_requests: u64,
    lost_ns: Option<Nanos>,
}

impl HeatJson {
    fn new(heat: &Heat, tally: Tally) -> Self {
        let one = |range: HotRange| HotRangeJson {
            path: PathJson::from(&*range.path),
            start_bytes: range.range.start.get(),
            len_bytes: range.range.len.get(),
            reads: range.reads,
            dolf: range.dolf,
            lost_requests: range.lost.requests,
            lost_ns: range.lost.time,
        };
        Self {
            reads: heat.reads,
            lost_requests: tally.lost.requests,
            lost_ns: tally.lost.time,
            no_times: heat.calibration.as_ref().err().map(ToString::to_string),
            hottest: tally.hottest.finish().into_iter().map(one).collect(),
        }
    }
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
            dopf_mean: file.dopf.mean(),
            dopf_max: file.dopf.mean().map(|_| file.dopf.max),
            worth_moving_bytes: file.worth_moving,
            skip: file.skip.map(indef_core::SkipReason::word),
            heat: file.heat.as_ref().map(FileHeatJson::from),
        }
    }
}

#[derive(Serialize)]
struct Rest {
    totals: tally::Totals,
    io_size_bytes: Bytes,
    geometries: Vec<Told>,
    heat: Option<HeatJson>,
    stopped: Option<&'static str>,
}
