//! The service beside an application: fio with `indef watch` at work on the same file system, and without it.
//!
//! fio reads and writes a file of its own, at three loads, and slowly reads an aged file. The service traces, looks and
//! moves within the run: its times are options (`--learn`, `--learn-every`, `--every`, `--calm`), all else are its defaults, and
//! it is started as its unit starts it. Each pair of runs, without and with, begins with a newly aged file. What is compared
//! within a pair is the load on fio's own file, which lies in one piece: what moves makes it no faster.
//!
//! A run moves at most about as much as the budget of a day allows within its time on average (10 GiB a day are 121 KiB/s), while
//! it is traced for half of its time instead of a sixth. "While it moves" is the part of a run between a decision to move and its end.

mod load;

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, SystemTime},
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use scratch_fs::{FragmentOptions, content, fragment};
use stage::Stage;
use units::{Bytes, FileOffset};

use super::{
    common::Common,
    measure,
    median::median,
    report::{Report, Verdict},
    service::{Done, Line, Service, ServiceArgs},
};
use load::{Fio, Load, Measured};

/// By how much p99 may grow, in percent.
const NEAR: f64 = 5.0;
/// Fragments of the aged file.
const PIECE: Bytes = Bytes::kib(4);

/// How to measure.
#[derive(Args, Clone)]
#[command(mut_arg("runs", |runs| runs.default_value("3")))]
pub struct BesideArgs {
    #[command(flatten)]
    pub(super) common: Common,
    /// Devices: loop, or profiles of flashd
    #[arg(long, value_delimiter = ',', default_value = "loop,fast24")]
    devices: Vec<String>,
    /// Seconds of each run of fio
    #[arg(long, default_value_t = 15.0)]
    seconds: f64,
    /// Size of the aged file: by default what the budget of a day (10 GiB) allows within a run on average
    #[arg(long, default_value = "2MiB")]
    aged: Bytes,
    /// flashd's devices are slower by this factor, so that the way to them weighs less
    #[arg(long, default_value_t = 5.0)]
    time_scale: f64,
    #[command(flatten)]
    service: ServiceArgs,
}

impl BesideArgs {
    fn service_options(&self) -> Vec<String> {
        let part = |part: f64| format!("{}ms", (self.seconds * 1000.0 * part) as u64);
        let own = [
            // In its first seconds a trace counts a part of the time only (docs/trace.md, "Cost").
            ("learn", part(0.3)),
            ("learn-every", part(0.6)),
            ("every", part(0.1)),
            ("calm", part(0.1)),
        ];
        self.service.options(&own)
    }
}

/// Measure.
pub(super) fn measure(args: &BesideArgs, report: &mut Report) -> Result<()> {
    ensure!(args.seconds >= 5.0, "--seconds must be at least 5");
    let indef = args.common.indef()?;
    report.heading("indef watch beside fio, and what it moved in all runs of a load");
    for device in &args.devices {
        // Room for the files, what lies between fragments, and a move.
        let size = load::SIZE + args.aged * 4 + Bytes::mib(768);
        let ground = Ground {
            args,
            indef: &indef,
            stage: args.common.ext4(device, size, args.time_scale)?,
        };
        ground.make_load()?;
        let mut full = None;
        for load in Load::ALL {
            let iops = match (load.part(), full) {
                (Some(part), Some(full)) => Some(part * full),
                _ => None,
            };
            let pairs: Vec<Pair> = (1..=args.common.runs)
                .map(|run| {
                    eprintln!(
                        "{device}, {}: run {run} of {}",
                        load.name(),
                        args.common.runs
                    );
                    ground.pair(iops)
                })
                .collect::<Result<_>>()?;
            full = full.or(Some(median(pairs.iter().map(|pair| pair.without.iops))));
            tell(&format!("{device}, {}", load.name()), load, &pairs, report);
        }
    }
    Ok(())
}

/// A file system on a device.
struct Ground<'a> {
    args: &'a BesideArgs,
    indef: &'a Path,
    stage: Stage,
}

/// fio without the service, and with it.
struct Pair {
    without: Measured,
    with: Measured,
    done: Done,
}

impl Ground<'_> {
    fn load_file(&self) -> PathBuf {
        self.stage.path().join("load")
    }

    fn aged_file(&self) -> PathBuf {
        self.stage.path().join("aged")
    }

    fn make_load(&self) -> Result<()> {
        let mut file = File::create(self.load_file())?;
        let mut buffer = vec![0; 1 << 20];
        for at in (0..load::SIZE.get()).step_by(buffer.len()) {
            content(&mut buffer, 1, FileOffset(at));
            file.write_all(&buffer)?;
        }
        file.sync_all().context("cannot make the file of the load")
    }

    /// The same state for each run.
    fn age(&self) -> Result<()> {
        let path = self.aged_file();
        if path.exists() {
            fs::remove_file(&path)?;
        }
        let options = FragmentOptions {
            size: self.args.aged,
            piece: PIECE,
            seed: 1,
        };
        fragment(&path, options).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(self.stage.drop_caches()?)
    }

    fn fio(&self, iops: Option<f64>) -> Result<Fio> {
        let time = Duration::from_secs_f64(self.args.seconds);
        Fio::start(&self.load_file(), &self.aged_file(), iops, time)
    }

    fn pair(&self, iops: Option<f64>) -> Result<Pair> {
        measure::ensure_not_stopped()?;
        self.age()?;
        let without = self.fio(iops)?.finish()?;
        measure::ensure_not_stopped()?;
        self.age()?;
        let aged = [self.aged_file()];
        let contents = measure::hash(&aged)?;
        self.stage.drop_caches()?;
        let fio = self.fio(iops)?;
        // All of it, the loading of its BPF programs too, falls into the time of fio.
        let service = Service::start(self.indef, &self.args.service_options(), &self.stage.path())?;
        if !service.has_group() {
            eprintln!(
                "no control group can be made: the pressure of others cannot be told while it moves"
            );
        }
        let with = fio.finish()?;
        let done = service.finish()?;
        self.stage.drop_caches()?;
        ensure!(
            measure::hash(&aged)? == contents,
            "contents have changed: {}",
            aged[0].display()
        );
        for line in &done.lines {
            eprintln!("  {}", line.text);
        }
        // The device rests before the next one.
        sleep(Duration::from_millis(500));
        Ok(Pair {
            without,
            with,
            done,
        })
    }
}

/// The times from a decision to move to its end.
fn moving(lines: &[Line]) -> Vec<(SystemTime, SystemTime)> {
    let (mut found, mut began) = (Vec::new(), None);
    for Line { at, text } in lines {
        if text.contains("worth moving: ") || text.ends_with(": goes on") {
            began = Some(*at);
        } else if text.contains(": moved ")
            && let Some(began) = began.take()
        {
            found.push((began, *at));
        }
    }
    found
}

/// A quantity of a run, by its name in the figures.
type OfRun = (&'static str, fn(&Measured) -> f64);
const OF_RUNS: [OfRun; 6] = [
    ("read_p50_ns", |it| it.reads.p50),
    ("read_p99_ns", |it| it.reads.p99),
    ("write_p50_ns", |it| it.writes.p50),
    ("write_p99_ns", |it| it.writes.p99),
    ("load_iops", |it| it.iops),
    ("aged_p50_ns", |it| it.aged.p50),
];

fn tell(case: &str, load: Load, pairs: &[Pair], report: &mut Report) {
    let all = |of: &dyn Fn(&Pair) -> f64| -> Vec<f64> { pairs.iter().map(of).collect() };
    for (quantity, of) in OF_RUNS {
        let more = |pair: &Pair| (of(&pair.with) / of(&pair.without) - 1.0) * 100.0;
        let quantities = [
            ("without", all(&|pair| of(&pair.without))),
            ("with", all(&|pair| of(&pair.with))),
        ];
        for (contender, samples) in &quantities {
            report.figure(case, contender, quantity, samples);
        }
        let stem = quantity.rsplit_once('_').map_or(quantity, |(stem, _)| stem);
        let more = all(&more);
        report.figure(case, "more with", &format!("{stem}_pct"), &more);
        if quantity.ends_with("p99_ns") {
            let least = more.iter().copied().fold(f64::INFINITY, f64::min);
            let most = more.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let way = quantity.split('_').next().unwrap_or_default();
            let what =
                format!("{case}: p99 of {way}s beside it, more ({least:+.1} to {most:+.1} %)");
            let median = median(more.iter().copied());
            report
                .verdicts
                .push(Verdict::at_most(what, median, NEAR, " %"));
        }
    }
    let relocated = all(&|pair| pair.done.relocated() as f64);
    report.figure(case, "indef watch", "moved_bytes", &relocated);
    let written = all(&|pair| pair.done.written() as f64);
    report.figure(case, "indef watch", "written_bytes", &written);
    let processor = all(&|pair| pair.done.processor.as_nanos() as f64);
    report.figure(case, "indef watch", "processor_ns", &processor);
    // Where it moved: the reads of that time beside all reads of the run without.
    let (mut seconds, mut while_moving) = (Vec::new(), Vec::new());
    for pair in pairs {
        let times = moving(&pair.done.lines);
        let time =
            |(from, to): &(SystemTime, SystemTime)| to.duration_since(*from).unwrap_or_default();
        seconds.push(times.iter().map(time).sum::<Duration>().as_secs_f64());
        if let Some((p99, _)) = pair.with.p99_within(&times) {
            while_moving.push((p99 / pair.without.reads.p99 - 1.0) * 100.0);
        }
    }
    let nanoseconds: Vec<f64> = seconds.iter().map(|seconds| seconds * 1e9).collect();
    report.figure(case, "indef watch", "moving_ns", &nanoseconds);
    if !while_moving.is_empty() {
        report.figure(case, "indef watch", "read_p99_pct", &while_moving);
    }
    let held = pairs
        .iter()
        .rev()
        .find_map(|pair| pair.done.last("waits: "));
    let while_moving = match while_moving.is_empty() {
        true => String::new(),
        false => format!(", p99 of reads meanwhile {:+.1} %", median(while_moving)),
    };
    report.heading(&format!(
        "  {case}: it took {:.2} s of a processor in a run; moved {} in {:.1} s{while_moving}{}",
        median(processor) / 1e9,
        Bytes(relocated.iter().sum::<f64>() as u64),
        seconds.iter().sum::<f64>(),
        held.map_or_else(String::new, |line| format!("; {line}"))
    ));
    if load == Load::Light {
        // A service that does nothing disturbs nobody, and shows nothing.
        report.verdicts.push(Verdict::at_least(
            format!("{case}: runs in which it moved something"),
            relocated.iter().filter(|bytes| **bytes > 0.0).count() as f64,
            pairs.len() as f64,
            "",
        ));
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn it_moves_from_a_decision_to_its_end() {
        let line = |s, text: &str| Line {
            at: UNIX_EPOCH + Duration::from_secs(s),
            text: text.to_owned(),
        };
        let lines = [
            line(1, "indef: looks after one file system"),
            line(
                2,
                "indef: /m: 8 MiB of 1 file are worth moving: 1 s of reads saved",
            ),
            line(
                5,
                "indef: /m: moved 4 MiB (4 MiB written), 0 files done, more is left",
            ),
            line(6, "indef: /m: waits: the disk is busy"),
            line(7, "indef: /m: goes on"),
            line(8, "indef: /m: moved 4 MiB (4 MiB written), 1 file done"),
            line(
                9,
                "indef: /m: 4 MiB of 1 file are worth moving: 1 s of reads saved",
            ),
        ];
        let at = |s| UNIX_EPOCH + Duration::from_secs(s);
        assert_eq!(moving(&lines), [(at(2), at(5)), (at(7), at(8))]);
    }
}
