//! The command line.

use std::{env, path::PathBuf, str::FromStr};

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand, ValueEnum};
use hammer::{Mood, Mover, Options, VOLUMES, Volume};

/// Hammer a defragmenter: change files in every way while it moves them, cut the power, and look
/// whether anything is lost
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Examples:\n  \
    hammer run --minutes 10                            every volume, seeds of its own\n  \
    hammer run --volume xfs-commit --seed 7            one round that can be repeated\n  \
    hammer run --volume ext4 --mover none --rounds 3   nobody moves: nothing may be found\n  \
    hammer run --volume ext4 --mood direct --window 0  count what fdatasync loses as any other"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run rounds and print a table; exit status 1 if anything was found that cannot be
    ///
    /// A round makes a volume with fragmented files on it, lets actors change them while the mover
    /// runs, is stopped and killed, copies the device at many instants, and examines each copy as
    /// after a power cut. "window" counts what is lost in the window of ext4 that docs/hammer.md
    /// describes; a round in which nothing was moved is "void". It needs root.
    Run(RunArgs),
    /// List the volumes
    Volumes,
}

/// `--seed`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Seed {
    Random,
    Number(u64),
}

impl FromStr for Seed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "random" {
            return Ok(Self::Random);
        }
        let number = text.parse().map(Self::Number);
        number.map_err(|_| format!("'{text}' is neither a number nor 'random'"))
    }
}

impl Seed {
    /// Of the first round; each further one has the next.
    pub(crate) fn first(self) -> u64 {
        match self {
            Self::Number(number) => number,
            Self::Random => {
                let now = std::time::SystemTime::now();
                let since = now.duration_since(std::time::UNIX_EPOCH);
                since.map_or(0, |since| since.as_micros() as u64)
            }
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum MoverName {
    Indef,
    None,
    E4defrag,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Volume to hammer; may be repeated [default: all, see `hammer volumes`]
    #[arg(long, value_name = "NAME")]
    volume: Vec<String>,

    /// Seed of the first round, each further one has the next; or random
    #[arg(long, value_name = "S|random", default_value = "random")]
    pub(crate) seed: Seed,

    /// Rounds on each volume
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) rounds: u64,

    /// Begin rounds for this many minutes, however many they are
    #[arg(long, value_name = "M", conflicts_with = "rounds")]
    pub(crate) minutes: Option<u64>,

    /// Cuts in a round
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) states: u32,

    /// Who moves
    #[arg(long, value_name = "WHO", default_value = "indef")]
    mover: MoverName,

    /// The indef to run [default: $INDEF, or the one beside this program]
    #[arg(long, value_name = "PROGRAM")]
    indef: Option<PathBuf>,

    /// On ext4: longest time of a step and its commit, during which the loss of what fdatasync
    /// acknowledged is counted apart; 0 to count it as any other
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    window: u64,

    /// What actors do most [default: the seed says]
    #[arg(long)]
    mood: Option<Mood>,

    /// Where images lie, 2 GiB at most [default: /dev/shm if it has room, else the temporary folder]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,

    /// Newer mkfs.xfs and xfs_repair for xfs-commit [default: target/xfsprogs, if there]
    #[arg(long, value_name = "DIR")]
    tools: Option<PathBuf>,

    /// After a violation: leave out steps while it still comes, in at most N rounds
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) shrink: u32,

    /// Keep the operation logs of rounds with violations in this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) log: Option<PathBuf>,

    /// Print one JSON document with all rounds
    #[arg(long)]
    pub(crate) json: bool,
}

impl RunArgs {
    pub(crate) fn volumes(&self) -> Result<Vec<&'static Volume>> {
        if self.volume.is_empty() {
            return Ok(VOLUMES.iter().collect());
        }
        let named = |name: &String| {
            let found = Volume::named(name);
            found.with_context(|| format!("no volume '{name}'; see `hammer volumes`"))
        };
        self.volume.iter().map(named).collect()
    }

    pub(crate) fn folder(&self) -> PathBuf {
        // In memory nobody's disk is in the way. Images are sparse.
        const ENOUGH: u64 = 4 << 30;
        let memory = || {
            let folder = PathBuf::from("/dev/shm");
            let fs = rustix::fs::statvfs(&folder).ok()?;
            (fs.f_bavail * fs.f_frsize >= ENOUGH).then_some(folder)
        };
        let given = self.folder.clone();
        given.or_else(memory).unwrap_or_else(env::temp_dir)
    }

    pub(crate) fn tools(&self) -> Option<PathBuf> {
        let default = || Some(PathBuf::from("target/xfsprogs")).filter(|dir| dir.is_dir());
        let tools = self.tools.clone().or_else(default)?;
        // Programs of a relative folder would be looked for in PATH.
        tools.canonicalize().ok()
    }

    pub(crate) fn options(&self) -> Result<Options> {
        let mover = match self.mover {
            MoverName::None => Mover::None,
            MoverName::E4defrag => Mover::E4defrag,
            MoverName::Indef => {
                let beside = || Some(env::current_exe().ok()?.with_file_name("indef"));
                let given = self.indef.clone();
                let named = || env::var_os("INDEF").map(PathBuf::from);
                let indef = given.or_else(named).or_else(beside).unwrap_or_default();
                ensure!(
                    indef.is_file(),
                    "{}: no such program; build it (cargo build -p indef) or give --indef",
                    indef.display()
                );
                Mover::Indef(indef)
            }
        };
        Ok(Options {
            mover,
            states: self.states,
            mood: self.mood,
            window_ms: self.window,
        })
    }
}
