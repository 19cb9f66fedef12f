//! `indef plan`: the ranges to move, with their cost and gain.

mod weights;

use std::{
    collections::BTreeMap,
    fmt::Display,
    io::{self, Write},
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::{Context, Result};
use indef_core::{
    SkipReason,
    plan::{Chunk, Decision, FilePlan, PathJson, PlanTotals, Weight},
};
use indef_pipeline::{
    Cancel, Note,
    plan::{Planned, Planner, write},
};
use serde::Serialize;
use units::{Bytes, PhysOffset};

use crate::{
    advice::Advice,
    args::{Calibrate, PlanCommandArgs},
    chosen::Chosen,
    excluded::ExcludedJson,
    notes::Teller,
    outcome::Outcome,
    output::{Align, Console, Count, Gain, Name, Table, UNPRINTED, counted, json::Document},
    refusal::explain,
    signals::{self, Second},
};
use weights::{ReadTimeJson, WeightsJson};

/// Plan, and show or store the plan.
pub(crate) fn plan(args: &PlanCommandArgs, console: &Console) -> Result<Outcome> {
    let cancel = Cancel::new();
    signals::watch(console, &cancel, Second::Abort)?;
    let chosen = Chosen::of(&args.paths, &args.files, console)?;
    let planner = Planner {
        compare: true,
        keep_notable: args.output.is_some(),
        calibrate: args.calibrate.map(Calibrate::replay),
        ..chosen.planner(args.plan.planner(&args.bounds, args.workers.count()))
    };
    if args.calibrate.is_some() && !planner.measured {
        console.note("--calibrate has no effect: it measures for --weight measured");
    }
    // Begun with the walk: an earlier failure has a document of its own.
    let document: OnceLock<Document> = OnceLock::new();
    let teller = Teller::new(console, "planning");
    let problems = AtomicU64::new(0);
    let notes = |note: Note<'_>| {
        problems.fetch_add(note.is_problem().into(), Ordering::Relaxed);
        if let (Note::Walk, true) = (note, console.json) {
            document.get_or_init(|| Document::begin("chunks", &chosen.made(), Some(&cancel)));
        }
        if let (Note::Untouched { plan, .. }, Some(document)) = (note, document.get()) {
            print_chunks(document, plan);
        }
        teller.tell(note);
    };
    let planned = planner.plan(&cancel, &notes).map_err(explain)?;
    drop(teller);
    let problems = problems.into_inner();
    let document = document.into_inner();
    if let Some(document) = &document {
        for file in &planned.files {
            print_chunks(document, file);
        }
    }
    let cancelled = planned.summary.cancelled;
    if let Some(path) = &args.output
        && !cancelled
    {
        let files = planned.files.iter().chain(&planned.notable);
        write(path, &planned.options, files).map_err(explain)?;
    }
    let printed = match document {
        Some(document) => document.end(&PlanRest::new(&planned, problems)),
        None if console.quiet => Ok(()),
        None => text(&mut io::stdout().lock(), args, console, &planned, problems),
    };
    printed.context(UNPRINTED)?;
    Ok(if cancelled {
        Outcome::Stopped
    } else {
        Outcome::Done
    })
}

/// Whether a limit was given, so that there is something to predict.
fn is_limited(planned: &Planned) -> bool {
    planned.options.budget.is_some() || planned.options.target_gain_pct.is_some()
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
    /// The extent that comes free once all chunks of the file that name it have moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    lets_go_bytes: Option<u64>,
    /// Other files that move along, and the part of the cost that is metadata of theirs.
    #[serde(skip_serializing_if = "Option::is_none")]
    holders: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata_bytes: Option<u64>,
}

impl<'a> ChunkJson<'a> {
    fn new(path: &'a PathJson, chunk: &Chunk) -> Self {
        let (decision, reason) = match chunk.decision {
            Decision::Migrate => ("migrate", None),
            Decision::Skip(reason) => ("skip", Some(reason.as_str())),
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
            lets_go_bytes: chunk.lets_go.map(PhysOffset::get),
            holders: chunk.shared.map(|shared| shared.holders),
            metadata_bytes: chunk.shared.map(|shared| shared.metadata.get()),
        }
    }

    /// The entry of a file that is skipped before anything is measured.
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
            reason: Some(reason.as_str()),
            cost_bytes: 0,
            gain: 0.0,
            lets_go_bytes: None,
            holders: None,
            metadata_bytes: None,
        }
    }
}

/// The sums of a plan, for JSON.
#[derive(Serialize)]
pub(crate) struct TotalsJson {
    files: u64,
    files_to_move: u64,
    chunks: u64,
    chunks_to_move: u64,
    cost_bytes: Bytes,
    /// The part of it that is metadata of files that share what moves.
    metadata_bytes: Bytes,
    gain: f64,
    total_gain: f64,
    /// Files of which nothing moves, by reason.
    skipped: BTreeMap<&'static str, u64>,
    /// Of the walk; a plan file does not tell.
    #[serde(flatten)]
    walk: Option<WalkJson>,
}

/// What the walk did not look at.
#[derive(Serialize)]
pub(crate) struct WalkJson {
    /// Paths that could not be looked at.
    problems: u64,
    #[serde(flatten)]
    excluded: ExcludedJson,
}

impl TotalsJson {
    pub(crate) fn new(
        totals: &PlanTotals,
        skipped: &BTreeMap<SkipReason, u64>,
        walk: Option<WalkJson>,
    ) -> Self {
        Self {
            files: totals.files,
            files_to_move: totals.files_to_move,
            chunks: totals.chunks,
            chunks_to_move: totals.chunks_to_move,
            cost_bytes: totals.cost,
            metadata_bytes: totals.metadata,
            gain: totals.gain,
            total_gain: totals.total_gain,
            skipped: skipped
                .iter()
                .map(|(reason, files)| (reason.as_str(), *files))
                .collect(),
            walk,
        }
    }
}

#[derive(Serialize)]
struct PlanRest {
    totals: TotalsJson,
    policy: &'static str,
    /// The ratio of bytes that come free to bytes written; null where no space is given back.
    reclaim_ratio: Option<f64>,
    weight: &'static str,
    /// The measured weights; null where the paper's weights are used.
    weights: Option<WeightsJson>,
    weights_refused: Option<String>,
    nothing_to_gain: Option<String>,
    prediction: Option<PredictionJson>,
    read_time: Option<ReadTimeJson>,
    stopped: Option<&'static str>,
}

/// The effect of a limited plan, compared with the same plan without the limit.
#[derive(Serialize)]
struct PredictionJson {
    gain_pct: f64,
    cost_pct: f64,
    gain: f64,
    possible_gain: f64,
    cost_bytes: Bytes,
    possible_cost_bytes: Bytes,
}

impl PlanRest {
    fn new(planned: &Planned, problems: u64) -> Self {
        let limited = &planned.limited;
        let measured = weights::measured(planned);
        Self {
            totals: TotalsJson::new(
                &planned.totals,
                &planned.untouched(),
                Some(WalkJson {
                    problems,
                    excluded: planned.summary.excluded.into(),
                }),
            ),
            policy: planned.options.policy.as_str(),
            reclaim_ratio: planned.options.reclaim_ratio,
            weight: planned.options.weight.as_str(),
            weights: measured.map(|(found, comparison)| WeightsJson::new(found, comparison)),
            weights_refused: match &planned.calibration {
                Some(Err(why)) => Some(why.to_string()),
                _ => None,
            },
            nothing_to_gain: planned.nothing_to_gain.as_ref().map(ToString::to_string),
            prediction: is_limited(planned).then(|| PredictionJson {
                gain_pct: limited.gain_pct(),
                cost_pct: limited.cost_pct(),
                gain: limited.gain,
                possible_gain: limited.possible_gain,
                cost_bytes: limited.cost,
                possible_cost_bytes: limited.possible_cost,
            }),
            read_time: ReadTimeJson::new(planned),
            stopped: planned.summary.cancelled.then_some("signal"),
        }
    }
}

fn text(
    out: &mut dyn Write,
    args: &PlanCommandArgs,
    console: &Console,
    planned: &Planned,
    problems: u64,
) -> io::Result<()> {
    best_files(out, args, console, planned)?;
    if let Some((found, comparison)) = weights::measured(planned) {
        weights::write(out, console, found, comparison, planned.prediction.as_ref())?;
    }
    sums(out, args, console, planned, problems)
}

fn best_files(
    out: &mut dyn Write,
    args: &PlanCommandArgs,
    console: &Console,
    planned: &Planned,
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
            console.out.bold(match planned.options.reclaim_ratio {
                Some(_) => "To be written anew, those first with which most comes free",
                None => "To be moved, the highest gain first",
            })
        )?;
        // Of files that share what moves, if there are any.
        let shares = best[..shown].iter().any(|(_, file)| file.holders() > 0);
        let mut columns = vec!["extents", "ranges", "cost"];
        if shares {
            columns.extend(["metadata", "holders"]);
        }
        columns.push("gain");
        let mut columns: Vec<_> = columns
            .into_iter()
            .map(|title| (title, Align::Right))
            .collect();
        columns.extend([("engine", Align::Left), ("path", Align::Left)]);
        let mut table = Table::new(&columns);
        for (gain, file) in &best[..shown] {
            let (cost, metadata, holders) = (file.cost(), file.metadata(), Count(file.holders()));
            let (extents, ranges) = (Count(file.extents_before), Count(file.runs().len() as u64));
            let gain = Gain(*gain, &planned.options);
            let (engine, path) = (file.engine.as_deref().unwrap_or("none"), Name(&file.path));
            let mut row: Vec<&dyn Display> = vec![&extents, &ranges, &cost];
            if shares {
                row.extend([&metadata as &dyn Display, &holders]);
            }
            row.extend([&gain as &dyn Display, &engine, &path]);
            table.row(&row);
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
    problems: u64,
) -> io::Result<()> {
    let Planned {
        totals, limited, ..
    } = planned;
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
    if !totals.metadata.is_zero() {
        line(
            "metadata",
            format!(
                "at most {} of that, for snapshots and reflinks that move along",
                totals.metadata
            ),
        )?;
    }
    let share = totals.gain * 100.0
        / if totals.total_gain > 0.0 {
            totals.total_gain
        } else {
            1.0
        };
    let gain = Gain(totals.gain, &planned.options);
    line(
        "gain",
        format!("{gain} {}, {share:.0} % of what is possible", gain.unit()),
    )?;
    if let (Weight::Probed(_), Some(Ok(predicted))) = (&planned.options.weight, &planned.prediction)
        && predicted.now_ns > 0.0
    {
        let of_moved = weights::reads(predicted);
        line(
            "reads",
            format!("of what moves, on an idle drive: {of_moved}"),
        )?;
    }
    if let (Some(Err(_)), Some(predicted)) = (&planned.calibration, &planned.prediction) {
        line("reads", weights::reads_or_why(predicted))?;
    }
    if let Some(row) = planned.options.placed_on() {
        line(
            "rows",
            format!("{}; data is placed in them as in the file", row.bytes),
        )?;
    }
    if is_limited(planned) {
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
    for (reason, files) in planned.untouched() {
        line(
            "left",
            format!("{}: {}", counted(files, "file", "files"), reason.advice()),
        )?;
    }
    if problems > 0 {
        let paths = counted(problems, "path", "paths");
        line("problems", format!("{paths} could not be looked at"))?;
    }
    if let Some(excluded) = ExcludedJson::from(planned.summary.excluded).text() {
        line("excluded", excluded)?;
    }
    match &args.output {
        _ if planned.summary.cancelled => line("stopped", "no plan was written".to_owned()),
        Some(path) => line("next", format!("indef run --plan {}", Name(path))),
        None => Ok(()),
    }
}
