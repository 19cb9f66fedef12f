//! The command line: the definition of all commands and options, without their work.
//!
//! Help texts, man pages and shell completions all come from these definitions. Parsing checks values
//! (exit status 2); whether files exist is checked later (exit status 1).

mod compact;
mod config;
mod execution;
mod files;
mod internal;
mod probe;
mod profile;
mod selection;
mod top;
mod trace;
pub(crate) mod values;
mod watch;

use std::{ffi::OsString, path::PathBuf};

use clap::{
    ArgAction, Args, CommandFactory, Parser, Subcommand, ValueEnum, ValueHint, error::ErrorKind,
};
use indef_pipeline::{geometry::GeometryChoice, plan::Replay};
use units::Bytes;

pub(crate) use compact::CompactArgs;
pub(crate) use config::{ConfigArgs, ConfigCommand};
pub(crate) use execution::{EngineChoice, HowArgs, Workers};
pub(crate) use files::FilesArgs;
pub(crate) use internal::{DemoStep, DemoStepArgs, Generate, HeldArgs, Internal};
pub(crate) use probe::ProbeArgs;
pub(crate) use profile::{
    ExportArgs, ExportFormat, ImportArgs, MergeArgs, ProfileArgs, ProfileCommand, ShowArgs,
};
pub(crate) use selection::{BoundArgs, PlanArgs, PolicyName};
pub(crate) use top::TopArgs;
pub(crate) use trace::{LayerName, TraceArgs, overhead};
pub(crate) use values::Limit;
pub(crate) use watch::WatchArgs;

/// Finds the fragments that make reads slow on flash, and moves only those
///
/// indef examines files on mounted ext4, XFS, Btrfs and F2FS file systems, plans which of their
/// ranges are worth moving, and gives those new, contiguous blocks, while applications keep using
/// the files. File contents never change, whatever happens meanwhile.
#[derive(Debug, Parser)]
#[command(
    name = "indef",
    version = env!("INDEF_VERSION"),
    max_term_width = 100,
    propagate_version = true,
    after_help = "Try first:\n  \
        indef scan ~/data            how fragmented are my files?\n  \
        indef run --dry-run ~/data   which files would be moved?\n  \
        sudo indef demo              see it work, on a file system of its own\n\n\
        Exit status: 0 done (skipped files are no failure), 1 something failed, 2 wrong usage,\n\
        3 nothing failed, but a limit or a signal stopped it with work left (indef run --resume\n\
        continues)."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

impl Cli {
    /// The command line of these words, whose first one is the program.
    ///
    /// # Errors
    ///
    /// Wrong usage, or a call for help.
    pub(crate) fn of(words: &[OsString]) -> Result<Self, clap::Error> {
        let cli = Self::try_parse_from(words)?;
        match cli.misuse() {
            None => Ok(cli),
            Some(why) => Err(Self::command().error(ErrorKind::ArgumentConflict, why)),
        }
    }

    /// Why options do not go together, where their definitions cannot tell.
    fn misuse(&self) -> Option<&'static str> {
        match &self.command {
            Command::Watch(args) if self.common.json && !args.is_once() => Some(
                "--json is for --once and --dry-run: a service that goes on has no last document",
            ),
            Command::Profile(args) if self.common.json && args.exports_to_stdout() => {
                Some("--json needs -o: stdout is for the document then")
            }
            _ => None,
        }
    }
}

/// Options that every command understands.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct CommonArgs {
    /// Print one JSON document instead of text (schemas in docs/json.md)
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Print nothing but errors (and the JSON document, if asked for)
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,

    /// Print more: every file; twice: every decision
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,

    /// When to use colours (NO_COLOR is respected)
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: When,

    /// When to show progress on stderr
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) progress: When,
}

/// `auto` means: on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    /// On a terminal
    Auto,
    /// Also into a pipe or file
    Always,
    /// Not at all
    Never,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Scan(ScanArgs),
    Trace(TraceArgs),
    Profile(ProfileArgs),
    Plan(PlanCommandArgs),
    Run(RunArgs),
    Top(TopArgs),
    Probe(ProbeArgs),
    Compact(CompactArgs),
    Watch(WatchArgs),
    Report(ReportArgs),
    Demo(DemoArgs),
    History(HistoryArgs),
    Config(ConfigArgs),
    Doctor(DoctorArgs),
}

/// Show how fragmented files are, where, and what that costs
///
/// Walks the paths in parallel and reads only metadata: it changes nothing and reads no file
/// content. It does not leave the file systems of the given directories.
///
/// On Btrfs a scan of a whole subvolume by root remembers files of one extent, and the next one
/// looks only at what has changed since, by the generations of the subvolume's tree. Up to 64 MiB
/// of data that wait in memory are written back for that.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    indef scan /var/lib/postgresql           the 20 worst files, a histogram, totals\n  \
    indef scan --top 5 --io-size 1MiB /home  judged for reads of 1 MiB\n  \
    indef scan /srv/db --profile db.profile          what the fragments cost its readers\n  \
    indef scan / --exclude /var/tmp --min-size 1MiB  only larger files, and none there\n  \
    find . -name '*.db' | indef scan --files-from -  only these\n  \
    indef scan --json --only-fragmented /srv | jq '.files[] | select(.extents > 1000) | .path'")]
pub(crate) struct ScanArgs {
    /// Files and directories
    #[arg(
        value_name = "PATH",
        value_hint = ValueHint::AnyPath,
        required_unless_present_any = ["files_from", "all_mounts"],
        conflicts_with_all = ["files_from", "all_mounts"]
    )]
    pub(crate) paths: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) files: FilesArgs,

    /// How many of the worst files to list
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) top: usize,

    /// List only files that have more extents than they need, which are few of many (with --json; the sums are
    /// of all files)
    #[arg(long, requires = "json")]
    pub(crate) only_fragmented: bool,

    /// The I/O size for which fragments are counted (DoLF)
    #[arg(long, value_name = "SIZE", default_value = "128KiB", value_parser = values::io_size)]
    pub(crate) io_size: Bytes,

    /// Recorded accesses: shows heat beside fragmentation, the costliest files first
    #[arg(long, value_name = "PROFILE", value_hint = ValueHint::FilePath)]
    pub(crate) profile: Option<PathBuf>,

    /// How far the kernel reads ahead of a sequential reader; 0 for no read-ahead (with a profile)
    /// [default: what the device of each file says, its read_ahead_kb]
    #[arg(long, value_name = "SIZE")]
    pub(crate) readahead: Option<Bytes>,

    /// Geometry of the device, for DoPF: auto (ask it), unknown, striped:granule=SIZE,dies=N or
    /// zoned:chips=N[,block=4KiB][,segment=2MiB][,segment-chips=N][,offset=0] [default: auto]
    #[arg(long, value_name = "SPEC", value_parser = selection::geometry)]
    pub(crate) geometry: Option<GeometryChoice>,

    /// Open each file and have the kernel map it, also where the file system's metadata tells of
    /// many files at once; believe nothing that an earlier scan remembered
    #[arg(long)]
    pub(crate) full: bool,

    #[command(flatten)]
    pub(crate) workers: Workers,
}

/// Decide what would move, what it costs and what it gains
///
/// Changes nothing. -o writes the plan to a file that `indef run --plan` executes later, after it has
/// checked again everything that may have changed meanwhile.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    indef plan /srv/db                               the files to be moved, as a table\n  \
    indef plan /srv/db -o db.plan                    keep the plan, run it tonight\n  \
    indef plan /srv/db --profile db.profile --truncate 30 -o db.plan\n  \
    indef plan / --budget 2GiB                       the best 2 GiB of it\n\n\
    Policies:\n  \
    indef       ranges of the profile by priority, the lowest --truncate percent left out\n  \
    fragpicker  the hottest --hot percent of the profile's ranges that are fragmented\n  \
    sequential  fragmented ranges as sequential reads would meet them; needs no profile\n  \
    whole       every fragmented file as a whole, as conventional tools do")]
pub(crate) struct PlanCommandArgs {
    /// Files and directories
    #[arg(
        value_name = "PATH",
        value_hint = ValueHint::AnyPath,
        required_unless_present_any = ["files_from", "all_mounts"],
        conflicts_with_all = ["files_from", "all_mounts"]
    )]
    pub(crate) paths: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) files: FilesArgs,

    /// Write the plan to this file
    #[arg(short, long, value_name = "PLAN", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,

    /// How many files to list
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) top: usize,

    /// Measure what contiguous reads take under the load of the profile, and what the plan would leave:
    /// reads ranges of it for some seconds (with --weight measured)
    #[arg(
        long,
        value_name = "HOW",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "direct",
        requires_all = ["profile", "weight"]
    )]
    pub(crate) calibrate: Option<Calibrate>,

    #[command(flatten)]
    pub(crate) plan: PlanArgs,

    #[command(flatten)]
    pub(crate) bounds: BoundArgs,

    #[command(flatten)]
    pub(crate) workers: Workers,
}

/// Give fragmented ranges new, contiguous blocks
///
/// Plans and runs in one go, or runs a plan. Contents, sizes, times, holes and sharing stay as
/// they are; the files may be in use. You can interrupt it at any time: it finishes the current
/// step, moved data stays moved, and --resume continues.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    indef run ~/vm-images                    repair the fragmented files there\n  \
    indef run --dry-run /srv                 only show what would be done\n  \
    indef run --all-mounts --exclude /mnt/backup --min-size 1MiB\n  \
    indef run --plan db.plan --rate 50MiB    run a plan, at most 50 MiB written a second\n  \
    indef run /srv --time-limit 1h --budget 10GiB\n  \
    indef run --shared-among-paths /srv/vms  images that are reflinks of each other, on an old XFS\n  \
    indef run --config --dry-run             what would indef.service do?\n  \
    indef run --resume                       continue the run that was stopped last")]
pub(crate) struct RunArgs {
    /// Files and directories
    #[arg(
        value_name = "PATH",
        value_hint = ValueHint::AnyPath,
        required_unless_present_any = ["plan_file", "resume", "files_from", "all_mounts", "config"],
        conflicts_with_all = ["plan_file", "resume", "files_from", "all_mounts"]
    )]
    pub(crate) paths: Vec<PathBuf>,

    /// Take from the configuration what is not given here: paths, and all options that `indef config
    /// show` tells. FILE is /etc/indef/indef.toml if none is named, with its drop-ins
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, num_args = 0..=1,
          require_equals = true, conflicts_with_all = ["plan_file", "resume"])]
    pub(crate) config: Option<Option<PathBuf>>,

    #[command(flatten)]
    pub(crate) files: FilesArgs,

    /// Run this plan (from `indef plan -o`)
    #[arg(long = "plan", value_name = "PLAN", value_hint = ValueHint::FilePath,
          conflicts_with_all = ["resume", "selection", "excluded", "min_size", "files_from", "null", "all_mounts"])]
    pub(crate) plan_file: Option<PathBuf>,

    /// Continue the run that was stopped last, with the options that it had; options given now
    /// replace them
    #[arg(long, conflicts_with_all = ["selection", "excluded", "min_size", "files_from", "null", "all_mounts"])]
    pub(crate) resume: bool,

    #[command(flatten)]
    pub(crate) plan: PlanArgs,

    #[command(flatten)]
    pub(crate) bounds: BoundArgs,

    #[command(flatten)]
    pub(crate) how: HowArgs,

    #[command(flatten)]
    pub(crate) workers: Workers,
}

/// Show plans and results of runs as text, HTML or JSON
///
/// Reads plan files (`indef plan -o`) and saved results (`indef run --json > run.json`, also of
/// the demo), in any mixture, and shows them in the order given.
///
/// With --merge it reads JSON documents of many hosts (scan, plan, run, compact, watch, history), any number of them
/// in each file, and shows one table with a line for each host: what it has to gain and has gained, what was left
/// alone, and when a run last succeeded. A run of which a result and the history tell counts once.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    indef run --json /srv > run.json && indef report run.json\n  \
    indef report --html report.html db.plan run.json    one self-contained page\n  \
    for host in db1 db2; do ssh $host 'indef history --json; indef scan --json --only-fragmented /srv'; done > all.json\n  \
    indef report --merge all.json                       one line for each host\n  \
    indef report --merge -o fleet.html results/*.json   the same as a page")]
pub(crate) struct ReportArgs {
    /// Plan files and saved JSON results
    #[arg(required = true, value_name = "PLAN|RUN", value_hint = ValueHint::FilePath)]
    pub(crate) inputs: Vec<PathBuf>,

    /// Show one table of many hosts: the files are JSON documents of theirs
    #[arg(long)]
    pub(crate) merge: bool,

    /// Write one self-contained HTML page to this file
    #[arg(short = 'o', long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) html: Option<PathBuf>,

    /// How many files to list for each input, or hosts [default: 20; 1000 files and 10000 hosts with --html]
    #[arg(long, value_name = "N")]
    pub(crate) top: Option<usize>,
}

/// Show the whole pipeline at work on a file system of its own
///
/// Makes a file system on a loop file, ages it with interleaved writers and a SQLite database,
/// scans, plans and runs, proves that all contents are equal and the file system is clean, times
/// cold reads before and after, and cleans up. Without root it works in a directory of yours, and
/// says what root would add.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sudo indef demo                  ext4 on a loop file\n  \
    sudo indef demo --fs btrfs\n  \
    indef demo --dir ~/tmp           without root, in a directory of your own\n  \
    indef demo --zns                 F2FS on a zoned SSD, in a virtual machine\n  \
    sudo indef demo --json > demo.json && indef report demo.json --html demo.html")]
pub(crate) struct DemoArgs {
    /// Which file system to make (needs root) [default: ext4]
    #[arg(long, conflicts_with = "dir")]
    pub(crate) fs: Option<DemoFs>,

    /// Make no file system: work in a temporary folder of this directory
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) dir: Option<PathBuf>,

    /// In a virtual machine: F2FS on a zoned (ZNS) SSD that copies by itself. Needs the program
    /// indef-lab, QEMU and, the first time, a network to fetch one of Debian's kernels; needs neither
    /// root nor a ZNS SSD
    #[arg(long, conflicts_with_all = ["fs", "dir"])]
    pub(crate) zns: bool,

    /// How much data to age [default: 256MiB; 32MiB with --zns]
    #[arg(long, value_name = "SIZE", value_parser = values::demo_size)]
    size: Option<Bytes>,
}

impl DemoArgs {
    /// How much data to age.
    pub(crate) fn size(&self) -> Bytes {
        self.size.unwrap_or(if self.zns {
            Bytes::mib(32)
        } else {
            Bytes::mib(256)
        })
    }
}

/// Show what works on this machine, and how to get what does not
///
/// Looks at the kernel, the mounted file systems and the engines that runs would use there, the rights of
/// this process, whether it can trace, the laboratory, and what stopped runs have left. Changes nothing.
/// What is missing is a result, no failure.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    indef doctor\n  \
    sudo indef doctor                what would work for root?\n  \
    indef doctor --json | jq '.file_systems[] | select(.works) | .path'")]
pub(crate) struct DoctorArgs {}

/// Show what runs did
///
/// Each run, each compact, and each round of moves of watch on a file system, leaves a record when it begins and
/// ends, also one that was stopped, failed or was killed; dry runs leave none. The newest are kept, at most 1,000 and
/// 1 MiB of them, for each user apart.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    indef history                    the last 20 runs\n  \
    sudo indef history --verbose     all runs of root, with what each left alone\n  \
    indef history --json | jq '.runs[] | select(.ended == \"failed\") | .why'")]
pub(crate) struct HistoryArgs {
    /// Show so many of the last runs [default: 20; all with --json or --verbose]
    #[arg(long, value_name = "N")]
    pub(crate) last: Option<usize>,
}

/// How `--calibrate` reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Calibrate {
    /// With O_DIRECT: tells how long reads wait for the device
    Direct,
    /// Through the page cache, which is left as it was: tells of whole calls of programs that read so
    Buffered,
}

impl Calibrate {
    pub(crate) const fn replay(self) -> Replay {
        match self {
            Self::Direct => Replay::Direct,
            Self::Buffered => Replay::Buffered,
        }
    }
}

/// File systems that the demo can make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DemoFs {
    Ext4,
    Xfs,
    Btrfs,
}

impl DemoFs {
    /// The name for mkfs and mount.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_generic_defragmenter_call_is_understood() {
        let cli = Cli::try_parse_from(["indef", "run", "-v", "FILE"]).unwrap();
        assert_eq!(cli.common.verbose, 1);
        assert!(matches!(cli.command, Command::Run(run) if run.paths == [PathBuf::from("FILE")]));
    }

    #[test]
    fn a_run_needs_exactly_one_source() {
        for arguments in [
            &["indef", "run"][..],
            &["indef", "run", "a", "--plan", "b"],
            &["indef", "run", "a", "--resume"],
            &["indef", "run", "--plan", "b", "--resume"],
            &["indef", "run", "--plan", "b", "--policy", "whole"],
            &["indef", "run", "--plan", "b", "--exclude", "c"],
            &["indef", "run", "--plan", "b", "--files-from", "c"],
            &["indef", "run", "--resume", "--min-size", "1MiB"],
            &["indef", "run", "--resume", "--all-mounts"],
            &["indef", "run", "a", "--files-from", "b"],
            &["indef", "run", "a", "--all-mounts"],
            &["indef", "run", "--all-mounts", "--files-from", "b"],
            &["indef", "run", "a", "-0"],
            &["indef", "run", "--all-mounts", "-0"],
            &["indef", "run", "--resume", "-0"],
            &["indef", "run", "a", "--exclude", "[b"],
            &["indef", "run", "a", "--jobs", "0"],
            &["indef", "run", "a", "--queue-depth", "0"],
            &["indef", "run", "a", "--engine", "warp"],
            &["indef", "run", "a", "--truncate", "101"],
            &["indef", "run", "a", "--truncate", "-1"],
            &["indef", "run", "a", "--policy", "best"],
            &["indef", "run", "a", "--rate", "fast"],
        ] {
            assert!(Cli::try_parse_from(arguments).is_err(), "{arguments:?}");
        }
    }
}
