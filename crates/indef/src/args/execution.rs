//! The options of everything that moves data: how, how fast, how many at a time.

use std::time::Duration;

use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use indef_engine::run::RunOptions;
use indef_fs::EngineKind;
use units::Bytes;

use super::values::{self, Limit};

/// How many threads.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Workers {
    /// Files examined (or moved) at the same time [default: number of processors, at least 4; up to 32
    /// where an engine moves files together]
    #[arg(long, value_name = "N", value_parser = values::jobs)]
    pub(crate) jobs: Option<u16>,
}

impl Workers {
    /// The given number, or a default for this machine: the work waits for the device more than it
    /// computes, so a few threads more than processors do no harm.
    pub(crate) fn count(self) -> usize {
        self.given()
            .unwrap_or_else(|| std::thread::available_parallelism().map_or(4, |n| n.get().max(4)))
    }

    /// The given number, if any.
    pub(crate) fn given(self) -> Option<usize> {
        self.jobs.map(usize::from)
    }
}

/// How a run works.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Execution")]
pub(crate) struct HowArgs {
    /// Show what would be done, change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// The engine that moves data [default: auto, the best one for each file system]
    #[arg(long, value_name = "NAME", value_parser = engines())]
    pub(crate) engine: Option<EngineChoice>,

    /// Blocks in flight inside each file [default: 64]
    #[arg(long, value_name = "N", value_parser = values::queue_depth)]
    pub(crate) queue_depth: Option<u32>,

    /// Move at most this much a second, like 100MiB; none for no limit. On Btrfs on average: 16 MiB and more are
    /// written in one go
    #[arg(long, value_name = "BYTES/S", value_parser = values::rate_or_none)]
    pub(crate) rate: Option<Limit<Bytes>>,

    /// Leave a file alone that somebody else has open if a power cut right after a step could undo
    /// writes that its writer was told are durable (ext4), or, if it is cloned in that
    /// moment, put writes to the clone into it (XFS without exchange)
    #[arg(long)]
    pub(crate) strict: bool,

    /// How long an application's write may wait for one step, in milliseconds: steps are sized to
    /// take half of it; the result says how many took longer [default: 50]
    #[arg(long, value_name = "MS", value_parser = values::stall)]
    pub(crate) max_stall: Option<Duration>,

    /// Stop after this time, like 90s or 1h30m (exit status 3 if work is left); none for no limit
    #[arg(long, value_name = "D", value_parser = values::duration_or_none)]
    pub(crate) time_limit: Option<Limit<Duration>>,
}

impl HowArgs {
    /// The engine given by name, if any.
    pub(crate) fn engine(&self) -> Option<EngineKind> {
        self.engine.and_then(EngineChoice::named)
    }

    /// The time limit, if there is one.
    pub(crate) fn time_limit(&self) -> Option<Duration> {
        self.time_limit.and_then(Limit::value)
    }

    /// The given options, falling back to those of `base`.
    pub(crate) fn over(&self, base: RunOptions) -> RunOptions {
        RunOptions {
            queue_depth: self.queue_depth.unwrap_or(base.queue_depth),
            engine: self.engine.map_or(base.engine, EngineChoice::named),
            rate: self.rate.map_or(base.rate, Limit::value),
            max_stall: self.max_stall.unwrap_or(base.max_stall),
            time_limit: self.time_limit.map_or(base.time_limit, Limit::value),
            dry_run: self.dry_run,
            strict: self.strict || base.strict,
            ..base
        }
    }
}

/// `--engine`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EngineChoice {
    /// The best one for each file system.
    Auto,
    /// This one, and none where it is not applicable.
    Named(EngineKind),
}

impl EngineChoice {
    /// The engine given by name, if any.
    pub(crate) fn named(self) -> Option<EngineKind> {
        match self {
            Self::Auto => None,
            Self::Named(kind) => Some(kind),
        }
    }
}

/// `auto` and the engines by name, so that shells complete them.
fn engines() -> impl TypedValueParser<Value = EngineChoice> {
    let names = EngineKind::ALL.map(EngineKind::name);
    PossibleValuesParser::new(["auto"].into_iter().chain(names)).try_map(|name| match &*name {
        "auto" => Ok(EngineChoice::Auto),
        name => name.parse().map(EngineChoice::Named),
    })
}
