//! The options of `indef watch`. A default has one owner, `indef_pipeline::tend::Settings`: an option that is not given
//! leaves it, or what the configuration says.

use std::{path::PathBuf, str::FromStr, time::Duration};

use clap::{Args, ValueHint};
use indef_core::plan::Terms;
use indef_engine::{collect::GlobError, run::RunOptions};
use indef_pipeline::{
    consider::Limits,
    tend::{Budgets, Settings, Window},
};
use indef_trace::collect::Sampling;
use metrics_server::Address;
use units::Bytes;

use super::{files::ChooseArgs, trace::overhead, values, values::Limit};

/// Look after file systems as a service: learn what is read, repair what pays, disturb nobody
///
/// Traces reads for a while every hour, looks from time to time at what lies in fragments, and moves what pays for
/// itself: what reads save while the new layout lasts, a month at most, has to be worth the bytes that are written. How
/// long layouts last, and what moves give, it learns. It moves in portions of some seconds with a look at the machine in
/// between, and pauses within a step when others wait for I/O or a processor, a disk is busy, the machine is on battery,
/// or a drive is too warm or too worn. It says in one line each what it decides, and why. docs/ops.md has all of it.
///
/// Without PATH, all mounted file systems that an engine works on are looked after, each for itself. Ctrl-C and
/// SIGTERM end it after the current step. SIGHUP has it look at the mounts again, and read again the configuration that
/// `--config` names; without `--config` its settings stay as they are.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    sudo indef watch --once --dry-run        what would it do now?\n  \
    sudo indef watch /srv --window 22:00-06:00 --budget 20GiB\n  \
    sudo indef watch --window 'sat,sun' --window 'mon-fri 01:00-05:00'\n  \
    sudo indef watch --once --without-profile /srv     one round, for cron\n  \
    sudo indef watch --config --once --dry-run         what would indef-watch.service do?\n  \
    sudo systemctl enable --now indef-watch            as a service\n\n\
    Exit status 3 with --once: readings, windows, budgets or a signal held something back.")]
pub(crate) struct WatchArgs {
    /// Files and directories [default: every mounted file system that an engine works on]
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath, conflicts_with = "all_mounts")]
    pub(crate) paths: Vec<PathBuf>,

    /// Take from the configuration what is not given here: paths, what to leave out, and all options that
    /// `indef config show` tells. FILE is /etc/indef/indef.toml if none is named, with its drop-ins
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, num_args = 0..=1, require_equals = true)]
    pub(crate) config: Option<Option<PathBuf>>,

    /// One round of each file system, then the end
    #[arg(long)]
    once: bool,

    /// Tell what one round would do; trace, move and keep nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    #[command(flatten)]
    pub(crate) choose: ChooseArgs,

    #[command(flatten)]
    learn: LearnArgs,

    #[command(flatten)]
    decide: DecideArgs,

    #[command(flatten)]
    consider: ConsiderArgs,

    #[command(flatten)]
    bounds: WatchBoundArgs,

    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,
}

/// When and how it learns.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Learning")]
struct LearnArgs {
    /// Trace reads for so long at a time; 0s for not at all [default: 10m]
    #[arg(long, value_name = "D", value_parser = values::duration_or_zero)]
    learn: Option<Duration>,

    /// From the beginning of a trace to that of the next [default: 1h]
    #[arg(long, value_name = "D", value_parser = values::duration)]
    learn_every: Option<Duration>,

    /// Keep tracing below this many percent of one processor's time [default: 1]
    #[arg(long, value_name = "PCT", value_parser = overhead)]
    max_overhead: Option<Sampling>,

    /// Where nothing is known of reads, move what sequential readers would gain by, as if each file was read
    /// once a day
    #[arg(long)]
    without_profile: bool,
}

/// What is worth moving.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Decision")]
struct DecideArgs {
    /// Move what is paid back within this time [default: 30days]
    #[arg(long, value_name = "D", value_parser = values::days)]
    payback: Option<f64>,

    /// What the wear of a written GiB is worth, in seconds of read time [default: 10]
    #[arg(long, value_name = "SECONDS", value_parser = values::weight)]
    wear_price: Option<f64>,

    /// Where times are not known: the requests that a written GiB has to save [default: 300000]
    #[arg(long, value_name = "N", value_parser = values::weight)]
    requests_price: Option<f64>,

    /// From a round of a file system to the next; twice as long each time there was nothing to do, up to a
    /// day [default: 1h]
    #[arg(long, value_name = "D", value_parser = values::duration)]
    every: Option<Duration>,
}

/// When it pauses.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Consideration (work pauses from these values on)")]
struct ConsiderArgs {
    /// Part of the time in which others wait for I/O, in percent [default: 10]
    #[arg(long, value_name = "PCT", value_parser = values::percent)]
    max_io_pressure: Option<f64>,

    /// Part of the time in which others wait for a processor, in percent [default: 50]
    #[arg(long, value_name = "PCT", value_parser = values::percent)]
    max_cpu_pressure: Option<f64>,

    /// Part of the time in which the disk has work of others, in percent [default: 40]
    #[arg(long, value_name = "PCT", value_parser = values::percent)]
    max_disk_busy: Option<f64>,

    /// Mean time of a request of others, in milliseconds [default: 50]
    #[arg(long, value_name = "MS", value_parser = values::weight)]
    max_latency: Option<f64>,

    /// Temperature of the drive, in degrees Celsius [default: 65]
    #[arg(long, value_name = "C", value_parser = values::weight)]
    max_temperature: Option<f64>,

    /// Used part of the drive's endurance, in percent [default: 80]
    #[arg(long, value_name = "PCT", value_parser = values::percent)]
    max_wear: Option<f64>,

    /// Work on battery, too
    #[arg(long)]
    on_battery: bool,

    /// Pause as well for what cannot be told on this machine
    #[arg(long)]
    cautious: bool,

    /// How long all of them have to be calm before work begins again [default: 30s]
    #[arg(long, value_name = "D", value_parser = values::duration)]
    calm: Option<Duration>,
}

/// How much, when and how fast.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Bounds")]
struct WatchBoundArgs {
    /// Look at files and move them only at this time, like 22:00-06:00, 'sat,sun' or 'mon-fri 01:00-05:00', in
    /// local time (may be given several times) [default: always]
    #[arg(long, value_name = "WINDOW", value_parser = Window::from_str)]
    window: Vec<Window>,

    /// Write at most this much a day (UTC), or none for no limit [default: 10GiB]
    #[arg(long, value_name = "BYTES", value_parser = values::size_or_none)]
    budget: Option<Limit<Bytes>>,

    /// Write at most this much in 365 days, or none for no limit [default: 1TiB]
    #[arg(long, value_name = "BYTES", value_parser = values::size_or_none)]
    yearly_budget: Option<Limit<Bytes>>,

    /// Move at most this much a second, also the speed that a move is reckoned with; or none for no limit
    /// [default: 100MiB]
    #[arg(long, value_name = "BYTES/S", value_parser = values::rate_or_none)]
    rate: Option<Limit<Bytes>>,

    /// Write at most this much before others are looked at in quiet [default: 256MiB]
    #[arg(long, value_name = "BYTES", value_parser = values::size)]
    portion: Option<Bytes>,

    /// Move for at most this time before others are looked at in quiet [default: 5s]
    #[arg(long, value_name = "D", value_parser = values::duration)]
    portion_time: Option<Duration>,

    /// Keep at least this percentage of the file system free [default: 10]
    #[arg(long, value_name = "PCT", value_parser = values::percent)]
    min_free: Option<f64>,

    /// How long an application's write may wait for one step, in milliseconds [default: 50]
    #[arg(long, value_name = "MS", value_parser = values::stall)]
    max_stall: Option<Duration>,

    /// Leave a file alone that somebody else has open if a power cut right after a step could undo what its
    /// writer was told is durable (see indef run)
    #[arg(long)]
    strict: bool,

    /// Files examined (or moved) at the same time [default: 1]
    #[arg(long, value_name = "N", value_parser = values::jobs)]
    jobs: Option<u16>,
}

/// Where the numbers go.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Metrics")]
pub(crate) struct MetricsArgs {
    /// Write the metrics to this file for node_exporter's textfile collector, in Prometheus' text format
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) metrics_file: Option<PathBuf>,

    /// Answer GET /metrics there: unix:PATH, or a loopback address like 127.0.0.1:9779
    #[arg(long, value_name = "ADDRESS", value_parser = Address::from_str)]
    pub(crate) metrics_listen: Option<Address>,
}

impl WatchArgs {
    /// The given settings, falling back to those of `base`; paths and what to leave out are those given.
    ///
    /// # Errors
    ///
    /// The globs are too many to be compiled together.
    pub(crate) fn over(&self, base: Settings) -> Result<Settings, GlobError> {
        let Self {
            learn,
            decide,
            consider,
            bounds,
            ..
        } = self;
        let rate = bounds.rate.map_or(base.run.rate, Limit::value);
        Ok(Settings {
            paths: self.paths.clone(),
            select: self.choose.select()?,
            learn: learn.learn.unwrap_or(base.learn),
            learn_every: learn.learn_every.unwrap_or(base.learn_every),
            sampling: learn.max_overhead.unwrap_or(base.sampling),
            every: decide.every.unwrap_or(base.every),
            terms: Terms {
                within_days: decide.payback.unwrap_or(base.terms.within_days),
                move_bytes_per_s: rate
                    .map_or(base.terms.move_bytes_per_s, |rate| rate.get() as f64),
                wear_s_per_gib: decide.wear_price.unwrap_or(base.terms.wear_s_per_gib),
                requests_per_gib: decide.requests_price.unwrap_or(base.terms.requests_per_gib),
            },
            limits: consider.limits(base.limits),
            windows: match bounds.window.is_empty() {
                true => base.windows,
                false => bounds.window.clone(),
            },
            budgets: Budgets {
                day: bounds.budget.map_or(base.budgets.day, Limit::value),
                year: (bounds.yearly_budget).map_or(base.budgets.year, Limit::value),
            },
            portion: bounds.portion.unwrap_or(base.portion),
            portion_time: bounds.portion_time.unwrap_or(base.portion_time),
            run: RunOptions {
                rate,
                max_stall: bounds.max_stall.unwrap_or(base.run.max_stall),
                min_free_pct: bounds.min_free.unwrap_or(base.run.min_free_pct),
                strict: bounds.strict || base.run.strict,
                jobs: bounds.jobs.map_or(base.run.jobs, usize::from),
                ..base.run
            },
            without_profile: learn.without_profile || base.without_profile,
            once: self.is_once(),
            dry_run: self.dry_run,
        })
    }

    /// Whether it ends by itself.
    pub(crate) fn is_once(&self) -> bool {
        self.once || self.dry_run
    }
}

impl ConsiderArgs {
    fn limits(&self, base: Limits) -> Limits {
        Limits {
            io_pressure: self.max_io_pressure.unwrap_or(base.io_pressure),
            cpu_pressure: self.max_cpu_pressure.unwrap_or(base.cpu_pressure),
            disk_busy: self.max_disk_busy.unwrap_or(base.disk_busy),
            disk_latency_ms: self.max_latency.unwrap_or(base.disk_latency_ms),
            temperature: self.max_temperature.unwrap_or(base.temperature),
            wear: self.max_wear.unwrap_or(base.wear),
            on_battery: self.on_battery || base.on_battery,
            cautious: self.cautious || base.cautious,
            calm: self.calm.unwrap_or(base.calm),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    struct Only {
        #[command(flatten)]
        args: WatchArgs,
    }

    fn settings(words: &[&str]) -> Settings {
        let words = ["watch"].iter().chain(words);
        let args = Only::try_parse_from(words).unwrap().args;
        args.over(Settings::default()).unwrap()
    }

    /// What the help says of defaults is what they are.
    #[test]
    fn the_help_tells_the_defaults() {
        let base = settings(&[]);
        let command = Only::command();
        for argument in command.get_arguments() {
            let help = argument
                .get_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            let Some((_, default)) = help.split_once("[default: ") else {
                continue;
            };
            let default = default.trim_end_matches(']');
            let Some(long) = argument.get_long().filter(|_| default != "always") else {
                continue;
            };
            let given = settings(&[&format!("--{long}"), default]);
            assert_eq!(
                format!("{given:?}"),
                format!("{base:?}"),
                "--{long} {default}"
            );
        }
        assert_eq!(format!("{base:?}"), format!("{:?}", Settings::default()));
    }

    #[test]
    fn options_reach_the_settings() {
        let given = settings(&[
            "/srv",
            "--learn",
            "0s",
            "--payback",
            "1day",
            "--budget",
            "none",
            "--window",
            "sat",
            "--window",
            "22:00-06:00",
            "--rate",
            "10MiB",
            "--dry-run",
        ]);
        assert!(given.once && given.dry_run && given.learn.is_zero());
        assert_eq!(given.terms.within_days, 1.0);
        assert_eq!(given.terms.move_bytes_per_s, 10.0 * 1_048_576.0);
        assert_eq!((given.budgets.day, given.windows.len()), (None, 2));
        for wrong in [
            &["--window", "night"][..],
            &["--budget", "0"],
            &["--max-wear", "101"],
            &["--learn", "5"],
        ] {
            let words = ["watch"].iter().chain(wrong);
            assert!(Only::try_parse_from(words).is_err(), "{wrong:?}");
        }
    }
}
