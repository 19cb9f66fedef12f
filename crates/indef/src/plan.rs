//! `indef plan`: what would move, what it costs, what it gains.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
    sync::{Mutex, PoisonError},
};

use anyhow::{Context, Result};
use indef_core::{
    SkipReason,
    calibrate::{Calibration, CannotCalibrate},
    plan::{
        Chunk, Decision, FilePlan, Limited, PathJson, PlanOptions, PlanTotals, format::PlanWriter,
        limit,
    },
};
use indef_engine::Cancel;
use indef_fs::Roots;
use serde::Serialize;
use units::Bytes;

use crate::{
    Outcome,
    accesses::Accesses,
    advice::Advice,
    args::PlanCommandArgs,
    engines::Engines,
    geometry::Geometries,
    output::{Align, Console, Count, Gain, Name, Table, UNPRINTED, counted, json::Document},
    planning::{Planned, Request, is_fine, plan_paths},
    signals::{self, Second},
    weighing::{self, Comparison, Rankings, WeightsJson},
};

/// Plan, and show or keep the plan.
pub(crate) fn plan(args: &PlanCommandArgs, console: &Console) -> Result<Outcome> {
    let cancel = Cancel::new();
    signals::watch(console, &cancel, Second::Abort)?;
    let accesses = match &args.plan.profile {
        Some(path) => Some(Accesses::load(path, args.plan.readahead, console)?),
        None => None,
    };
    let geometries = Geometries::new(args.plan.geometry, &args.paths, console);
    let mut options = args.plan.options(&args.bounds, geometries.main());
    let jobs = args.workers.count();
    let calibration = match (args.plan.measured(), &accesses) {
        (true, Some(accesses)) => Some(weighing::measure(
            &mut options,
            &geometries,
            accesses,
            &args.paths,
            jobs,
            console,
            &cancel,
        )),
        _ => None,
    };
    let rankings = Rankings::default();
    let request = Request {
        roots: &Roots::new(),
        paths: &args.paths,
        options: &options,
        geometries: &geometries,
        engines: &Engines::default(),
        accesses: accesses.as_ref(),
        rankings: matches!(calibration, Some(Ok(_))).then_some(&rankings),
        jobs,
    };
    let document = console
        .json
        .then(|| Document::begin("chunks", Some(&cancel)));
    // Files that are fine only count; those that somebody could do something about stay in the plan.
    let others = Mutex::new((PlanTotals::default(), Vec::new()));
    let untouched = |plan: FilePlan, reason: SkipReason| {
        if let Some(document) = &document {
            print_chunks(document, &plan);
        }
        let mut others = others.lock().unwrap_or_else(PoisonError::into_inner);
        others.0.add(&plan);
        if args.output.is_some() && !is_fine(reason) {
            others.1.push(plan);
        }
    };
    let mut planned = plan_paths(&request, console, &cancel, &untouched);
    let (mut totals, notable) = others.into_inner().unwrap_or_else(PoisonError::into_inner);
    let limited = limit(&mut planned.files, &options);
    for file in &planned.files {
        totals.add(file);
        if let Some(document) = &document {
            print_chunks(document, file);
        }
    }
    let whole = Whole {
        options,
        totals,
        limited,
        calibration,
        comparison: rankings.compare(),
    };
    let cancelled = planned.summary.cancelled;
    if let Some(path) = &args.output
        && !cancelled
    {
        write_plan(path, &whole.options, planned.files.iter().chain(&notable))?;
    }
    let printed = match document {
        Some(document) => document.end(&Rest::new(&whole, &planned)),
        None if console.quiet => Ok(()),
        None => text(&mut io::stdout().lock(), args, console, &planned, &whole),
    };
    printed.context(UNPRINTED)?;
    Ok(if cancelled {
        Outcome::Stopped
    } else {
        Outcome::Done
    })
}

/// What there is to say about all of it.
struct Whole {
    options: PlanOptions,
    totals: PlanTotals,
    limited: Limited,
    /// Where weights were to be measured: they, or why not.
    calibration: Option<Result<Calibration, CannotCalibrate>>,
    comparison: Comparison,
}

impl Whole {
    fn is_limited(&self) -> bool {
        self.options.budget.is_some() || self.options.target_gain_pct.is_some()
    }
}

/// Write a plan file: beside its place first, so that there is never half a plan under the name.
fn write_plan<'a>(
    path: &Path,
    options: &PlanOptions,
    mut files: impl Iterator<Item = &'a FilePlan>,
) -> Result<()> {
    let mut written = || -> io::Result<()> {
        if path.exists() && !path.is_file() {
            // A pipe or a device is written as it is.
            let mut writer = PlanWriter::new(BufWriter::new(File::create(path)?), options)?;
            files.try_for_each(|file| append(&mut writer, file))?;
            return writer.finish().map(drop);
        }
        let dir = match path.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir,
            _ => Path::new("."),
        };
        let mut file = tempfile::NamedTempFile::new_in(dir)?;
        let mut writer = PlanWriter::new(BufWriter::new(file.as_file_mut()), options)?;
        files.try_for_each(|file| append(&mut writer, file))?;
        writer.finish()?;
        file.as_file().sync_data()?;
        file.persist(path).map_err(|error| error.error)?;
        Ok(())
    };
    written().with_context(|| format!("{}: cannot write the plan", Name(path)))
}

/// With an absolute path: the plan may be run from anywhere.
fn append<W: Write>(writer: &mut PlanWriter<W>, file: &FilePlan) -> io::Result<()> {
    writer.write(&*indef_engine::absolute(file)?)
}

fn print_chunks(document: &Document, file: &FilePlan) {
    let path = PathJson::from(file.path.as_path());
    for chunk in &file.chunks {
        document.entry(&ChunkJson::new(&path, chunk));
    }
    if let (Some(reason), true) = (file.skip, file.chunks.is_empty()) {
        document.entry(&ChunkJson::whole(&path, file, reason));
    }
}

#[derive(Serialize)]
struct ChunkJson<'a> {
    #[serde(flatten)]
    path: &'a PathJson,
    start_bytes: u64,
    len_bytes: u64,
    reads: u64,
    writes: u64,
    dolf: u64,
    dopf: f64,
    iodp: f64,
    decision: &'static str,
    reason: Option<&'static str>,
    cost_bytes: u64,
    gain: f64,
}

impl<'a> ChunkJson<'a> {
    fn new(path: &'a PathJson, chunk: &Chunk) -> Self {
        let (decision, reason) = match chunk.decision {
            Decision::Migrate => ("migrate", None),
            Decision::Skip(reason) => ("skip", Some(reason.word())),
        };
        Self {
            path,
            start_bytes: chunk.range.start.get(),
            len_bytes: chunk.range.len.get(),
            reads: chunk.reads,
            writes: chunk.writes,
            dolf: chunk.dolf,
            dopf: chunk.dopf,
            iodp: chunk.iodp,
            decision,
            reason,
            cost_bytes: chunk.cost.get(),
            gain: chunk.gain,
        }
    }

    /// A file that is skipped before anything is measured.
    fn whole(path: &'a PathJson, file: &FilePlan, reason: SkipReason) -> Self {
        Self {
            path,
            start_bytes: 0,
            len_bytes: file.size.get(),
            reads: 0,
            writes: 0,
            dolf: 0,
            dopf: 0.0,
            iodp: 0.0,
            decision: "skip",
            reason: Some(reason.word()),
            cost_bytes: 0,
            gain: 0.0,
        }
    }
}

/// The sums of a plan, as JSON has them.
#[derive(Serialize)]
pub(crate) struct TotalsJson {
    files: u64,
    files_to_move: u64,
    chunks: u64,
    chunks_to_move: u64,
    cost_bytes: Bytes,
    gain: f64,
    total_gain: f64,
    /// Files of which nothing moves, by reason.
    skipped: BTreeMap<&'static str, u64>,
}

impl TotalsJson {
    pub(crate) fn new(totals: &PlanTotals, skipped: &BTreeMap<SkipReason, u64>) -> Self {
        Self {
            files: totals.files,
            files_to_move: totals.files_to_move,
            chunks: totals.chunks,
            chunks_to_move: totals.chunks_to_move,
            cost_bytes: totals.cost,
            gain: totals.gain,
            total_gain: totals.total_gain,
            skipped: skipped
                .iter()
                .map(|(reason, files)| (reason.word(), *files))
                .collect(),
        }
    }
}

#[derive(Serialize)]
struct Rest {
    totals: TotalsJson,
    policy: &'static str,
    weight: &'static str,
    /// What was measured; null where the paper's weights are used.
    weights: Option<WeightsJson>,
    weights_refused: Option<String>,
    prediction: Option<PredictionJson>,
    stopped: Option<&'static str>,
}

/// What a limited plan does, of what it would do without the limit.
#[derive(Serialize)]
struct PredictionJson {
    gain_pct: f64,
    cost_pct: f64,
    gain: f64,
    possible_gain: f64,
    cost_bytes: Bytes,
    possible_cost_bytes: Bytes,
}

impl Rest {
    fn new(whole: &Whole, planned: &Planned) -> Self {
        let limited = &whole.limited;
        Self {
            totals: TotalsJson::new(&whole.totals, &planned.skipped),
            policy: whole.options.policy.word(),
            weight: whole.options.weight.word(),
            weights: match &whole.calibration {
                Some(Ok(calibration)) => Some(WeightsJson::new(calibration, &whole.comparison)),
                _ => None,
            },
            weights_refused: match &whole.calibration {
                Some(Err(why)) => Some(why.to_string()),
                _ => None,
            },
            prediction: whole.is_limited().then(|| PredictionJson {
                gain_pct: limited.gain_pct(),
                cost_pct: limited.cost_pct(),
                gain: limited.gain,
                possible_gain: limited.possible_gain,
                cost_bytes: limited.cost,
                possible_cost_bytes: limited.possible_cost,
            }),
            stopped: planned.summary.cancelled.then_some("signal"),
        }
    }
}

fn text(
    out: &mut dyn Write,
    args: &PlanCommandArgs,
    console: &Console,
    planned: &Planned,
    whole: &Whole,
) -> io::Result<()> {
    best_files(out, args, console, planned, whole)?;
    if let Some(Ok(calibration)) = &whole.calibration {
        weighing::write(out, console, calibration, &whole.comparison)?;
    }
    sums(out, args, console, planned, whole)
}

fn best_files(
    out: &mut dyn Write,
    args: &PlanCommandArgs,
    console: &Console,
    planned: &Planned,
    whole: &Whole,
) -> io::Result<()> {
    let mut best: Vec<(f64, &FilePlan)> = planned
        .files
        .iter()
        .map(|file| (file.gain(), file))
        .filter(|(_, file)| file.migrating().next().is_some())
        .collect();
    best.sort_by(|a, b| b.0.total_cmp(&a.0));
    let shown = if console.verbose > 0 {
        best.len()
    } else {
        args.top.min(best.len())
    };
    if shown > 0 {
        writeln!(
            out,
            "{}",
            console.out.bold("To be moved, the highest gain first")
        )?;
        let columns = ["extents", "ranges", "cost", "gain"];
        let mut columns: Vec<_> = columns.map(|title| (title, Align::Right)).into();
        columns.extend([("engine", Align::Left), ("path", Align::Left)]);
        let mut table = Table::new(&columns);
        for (gain, file) in &best[..shown] {
            table.row(&[
                &Count(file.extents_before),
                &Count(file.runs().len() as u64),
                &file.cost(),
                &Gain(*gain, &whole.options.weight),
                &file.engine.as_deref().unwrap_or("none"),
                &Name(&file.path),
            ]);
        }
        table.write(out, console.out)?;
        if best.len() > shown {
            let more = counted((best.len() - shown) as u64, "more file", "more files");
            writeln!(
                out,
                "  {}",
                console.out.dim(&format!("and {more} (--top, --verbose)"))
            )?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn sums(
    out: &mut dyn Write,
    args: &PlanCommandArgs,
    console: &Console,
    planned: &Planned,
    whole: &Whole,
) -> io::Result<()> {
    let Whole {
        totals, limited, ..
    } = whole;
    writeln!(out, "{}", console.out.bold("Plan"))?;
    let mut line = |label: &str, text: String| writeln!(out, "  {label:<10}{text}");
    line(
        "files",
        format!(
            "{} of {} to move",
            Count(totals.files_to_move),
            Count(totals.files)
        ),
    )?;
    line(
        "chunks",
        format!(
            "{} of {} to move",
            Count(totals.chunks_to_move),
            Count(totals.chunks)
        ),
    )?;
    line("cost", format!("{} to write", totals.cost))?;
    let share = totals.gain * 100.0
        / if totals.total_gain > 0.0 {
            totals.total_gain
        } else {
            1.0
        };
    let gain = Gain(totals.gain, &whole.options.weight);
    line(
        "gain",
        format!("{gain} {}, {share:.0} % of what is possible", gain.unit()),
    )?;
    if whole.is_limited() {
        line(
            "predicted",
            format!(
                "{:.1} % of the gain with {:.1} % of the bytes ({} of {})",
                limited.gain_pct(),
                limited.cost_pct(),
                limited.cost,
                limited.possible_cost
            ),
        )?;
    }
    for (reason, files) in &planned.skipped {
        line(
            "left",
            format!("{}: {}", counted(*files, "file", "files"), reason.advice()),
        )?;
    }
    match &args.output {
        _ if planned.summary.cancelled => line("stopped", "no plan was written".to_owned()),
        Some(path) => line("next", format!("indef run --plan {}", Name(path))),
        None => Ok(()),
    }
}
