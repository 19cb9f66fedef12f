//! `indef profile`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use indef_trace::{import::Format, store::StoreOptions};
use units::Bytes;

use super::{trace::LayerName, values};

/// Show, export and merge profiles, and import traces of other tools
///
/// A profile says which parts of which files are read and written, and how often. It is either a
/// store (a database that `indef trace` adds to, with heat that fades) or text (docs/profile.md):
/// `--profile` takes both.
#[derive(Debug, Args)]
#[command(
    subcommand_required = true,
    after_help = "Examples:\n  \
    indef profile show db.profile                    which files are hot?\n  \
    indef profile import db.profile iolog.txt        a trace of fio, strace, perf trace, blkparse\n  \
    indef profile export db.profile --format csv -o db.csv\n  \
    indef profile merge all.profile monday.profile tuesday.profile"
)]
pub(crate) struct ProfileArgs {
    #[command(subcommand)]
    pub(crate) what: ProfileCommand,
}

impl ProfileArgs {
    /// Whether stdout is for what is exported.
    pub(super) fn exports_to_stdout(&self) -> bool {
        matches!(&self.what, ProfileCommand::Export(args) if args.output.is_none())
    }
}

/// The commands on profiles.
#[derive(Debug, Subcommand)]
pub(crate) enum ProfileCommand {
    Show(ShowArgs),
    Export(ExportArgs),
    Import(ImportArgs),
    Merge(MergeArgs),
}

/// Show the content of a profile: totals, sessions, the hottest files
///
/// Shows current heat: an access counts half after each half-life of the store.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    indef profile show db.profile\n  \
    indef profile show --top 3 db.profile\n  \
    indef profile show --json db.profile | jq '.files[] | select(.reads > 1000) | .path'")]
pub(crate) struct ShowArgs {
    /// A store, or a profile of lines
    #[arg(value_name = "PROFILE", value_hint = ValueHint::FilePath)]
    pub(crate) profile: PathBuf,

    /// How many of the hottest files to list
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) top: usize,
}

/// Write a store as text: lines that `--profile` reads, or a table for other tools
///
/// Writes current counts, after fading. Sessions and half-life are not exported.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    indef profile export db.profile -o db.lines\n  \
    indef profile export db.profile --format csv | sort -t, -k6nr | head\n  \
    indef profile export --json db.profile -o db.lines    with a summary as JSON")]
pub(crate) struct ExportArgs {
    /// A store
    #[arg(value_name = "STORE", value_hint = ValueHint::FilePath)]
    pub(crate) store: PathBuf,

    /// Write to this file [default: stdout]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,

    /// Lines or a table
    #[arg(long, value_name = "FORMAT", default_value = "lines")]
    pub(crate) format: ExportFormat,
}

/// The formats of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// One line for each range, after a line that names its file (docs/profile.md)
    Lines,
    /// A table with one row for each range
    Csv,
}

/// Add a trace of another tool, or exported text, to a store
///
/// The trace may be longer than memory. Lines that are not understood, and accesses without a known
/// file or place, are counted and left out.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    fio --write_iolog=iolog.txt job.fio      && indef profile import db.profile iolog.txt\n  \
    strace -f -y -o trace.txt sqlite3 db.sqlite < q.sql && indef profile import db.profile trace.txt\n  \
    perf trace -o perf.txt psql -f q.sql     && indef profile import db.profile perf.txt\n  \
    blkparse -i sda | indef profile import db.profile - --map /srv/db\n  \
    indef profile import new.profile db.lines --half-life 30days\n  \
    indef profile import --json db.profile iolog.txt | jq .accesses\n\n\
    Read-ahead is modelled for accesses that programs asked for (layer syscall), not for accesses\n\
    that reached the device (layer fs).")]
pub(crate) struct ImportArgs {
    /// The store; created if it does not exist
    #[arg(value_name = "STORE", value_hint = ValueHint::FilePath)]
    pub(crate) store: PathBuf,

    /// The trace; - for stdin
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) input: PathBuf,

    /// Format of the trace [default: recognised by its first lines]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<ImportFormat>,

    /// The layer at which the accesses were seen [default: fs for blkparse, else syscall]
    #[arg(long, value_name = "LAYER")]
    pub(crate) layer: Option<LayerName>,

    /// The folder in which the traced program was started [default: this one]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) folder: Option<PathBuf>,

    /// blkparse: files, or folders with files, in which to look the device's blocks up (may be given
    /// several times); the files must not have moved since
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) map: Vec<PathBuf>,

    /// How far the kernel read ahead of a sequential reader; 0 for no read-ahead
    /// [default: what the device of each file says, its read_ahead_kb]
    #[arg(long, value_name = "SIZE")]
    pub(crate) readahead: Option<Bytes>,

    /// After this time, an access counts half; 0s for never [default for a new store: 7days]
    #[arg(long, value_name = "D", value_parser = humantime::parse_duration)]
    half_life: Option<Duration>,

    /// The store's file never grows beyond this [default for a new store: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = values::max_size)]
    max_size: Option<Bytes>,
}

impl ImportArgs {
    /// The options for opening the store.
    pub(crate) fn options(&self) -> StoreOptions {
        StoreOptions {
            half_life: self.half_life,
            max_size: self.max_size,
        }
    }
}

/// The formats by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ImportFormat {
    /// An iolog of `fio --write_iolog`
    Fio,
    /// Text of strace; with -f for children, with -y for files that were already open
    Strace,
    /// Text of perf trace
    Perf,
    /// Text of blkparse; needs --map
    Blkparse,
    /// indef's own lines (docs/profile.md)
    Lines,
    /// A table from `indef profile export --format csv`
    Csv,
}

impl From<ImportFormat> for Format {
    fn from(format: ImportFormat) -> Self {
        match format {
            ImportFormat::Fio => Self::Fio,
            ImportFormat::Strace => Self::Strace,
            ImportFormat::Perf => Self::Perf,
            ImportFormat::Blkparse => Self::Blkparse,
            ImportFormat::Lines => Self::Lines,
            ImportFormat::Csv => Self::Csv,
        }
    }
}

/// Add other stores to a store
///
/// Equal ranges of the same file add up, each with its current heat.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    indef profile merge all.profile monday.profile tuesday.profile\n  \
    indef profile merge --json all.profile monday.profile")]
pub(crate) struct MergeArgs {
    /// The store that the others are added to; created if it does not exist
    #[arg(value_name = "STORE", value_hint = ValueHint::FilePath)]
    pub(crate) store: PathBuf,

    /// The others; they stay as they are
    #[arg(required = true, value_name = "OTHER", value_hint = ValueHint::FilePath)]
    pub(crate) others: Vec<PathBuf>,
}
