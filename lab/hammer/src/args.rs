//! The command line.

use std::{
    env,
    path::PathBuf,
    str::FromStr,
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand, ValueEnum};
use guest::{Patched, Release};
use hammer::{Attach, Beginning, MediumKind, Mood, Mover, Options, VOLUMES, Volume};

/// Hammer a defragmenter: change files in every way while it moves them, cut the power, and check
/// that nothing is lost
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Examples:\n  \
    hammer run --minutes 10                            every volume, seeds of its own\n  \
    hammer run --volume xfs-commit --seed 7            one round that can be repeated\n  \
    hammer run --kernel 6.12 --volume f2fs             the same in a guest with that kernel\n  \
    hammer run --kernel 6.12 --volume f2fs-offload     the device copies (or xfs-offload)\n  \
    hammer run --volume ext4 --mover none --rounds 3   nobody moves: nothing may be found\n  \
    hammer run --volume ext4 --mood direct --window 0  count what fdatasync loses as any other\n  \
    hammer run --volume btrfs --medium cache           on a device with a volatile cache"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run rounds and print a table; exit status 1 if there was a violation
    ///
    /// A round makes a volume with fragmented files on it, lets actors change them while the mover
    /// runs, is stopped and killed, cuts the power at many instants, and examines the states that each
    /// cut may leave: one on a device without a volatile cache, up to five on a device with one (only
    /// the durable data, everything, and three between). "window" counts losses in the window of ext4
    /// that docs/hammer.md describes. A round in which nothing was moved is "void", and so is one in which
    /// the device moved nothing on a volume for device copies. It needs root, or a guest (--kernel).
    ///
    /// SIGINT and SIGTERM end the round early: the hammer unmounts everything and prints its findings;
    /// the exit status is then 130 or 143.
    Run(RunArgs),
    /// List the volumes
    Volumes,
    /// Serve the device of a round
    #[command(hide = true)]
    Medium {
        /// Folder of its files
        folder: PathBuf,
        /// How it is attached
        attach: Attach,
        #[command(flatten)]
        beginning: Beginning,
    },
}

/// Set in the environment of a hammer that `--kernel` has started in a guest.
pub(crate) const IN_GUEST: &str = "HAMMER_IN_GUEST";

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
    /// The seed of the first round; each further round has the next one.
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
    /// Volume to hammer; may be repeated [default: all that the kernel supports, see `hammer volumes`;
    /// f2fs-offload needs a patched kernel, which --kernel boots if the volume is named]
    #[arg(long, value_name = "NAME")]
    volume: Vec<String>,

    /// Seed of the first round (each further round has the next one), or random
    #[arg(long, value_name = "S|random", default_value = "random")]
    pub(crate) seed: Seed,

    /// Rounds on each volume
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) rounds: u64,

    /// End once the rounds on each volume have shown something: one was not void, and values were in doubt
    #[arg(long)]
    pub(crate) until_shown: bool,

    /// Begin rounds for this many minutes, whatever their number
    #[arg(long, value_name = "M", conflicts_with = "rounds")]
    pub(crate) minutes: Option<u64>,

    /// Medium of the volumes [default: the seed chooses image or cache]
    #[arg(long, value_name = "KIND")]
    medium: Option<MediumKind>,

    /// Cuts in a round
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) states: u32,

    /// Run in a guest with this Debian kernel: 6.1, 6.12 or newest (docs/lab.md); needs no root
    #[arg(long, value_name = "RELEASE", conflicts_with = "folder")]
    pub(crate) kernel: Option<Release>,

    /// The mover
    #[arg(long, value_name = "WHO", default_value = "indef")]
    mover: MoverName,

    /// The indef to run [default: $INDEF, or the one beside this program]
    #[arg(long, value_name = "PROGRAM")]
    indef: Option<PathBuf>,

    /// On ext4: longest time of a step and its commit, during which losses of data that fdatasync
    /// acknowledged are counted apart; 0 to count them as any other
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    window: u64,

    /// Wait N times longer between events, and before a run of the mover is ended [default: 1, in a
    /// guest 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    slow: Option<u32>,

    /// Operations that actors prefer [default: the seed chooses]
    #[arg(long)]
    mood: Option<Mood>,

    /// Folder for media and recordings, 4 GiB at most [default: /dev/shm if it has room, else the
    /// temporary folder]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,

    /// Newer mkfs.xfs and xfs_repair for volumes with XFS's exchange feature, like xfs-commit [default:
    /// target/xfsprogs, if there]
    #[arg(long, value_name = "DIR")]
    tools: Option<PathBuf>,

    /// After a violation: leave out steps while it still occurs, in at most N rounds
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) shrink: u32,

    /// Keep the operation logs of rounds with violations in this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) log: Option<PathBuf>,

    /// Print one JSON document with all rounds
    #[arg(long)]
    pub(crate) json: bool,
}

const TOO_OLD: &str = "mkfs.xfs does not know the exchange feature; fetch one with scripts/xfsprogs, and name its folder with --tools";

impl RunArgs {
    pub(crate) fn volumes(&self) -> Result<Vec<&'static Volume>> {
        if self.volume.is_empty() {
            let (known, unknown): (Vec<&Volume>, Vec<&Volume>) =
                { VOLUMES.iter() }.partition(|volume| volume.is_known_to_kernel());
            for volume in unknown {
                eprintln!("{}: left out, this kernel does not have it", volume.name);
            }
            let (made, not_made): (Vec<&Volume>, Vec<&Volume>) =
                { known.into_iter() }.partition(|volume| self.can_make(volume));
            for volume in not_made {
                eprintln!("{}: left out, {TOO_OLD}", volume.name);
            }
            return Ok(made);
        }
        let named = |name: &String| {
            let found = Volume::named(name);
            let volume =
                found.with_context(|| format!("no volume '{name}'; see `hammer volumes`"))?;
            ensure!(
                volume.is_known_to_kernel(),
                "{name}: this kernel does not have the file system, the disk or our patches; --kernel runs it in a guest"
            );
            ensure!(self.can_make(volume), "{name}: {TOO_OLD}");
            Ok(volume)
        };
        self.volume.iter().map(named).collect()
    }

    /// Whether the tools can make the volume.
    fn can_make(&self, volume: &Volume) -> bool {
        let mkfs = || self.tools().unwrap_or_default().join("mkfs.xfs");
        !volume.needs_new_tools() || scratch_fs::knows_exchange(&mkfs())
    }

    pub(crate) fn folder(&self) -> PathBuf {
        // In memory no disk slows the round down. Images are sparse.
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
        // A program name without a slash would be searched for in PATH.
        tools.canonicalize().ok()
    }

    /// The program that moves, if it is one of ours.
    pub(crate) fn program(&self) -> Result<Option<PathBuf>> {
        match self.mover {
            MoverName::Indef => {
                let path = std::path::absolute(self.indef()?)?;
                Ok(Some(path))
            }
            MoverName::None | MoverName::E4defrag => Ok(None),
        }
    }

    /// Whether this is the hammer in the guest that `--kernel` has asked for.
    pub(crate) fn is_in_guest(&self) -> bool {
        env::var_os(IN_GUEST).is_some()
    }

    /// The project's patches that volumes need which were named.
    pub(crate) fn patches(&self) -> Vec<Patched> {
        let named = self.volume.iter().filter_map(|name| Volume::named(name));
        let needed: Vec<Patched> = named.filter_map(Volume::patched).collect();
        let mut all = Patched::ALL.to_vec();
        all.retain(|patched| needed.contains(patched));
        all
    }

    /// An upper bound for the time of all rounds, if none takes longer than `round`.
    pub(crate) fn longest(&self, round: Duration) -> Duration {
        let volumes = if self.volume.is_empty() {
            VOLUMES.len()
        } else {
            self.volume.len()
        };
        let rounds = volumes as u64 * self.rounds.max(1) * (1 + u64::from(self.shrink));
        let minutes = Duration::from_secs(60 * self.minutes.unwrap_or(0));
        minutes + round * u32::try_from(rounds).unwrap_or(u32::MAX)
    }

    fn indef(&self) -> Result<PathBuf> {
        let beside = || Some(env::current_exe().ok()?.with_file_name("indef"));
        let given = self.indef.clone();
        let named = || env::var_os("INDEF").map(PathBuf::from);
        let indef = given.or_else(named).or_else(beside).unwrap_or_default();
        ensure!(
            indef.is_file(),
            "{}: no such program; build it (cargo build -p indef) or give --indef",
            indef.display()
        );
        Ok(indef)
    }

    /// The options of a round; `signal` will hold the number of a signal that arrives.
    pub(crate) fn options(&self, signal: &Arc<AtomicUsize>) -> Result<Options> {
        let mover = match self.mover {
            MoverName::None => Mover::None,
            MoverName::E4defrag => Mover::E4defrag,
            MoverName::Indef => Mover::Indef(self.indef()?),
        };
        Ok(Options {
            mover,
            medium: self.medium,
            states: self.states,
            mood: self.mood,
            slow: self.slow.unwrap_or(if self.is_in_guest() { 8 } else { 1 }),
            window_ms: self.window,
            signal: Arc::clone(signal),
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        run: RunArgs,
    }

    #[test]
    fn volumes_that_the_tools_cannot_make_are_known() {
        let tools = tempfile::tempdir().unwrap();
        // It prints no usage.
        std::os::unix::fs::symlink("/bin/true", tools.path().join("mkfs.xfs")).unwrap();
        let folder = tools.path().to_str().unwrap();
        let line = Line::try_parse_from(["run", "--tools", folder]).unwrap();
        let can_make = |name| line.run.can_make(Volume::named(name).unwrap());
        assert!(!can_make("xfs-commit"));
        assert!(can_make("xfs-dedupe") && can_make("ext4"));
    }
}
