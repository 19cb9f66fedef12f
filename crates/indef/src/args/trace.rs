//! `indef trace`.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum, ValueHint};
use indef_pipeline::learn::Keep;
use indef_trace::{
    collect::{Filter, Layer, Sampling, TraceOptions},
    store::StoreOptions,
};
use units::Bytes;

use super::values;

/// Learn what applications really read and write
///
/// Watches with eBPF, in the kernel, at a cost that --max-overhead bounds; needs root, or CAP_BPF,
/// CAP_PERFMON and CAP_DAC_READ_SEARCH. Ends with the command, at --duration, or with Ctrl-C, and
/// adds the accesses to the profile, whose heat fades with time. `indef plan --profile` then moves
/// only ranges that are both fragmented and read.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    indef trace -o db.profile -- psql -f report.sql    a command, with all its children\n  \
    indef trace -o db.profile --comm mysqld --duration 1h\n  \
    indef trace -o vm.profile --path /var/lib/libvirt  all accesses below that folder\n  \
    indef trace --duration 10s                         only show, keep nothing\n  \
    indef trace --check                                what can be seen on this kernel?\n\n\
    Layers:\n  \
    fs       accesses that reach the device, after page cache and read-ahead (the default)\n  \
    syscall  accesses that the application asks for; the effect of read-ahead is modelled")]
pub(crate) struct TraceArgs {
    /// Add the accesses to this profile (created if it does not exist)
    #[arg(short, long, value_name = "PROFILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,

    /// The layer at which accesses count
    #[arg(long, value_name = "LAYER", default_value = "fs")]
    pub(crate) layer: LayerName,

    /// Keep every single access, in order of time, as lines (docs/profile.md) instead of a store
    #[arg(long, requires = "output")]
    pub(crate) raw: bool,

    /// Keep tracing below this many percent of one processor's time: where counting every access
    /// would cost more, one in k is counted, k times; beyond k = 64 only in a part of the time. 100 or
    /// `off`: count every one
    #[arg(long, value_name = "PCT", default_value = "1", value_parser = overhead, conflicts_with = "raw")]
    pub(crate) max_overhead: Sampling,

    /// Stop after this time, like 90s or 1h30m
    #[arg(long, value_name = "D", value_parser = values::duration)]
    pub(crate) duration: Option<Duration>,

    /// How many of the hottest files to list
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) top: usize,

    /// Show what this kernel lets indef see, and what not and why; trace nothing
    #[arg(long, conflicts_with_all = ["output", "command"])]
    pub(crate) check: bool,

    #[command(flatten)]
    pub(crate) filter: FilterArgs,

    #[command(flatten)]
    pub(crate) keep: KeepArgs,

    /// Run this command, and watch it and all its children
    #[arg(last = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// Filters: the processes and files that count.
#[derive(Debug, Args)]
#[command(
    next_help_heading = "Filters (all that are given must hold; of several names, paths or devices, one)"
)]
pub(crate) struct FilterArgs {
    /// Only this process and its later children (may be given several times)
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Vec<u32>,

    /// Only processes of this name, as `ps -o comm` shows it, with all their threads (may be given
    /// several times)
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    comm: Vec<String>,

    /// Only processes in this control group or below, like /sys/fs/cgroup/system.slice
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    cgroup: Option<PathBuf>,

    /// Only processes of this user, by name or number
    #[arg(long, value_name = "USER", value_parser = user)]
    uid: Option<u32>,

    /// Only this file, or files below this folder (may be given several times)
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    path: Vec<PathBuf>,

    /// Only files on this block device (may be given several times)
    #[arg(long, value_name = "DEVICE", value_hint = ValueHint::FilePath)]
    device: Vec<PathBuf>,

    /// Only reads or only writes
    #[arg(long, value_name = "WHAT")]
    only: Option<Only>,
}

/// How the profile is kept.
#[derive(Debug, Args)]
#[command(next_help_heading = "Profile")]
pub(crate) struct KeepArgs {
    /// After this time, an access counts half; 0s for never [default for a new profile: 7days]
    #[arg(long, value_name = "D", value_parser = humantime::parse_duration)]
    pub(crate) half_life: Option<Duration>,

    /// The profile's file never grows beyond this [default for a new profile: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = values::max_size)]
    pub(crate) max_size: Option<Bytes>,

    /// Layer syscall: how far the kernel reads ahead of a sequential reader; 0 for no read-ahead
    /// [default: what the device of each file says, its read_ahead_kb]
    #[arg(long, value_name = "SIZE")]
    readahead: Option<Bytes>,
}

/// The layers by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LayerName {
    /// Accesses that reach the device
    Fs,
    /// Accesses that the application asks for
    Syscall,
}

/// `--only`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Only {
    /// Reads
    Reads,
    /// Writes
    Writes,
}

impl TraceArgs {
    /// The place to keep the recorded accesses, if any.
    pub(crate) fn keep(&self) -> Option<Keep> {
        let words: Vec<_> = self.command.iter().map(|w| w.to_string_lossy()).collect();
        Some(Keep {
            path: self.output.clone()?,
            raw: self.raw,
            command: words.join(" "),
            store: StoreOptions {
                half_life: self.keep.half_life,
                max_size: self.keep.max_size,
            },
            is_patient: false,
        })
    }

    /// The options for the collector.
    pub(crate) fn options(&self) -> TraceOptions {
        let filter = &self.filter;
        TraceOptions {
            layer: match self.layer {
                LayerName::Fs => Layer::Fs,
                LayerName::Syscall => Layer::Syscall,
            },
            reads: filter.only != Some(Only::Writes),
            writes: filter.only != Some(Only::Reads),
            filter: Filter {
                pids: filter.pid.clone(),
                only_followed: !self.command.is_empty(),
                comms: filter.comm.clone(),
                cgroup: filter.cgroup.clone(),
                uid: filter.uid,
                paths: filter.path.clone(),
                devices: filter.device.clone(),
            },
            readahead: self.keep.readahead,
            raw: self.raw,
            sampling: self.max_overhead,
            ..TraceOptions::default()
        }
    }
}

impl TraceArgs {
    /// The percentage of one processor's time that tracing is to cost at most; single accesses have no
    /// weight, and no bound.
    pub(crate) fn bound_percent(&self) -> Option<f64> {
        self.max_overhead.bound_percent().filter(|_| !self.raw)
    }
}

/// `--max-overhead`.
pub(crate) fn overhead(text: &str) -> Result<Sampling, String> {
    if text == "off" {
        return Ok(Sampling::All);
    }
    let number = text.strip_suffix('%').unwrap_or(text);
    match number.parse::<f64>() {
        Ok(percent) if (0.01..=100.0).contains(&percent) => Ok(Sampling::at_most_percent(percent)),
        _ => Err("it is a number of percent from 0.01 to 100, or off".to_owned()),
    }
}

/// A user by number or name (`/etc/passwd`).
fn user(text: &str) -> Result<u32, String> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let table = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let id = table.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(text)).then(|| fields.nth(1)?.parse().ok())?
    });
    id.ok_or_else(|| format!("there is no user '{text}' in /etc/passwd; give the number"))
}
