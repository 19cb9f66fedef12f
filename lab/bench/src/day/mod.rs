//! A day of the service in fast motion, on a file system on flashd, with a load that changes: what it moved, gained and wore.
//!
//! A day passes within some minutes, so an hour takes seconds: the service traces for a sixth of each and looks once in each, as by
//! its defaults in an hour of a real day. These times (and how long it stays calm after a pause) are options; nothing else is
//! changed, and it knows nothing of a faster clock. What does not shrink with the day is on the careful side: a profile of less
//! than an hour counts as an hour, so reads are believed to be rarer than in this day; and counts do not fade within it. Limits
//! of bytes for a day are those of a real one.
//!
//! The same day passes twice, without the service and with it. Requests are those that the device had; those of the service's own
//! reads are among them. Contents are the same at both ends.

mod phases;

use std::{
    fs,
    path::Path,
    time::{Duration, SystemTime},
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Serialize;
use stage::Stage;
use units::Bytes;

use super::{
    common::Common,
    measure,
    report::{Report, Verdict},
    service::{Done, Service, ServiceArgs},
};
use phases::{Phase, Tally, Workload};

const SIZE: Bytes = Bytes::gib(1);
/// Requests of a read in the evening's last hour, of those without the service, at most.
const LEFT_PCT: f64 = 50.0;

/// How to measure.
#[derive(Args, Clone)]
#[command(mut_arg("runs", |runs| runs.default_value("1")))]
pub struct DayArgs {
    #[command(flatten)]
    pub(super) common: Common,
    /// Profile of flashd
    #[arg(long, default_value = "fast24")]
    device: String,
    /// Minutes that a day takes; it passes twice
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// The device is slower by this factor, so that the way to it weighs less
    #[arg(long, default_value_t = 1.0)]
    time_scale: f64,
    #[command(flatten)]
    service: ServiceArgs,
}

impl DayArgs {
    fn hour(&self) -> Duration {
        Duration::from_secs_f64(self.minutes * 60.0 / 24.0)
    }

    fn service_options(&self) -> Vec<String> {
        let hour = self.hour().as_millis();
        let own = [
            ("learn", format!("{}ms", hour / 6)),
            ("learn-every", format!("{hour}ms")),
            ("every", format!("{hour}ms")),
            // Half a minute of such a day would be less than the kernel's counters can tell.
            ("calm", "1s".to_owned()),
        ];
        self.service.options(&own)
    }
}

/// An hour, or several.
#[derive(Clone, Copy, Debug, Default)]
struct Hours {
    tally: Tally,
    /// Requests of reads that the device had.
    requests: u64,
}

impl std::ops::AddAssign for Hours {
    fn add_assign(&mut self, other: Self) {
        self.tally += other.tally;
        self.requests += other.requests;
    }
}

impl Hours {
    fn requests_per_read(&self) -> f64 {
        self.requests as f64 / self.tally.reads.max(1) as f64
    }

    fn read_ns(&self) -> f64 {
        self.tally.read_time.as_nanos() as f64 / self.tally.reads.max(1) as f64
    }
}

/// A third of a day.
#[derive(Clone, Copy, Debug)]
struct Third {
    phase: Phase,
    began: SystemTime,
    all: Hours,
    last: Hours,
    /// Bytes that the host wrote, and that cells took.
    written: u64,
    programmed: u64,
}

struct Day {
    began: SystemTime,
    thirds: Vec<Third>,
    contents: String,
    /// Of the service.
    done: Option<Done>,
}

/// Measure.
pub(super) fn measure(args: &DayArgs, report: &mut Report) -> Result<()> {
    ensure!(
        args.minutes >= 1.0,
        "--minutes must be at least 1: an hour of a shorter day has no time for a look"
    );
    // Built before the first day: all of them are of the same code.
    let indef = args.common.indef()?;
    let mut days = Vec::new();
    for run in 1..=args.common.runs {
        eprintln!("day {run} of {}, without indef watch", args.common.runs);
        let without = pass(args, None)?;
        eprintln!("day {run} of {}, with it", args.common.runs);
        let with = pass(args, Some(&indef))?;
        ensure!(
            without.contents == with.contents,
            "the two days do not end with the same contents"
        );
        days.push((without, with));
    }
    tell(&days, report)
}

/// A day, with this program or without it.
fn pass(args: &DayArgs, indef: Option<&Path>) -> Result<Day> {
    let stage = args.common.ext4(&args.device, SIZE, args.time_scale)?;
    let folder = stage.path().join("data");
    fs::create_dir(&folder)?;
    let mut workload = Workload::begin(&folder, phases::DATABASE)?;
    stage.drop_caches()?;
    let start = |indef| Service::start(indef, &args.service_options(), &folder);
    let service = indef.map(start).transpose()?;
    let began = SystemTime::now();
    let mut thirds = Vec::new();
    let mut before = Flash::of(&stage)?;
    for phase in Phase::ALL {
        let began = SystemTime::now();
        let (mut all, mut last) = (Hours::default(), Hours::default());
        for _ in 0..Phase::HOURS {
            let before = stage.traffic()?;
            let tally = workload.hour(phase, args.hour())?;
            last = Hours {
                tally,
                requests: (stage.traffic()? - before).reads,
            };
            all += last;
            eprintln!(
                "  {}: {:.2} requests a read, {:.0} µs",
                phase.name(),
                last.requests_per_read(),
                last.read_ns() / 1e3
            );
        }
        let now = Flash::of(&stage)?;
        thirds.push(Third {
            phase,
            began,
            all,
            last,
            written: now.written - before.written,
            programmed: now.programmed - before.programmed,
        });
        before = now;
    }
    let done = service.map(Service::finish).transpose()?;
    stage.drop_caches()?;
    let contents = measure::hash(&measure::files_below(&folder)?)?;
    Ok(Day {
        began,
        thirds,
        contents,
        done,
    })
}

/// What flashd has counted.
#[derive(Clone, Copy, Debug)]
struct Flash {
    written: u64,
    programmed: u64,
}

impl Flash {
    fn of(stage: &Stage) -> Result<Self> {
        let flashd = stage.flashd();
        let flashd =
            flashd.context("a loop device has no flash: --device is a profile of flashd")?;
        Self::parse(&flashd.stats()?)
    }

    fn parse(stats: &serde_json::Value) -> Result<Self> {
        let model = &stats["model"];
        let causes = |name: &str| -> Option<u64> {
            let causes = model[name].as_object()?;
            causes.values().map(serde_json::Value::as_u64).sum()
        };
        let found = || {
            Some(Self {
                written: model["host_written_bytes"].as_u64()?,
                programmed: causes("programmed_bytes")? + causes("copied_back_bytes")?,
            })
        };
        found().with_context(|| format!("flashd stats tells no bytes written: {stats}"))
    }
}

/// A line of the service, with the time of its day.
#[derive(Serialize)]
struct Said {
    at: String,
    line: String,
}

impl std::fmt::Display for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "  {}  {}", self.at, self.line)
    }
}

impl Day {
    /// The time of day.
    fn clock(&self, at: SystemTime, hour: Duration) -> String {
        let since = at.duration_since(self.began).unwrap_or_default();
        let minutes = (since.as_secs_f64() / hour.as_secs_f64() * 60.0) as u64;
        format!("{:02}:{:02}", minutes / 60, minutes % 60)
    }

    /// Bytes that rounds relocated and wrote which began in a third.
    fn moved(&self, nth: usize) -> (u64, u64) {
        let from = self.thirds[nth].began;
        let to = self.thirds.get(nth + 1).map(|third| third.began);
        let rounds = self.done.iter().flat_map(|done| &done.rounds);
        // What began before the first one belongs to it.
        let of = rounds.filter(|round| {
            (nth == 0 || round.began >= from) && to.is_none_or(|to| round.began < to)
        });
        of.fold((0, 0), |(relocated, written), round| {
            (relocated + round.relocated, written + round.written)
        })
    }
}

fn tell(days: &[(Day, Day)], report: &mut Report) -> Result<()> {
    for (nth, phase) in Phase::ALL.into_iter().enumerate() {
        let case = phase.name();
        let all = |of: &dyn Fn(&Day, &Day) -> f64| -> Vec<f64> {
            days.iter()
                .map(|(without, with)| of(without, with))
                .collect()
        };
        let third = |day: &Day| day.thirds[nth];
        let mut figure = |contender: &str, quantity: &str, of: &dyn Fn(&Day, &Day) -> f64| {
            report.figure(case, contender, quantity, &all(of));
        };
        figure("without", "requests_per_read", &|without, _| {
            third(without).all.requests_per_read()
        });
        figure("with", "requests_per_read", &|_, with| {
            third(with).all.requests_per_read()
        });
        figure("with, last hour", "requests_per_read", &|_, with| {
            third(with).last.requests_per_read()
        });
        figure("without", "read_ns", &|without, _| {
            third(without).all.read_ns()
        });
        figure("with", "read_ns", &|_, with| third(with).all.read_ns());
        figure("with, last hour", "read_ns", &|_, with| {
            third(with).last.read_ns()
        });
        for (contender, is_with) in [("without", false), ("with", true)] {
            let day = |without: &Day, with: &Day| third(if is_with { with } else { without });
            figure(contender, "written_bytes", &|a, b| day(a, b).written as f64);
            figure(contender, "programmed_bytes", &|a, b| {
                day(a, b).programmed as f64
            });
        }
        figure("indef watch", "moved_bytes", &|_, with| {
            with.moved(nth).0 as f64
        });
        figure("indef watch", "written_bytes", &|_, with| {
            with.moved(nth).1 as f64
        });
    }
    report.heading(
        "third of day  requests a read: without  with  last hour   µs: without   with  last hour   moved   on flash: without  with",
    );
    for (without, with) in days {
        for (nth, (one, other)) in without.thirds.iter().zip(&with.thirds).enumerate() {
            report.heading(&format!(
                "  {:12} {:23.2} {:5.2} {:10.2} {:13.0} {:6.0} {:10.0} {:>9} {:>16} {:>9}",
                one.phase.name(),
                one.all.requests_per_read(),
                other.all.requests_per_read(),
                other.last.requests_per_read(),
                one.all.read_ns() / 1e3,
                other.all.read_ns() / 1e3,
                other.last.read_ns() / 1e3,
                Bytes(with.moved(nth).0).to_string(),
                Bytes(one.programmed).to_string(),
                Bytes(other.programmed).to_string(),
            ));
            let late = one.all.tally.late.max(other.all.tally.late);
            if late > Duration::from_secs(1) {
                report.heading(&format!("    its hours were late by {late:.1?} in all"));
            }
        }
    }
    report.heading("what it said, by the time of its day");
    let hours = Phase::ALL.len() as u32 * Phase::HOURS;
    for (_, with) in days {
        let Some((first, last)) = with.thirds.first().zip(with.thirds.last()) else {
            continue;
        };
        // Of an equal length all, and so is a third of a day.
        let two = last.began.duration_since(first.began).unwrap_or_default();
        let hour = two * 3 / 2 / hours;
        for line in with.done.iter().flat_map(|done| &done.lines) {
            let said = Said {
                at: with.clock(line.at, hour),
                line: line.text.clone(),
            };
            report.add("said", &said)?;
        }
    }
    let evening = |day: &Day| {
        day.thirds
            .last()
            .map_or(0.0, |third| third.last.requests_per_read())
    };
    let left: Vec<f64> = days
        .iter()
        .map(|(without, with)| 100.0 * evening(with) / evening(without).max(1e-9))
        .collect();
    report.verdicts.push(Verdict::at_most(
        "requests of a read in the last hour, of those without it".to_owned(),
        super::median::median(left),
        LEFT_PCT,
        " %",
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cells_took_is_of_all_causes() {
        let stats = serde_json::json!({ "model": {
            "host_written_bytes": 5,
            "programmed_bytes": { "host": 3, "gc": 4 },
            "copied_back_bytes": { "gc": 1 },
        } });
        let flash = Flash::parse(&stats).unwrap();
        assert_eq!((flash.written, flash.programmed), (5, 8));
        assert!(Flash::parse(&serde_json::json!({ "model": {} })).is_err());
    }

    #[test]
    fn the_hours_of_the_service_are_those_of_the_day() {
        #[derive(clap::Parser)]
        struct Only {
            #[command(flatten)]
            args: DayArgs,
        }
        let only: Only = clap::Parser::parse_from(["day", "--minutes=10", "--watch=--calm=2s"]);
        assert_eq!(only.args.common.runs, 1);
        assert_eq!(
            only.args.service_options(),
            [
                "--learn=4166ms",
                "--learn-every=25000ms",
                "--every=25000ms",
                "--calm=2s"
            ]
        );
    }
}
