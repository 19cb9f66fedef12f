//! The options of `indef top`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueHint};
use units::Bytes;

use super::{BoundArgs, HowArgs, Workers, values};

/// Show the hottest fragmented ranges, live, and repair them at a key
///
/// A list like that of top(1), but of file ranges: those that are read most and lie in many
/// fragments, with the device time that this costs. `r` gives the selected range new, contiguous
/// blocks, `R` all listed ranges of its file; `?` shows all keys. Counts come from a collector that
/// watches the whole machine (needs root), or from a profile.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sudo indef top                        current reads, on all file systems\n  \
    sudo indef top /srv/db                only files there\n  \
    indef top --profile db.profile        the reads of a recorded profile\n  \
    indef top --profile db.profile --once | head     as text, once\n  \
    sudo indef top --once --watch 30s --json         watch for 30 s, one JSON document\n\n\
    The time lost is the device time of a range's reads, times the share of its fragments that\n\
    a repair would take away. For ranges without timed reads it is estimated from the others.")]
pub(crate) struct TopArgs {
    /// Only files below these paths
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) paths: Vec<PathBuf>,

    /// Show this profile instead of current reads
    #[arg(long, value_name = "PROFILE", value_hint = ValueHint::FilePath)]
    pub(crate) profile: Option<PathBuf>,

    /// How far the kernel reads ahead of a sequential reader (profiles of single accesses)
    /// [default: what the device of each file says, its read_ahead_kb]
    #[arg(long, value_name = "SIZE")]
    pub(crate) readahead: Option<Bytes>,

    /// Print the list once, as text (as if stdout were no terminal)
    #[arg(long)]
    pub(crate) once: bool,

    /// How long to watch before printing once
    #[arg(long, value_name = "D", default_value = "5s", value_parser = values::duration,
          conflicts_with = "profile")]
    pub(crate) watch: Duration,

    /// How many ranges to print once
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) top: usize,

    /// How often the screen is refreshed
    #[arg(long, value_name = "D", default_value = "1s", value_parser = interval)]
    pub(crate) interval: Duration,

    #[command(flatten)]
    pub(crate) bounds: BoundArgs,

    #[command(flatten)]
    pub(crate) how: HowArgs,

    #[command(flatten)]
    pub(crate) workers: Workers,
}

/// Parse a refresh interval: often enough to be live, seldom enough to cost nothing.
fn interval(text: &str) -> Result<Duration, String> {
    let interval = values::duration(text)?;
    if (Duration::from_millis(100)..=Duration::from_secs(60)).contains(&interval) {
        Ok(interval)
    } else {
        Err("must lie between 100ms and 60s".into())
    }
}
