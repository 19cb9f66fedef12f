//! The cost of tracing to an application: fio traced, and traced while the kernel times the BPF programs, in turn.
//!
//! A round runs both one after the other, each time beginning with the other one; the median of the rounds counts. On a
//! device that others use, IOPS change by more than tracing costs, so there are three measures:
//!
//! - fio's processor time for a read (interrupts are not in it): in all of a trace, and in the part of the same trace in which
//!   no program is attached ([`within`]). Two runs of fio, one with a trace and one without, differ by several percent for
//!   other reasons;
//! - the time of the BPF programs, as a share of a processor's time, by the kernel's own statistics
//!   (which slow the programs down: that run counts for nothing else);
//! - the processor time of the collector, likewise.
//!
//! Beside them: IOPS, one in how many reads was counted, and how far the sum is off. The trace is the
//! installed program with its own bound; filters are some that let nothing pass, or only fio's file.
//!
//! A trace costs more at first, and pays that back (docs/trace.md, "Cost"): where `settle` is given, fio
//! has run for so long before anything is measured. *One in*, the sum, and what the trace itself tells of
//! its cost are those of the whole trace.
//! Last, the memory of the collector: resident memory, and the content of its BPF maps.

mod cases;
mod trace;
mod within;

use std::{
    ffi::OsString,
    fs,
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use fio::{Fio, Job};
use scratch_fs::ScratchFs;
use serde::Serialize;
use units::Bytes;

use cases::{BOUND, CASES, LONG, OverheadCase, TestBed};
use trace::Trace;
use within::Within;

use super::{
    common::Common,
    measure,
    median::median,
    report::{Report, Verdict},
};

/// Maximum memory of the collector.
const MEMORY: Bytes = Bytes::mib(64);

/// One round of a case.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Round {
    iops: f64,
    /// fio's processor time for a read, in nanoseconds.
    fio_ns: f64,
    /// Percent of one processor's time.
    programs_pct: f64,
    collector_pct: f64,
    /// Runs of BPF programs for each read, and nanoseconds of each run.
    program_runs: f64,
    program_ns: f64,
    /// One in how many reads was counted, and reads counted ÷ reads made.
    one_in: f64,
    counted: f64,
    /// The cost of the trace from its beginning, as it told it.
    told_pct: f64,
    /// By how many percent fio's processor time for a read grows, within the trace; not known of one that has hardly
    /// any time without programs.
    more_pct: Option<f64>,
}

/// All rounds of a case.
#[derive(Serialize)]
pub(super) struct Overhead {
    layer: &'static str,
    case: &'static str,
    rounds: Vec<Round>,
}

impl Overhead {
    fn median(&self, value: impl Fn(&Round) -> f64) -> f64 {
        median(self.rounds.iter().map(value))
    }

    /// Keep all samples of what the table of the figures shows.
    fn keep(&self, report: &mut Report) {
        let mut keep = |quantity, value: fn(&Round) -> f64| {
            let samples: Vec<f64> = self.rounds.iter().map(value).collect();
            report.figure(self.case, self.layer, quantity, &samples);
        };
        keep("programs_pct", |round| round.programs_pct);
        keep("collector_pct", |round| round.collector_pct);
        keep("iops", |round| round.iops);
        keep("one_in", |round| round.one_in);
        keep("counted", |round| round.counted);
        keep("told_pct", |round| round.told_pct);
        let more = self.more();
        if !more.is_empty() {
            report.figure(self.case, self.layer, "fio_more_pct", &more);
        }
    }

    /// That of the rounds, where most know it.
    fn more(&self) -> Vec<f64> {
        let known: Vec<f64> = self.rounds.iter().filter_map(|it| it.more_pct).collect();
        match known.len() * 2 > self.rounds.len() {
            true => known,
            false => Vec::new(),
        }
    }

    fn verdicts(&self) -> Vec<Verdict> {
        let what = format!("trace --layer {}, fio {}", self.layer, self.case);
        let of = |value: fn(&Round) -> f64| self.rounds.iter().map(value).collect::<Vec<f64>>();
        let measures = [
            (
                "programs and collector, of a processor",
                of(|round| round.programs_pct + round.collector_pct),
            ),
            ("fio's processor time for a read, more", self.more()),
            (
                "programs and collector from the beginning, as told",
                of(|round| round.told_pct),
            ),
        ];
        let known = measures.into_iter().filter(|(_, all)| !all.is_empty());
        let verdict = |(measure, all): (&str, Vec<f64>)| {
            let least = all.iter().copied().fold(f64::INFINITY, f64::min);
            let most = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let what = format!("{what}: {measure} ({least:.2} to {most:.2} %)");
            Verdict::at_most(what, median(all), BOUND, " %")
        };
        known.map(verdict).collect()
    }
}

impl std::fmt::Display for Overhead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:7}  {:42} {:>9.0} {:>8.0} {:>8.3} {:>9.3} {:>7.2} {:>7.1} {:>7.1} {:>8.3} {:>7.2} {:>7.2}",
            self.layer,
            self.case,
            self.median(|r| r.iops),
            self.median(|r| r.fio_ns),
            self.median(|r| r.programs_pct),
            self.median(|r| r.collector_pct),
            self.median(|r| r.program_runs),
            self.median(|r| r.program_ns),
            self.median(|r| r.one_in),
            self.median(|r| r.counted),
            self.median(|r| r.told_pct),
            median(self.more()),
        )
    }
}

/// The heading of the table.
const HEADING: &str = "layer    reads of 4 KiB by fio                          IOPS  ns/read  \
                                  BPF, %  collect, %  runs/r  ns/run    1 in  counted  told, %  more, %";

/// How to measure it.
#[derive(Args, Clone)]
pub struct OverheadArgs {
    #[command(flatten)]
    pub(super) common: Common,
    /// Only the cases of a trace that has settled: some 7 minutes for each run
    #[arg(long, conflicts_with = "first")]
    settled: bool,
    /// Only the cases of a trace that has just begun: some 3 minutes for each run
    #[arg(long)]
    first: bool,
    /// Only the cases with this in their names
    #[arg(long, value_name = "TEXT")]
    case: Option<String>,
}

/// Measure the cases.
pub(super) fn measure(args: &OverheadArgs, report: &mut Report) -> Result<()> {
    let common = &args.common;
    let indef = common.indef()?;
    let folder = tempfile::tempdir_in(common.images()?)?;
    let place = TestBed {
        indef,
        file: folder.path().join("file"),
        profile: folder.path().join("profile"),
        other: ScratchFs::builder("ext4", Bytes::mib(512)).build()?,
    };
    report.heading(HEADING);
    let mut peak = Bytes::ZERO;
    let wanted = |case: &&OverheadCase| {
        let is_named = (args.case.as_ref()).is_none_or(|text| case.name.contains(text));
        is_named
            && match case.settle == LONG.0 {
                true => !args.first,
                false => !args.settled,
            }
    };
    ensure!(
        CASES.iter().any(|case| wanted(&case)),
        "no case has {:?} in its name; there are: {}",
        args.case.as_deref().unwrap_or_default(),
        CASES.map(|case| case.name).join("; ")
    );
    for case in CASES.iter().filter(wanted) {
        let mut rounds = Vec::new();
        for round in 0..common.runs {
            measure::ensure_not_stopped()?;
            eprintln!(
                "layer {}, {}: round {} of {}",
                case.layer,
                case.name,
                round + 1,
                common.runs
            );
            rounds.push(place.round(case, round, &mut peak)?);
        }
        let overhead = Overhead {
            layer: case.layer,
            case: case.name,
            rounds,
        };
        overhead.keep(report);
        report.verdicts.extend(overhead.verdicts());
        report.add("overheads", &overhead)?;
    }
    // The largest of all cases, or none.
    if args.case.is_none() {
        let memory = [peak.0 as f64];
        report.figure("collector", "largest of all runs", "memory_bytes", &memory);
    }
    report.verdicts.push(Verdict::at_most(
        "memory of the collector, with its BPF maps".to_owned(),
        peak.0 as f64 / Bytes::mib(1).0 as f64,
        MEMORY.0 as f64 / Bytes::mib(1).0 as f64,
        " MiB",
    ));
    Ok(())
}

impl TestBed {
    fn round(&self, case: &OverheadCase, round: usize, peak: &mut Bytes) -> Result<Round> {
        let mut result = Round::default();
        for turn in 0..2 {
            match (round + turn) % 2 {
                0 => {
                    let mut trace = Trace::start(self, case)?;
                    let mut within = None;
                    let fio = self.fio(case, case.settle, &mut |fio| {
                        trace.begin();
                        within = Some(Within::start(fio, case.told(), trace.id()));
                    })?;
                    result.more_pct = within.and_then(Within::finish);
                    let made = fio.reads;
                    let told = trace.finish(peak)?;
                    result.iops = fio.iops;
                    result.fio_ns = fio.busy;
                    result.collector_pct = told.busy * 100.0;
                    result.one_in = told.one_in;
                    result.counted = told.reads as f64 / made as f64;
                    result.told_pct = told.percent;
                }
                _ => {
                    let mut trace = Trace::start(self, case)?;
                    let statistics = linux_abi::bpf::enable_run_time()
                        .context("switching the statistics of BPF programs on")?;
                    let (mut began, mut before) = (Instant::now(), (0, 0));
                    let fio = self.fio(case, case.settle, &mut |_| {
                        (began, before) = (Instant::now(), trace.programs());
                    })?;
                    let after = trace.programs();
                    let took = began.elapsed().as_secs_f64();
                    drop(statistics);
                    trace.finish(peak)?;
                    let (runs, time) = (after.0 - before.0, (after.1 - before.1) as f64);
                    result.programs_pct = time / 1e9 / took * 100.0;
                    result.program_runs = runs as f64 / fio.measured as f64;
                    result.program_ns = time / runs.max(1) as f64;
                }
            }
        }
        Ok(result)
    }

    /// Run fio; `settled` is called when the time begins that is measured, with the number of the process that reads.
    fn fio(&self, case: &OverheadCase, settle: u64, settled: &mut dyn FnMut(u32)) -> Result<Speed> {
        let mut name = OsString::from("--filename=");
        name.push(&self.file);
        let options = [
            "--name=reader",
            "--size=256m",
            "--time_based",
            "--randseed=7",
        ];
        let times = [
            format!("--runtime={}", case.measured),
            format!("--ramp_time={settle}"),
        ];
        let options = options.into_iter().chain(case.fio.iter().copied());
        let fio = Fio::start(
            (options.map(OsString::from))
                .chain(times.map(OsString::from))
                .chain([name]),
        )?;
        sleep(Duration::from_secs(settle));
        settled(reader(fio.id())?);
        let report = fio.finish()?;
        Speed::of(report.job("reader")?, settle)
    }
}

/// The process of fio's only job.
fn reader(fio: u32) -> Result<u32> {
    let children = fs::read_to_string(format!("/proc/{fio}/task/{fio}/children"))?;
    let job = children.split_whitespace().next();
    let job = job.context("fio has no process that reads")?;
    Ok(job.parse()?)
}

/// The report of fio.
#[derive(Clone, Copy, Debug, Default)]
struct Speed {
    iops: f64,
    /// Processor time of a read, in nanoseconds.
    busy: f64,
    /// Reads in the measured time, and with those before it.
    measured: u64,
    reads: u64,
}

impl Speed {
    /// Of a job, after `settle` seconds that its report leaves out.
    fn of(job: &Job, settle: u64) -> Result<Self> {
        let (iops, measured) = (job.read.iops, job.read.calls);
        ensure!(iops > 0.0 && measured > 0, "fio reports no reads");
        Ok(Self {
            iops,
            // Percent of its run time; Linux scales both so that their sum is exact.
            busy: (job.user_pct + job.system_pct) / 100.0 / iops * 1e9,
            measured,
            // Before it, at about the same rate.
            reads: (measured as f64 + iops * settle as f64) as u64,
        })
    }
}
