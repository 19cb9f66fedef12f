//! The defragmenters, as a person calls them.

use std::{path::Path, process::Command};

use stage::Fs;
use units::Bytes;

/// A defragmenter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Tool {
    /// The one of the file system.
    Conventional,
    /// The same, but for extents of the length of a read (Btrfs).
    Threshold,
    /// indef as FragPicker's bypass: ranges from the file's beginning to its end.
    Bypass,
    /// indef with FragPicker's policy, and a profile.
    FragPicker,
    /// indef as it is by itself, with a profile.
    Indef,
}

/// What a person tells them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told<'a> {
    /// The length of a read.
    pub(super) io_size: Bytes,
    /// Reads, for those that choose by them.
    pub(super) profile: &'a Path,
    /// Percent of the ranges that were read: FragPicker moves so many, the hottest.
    pub(super) hot: f64,
}

impl Tool {
    /// Whether it chooses by reads.
    pub(super) const fn needs_reads(self) -> bool {
        matches!(self, Self::FragPicker | Self::Indef)
    }

    /// The name of its rows.
    pub(in super::super) const fn series(self) -> &'static str {
        match self {
            Self::Conventional => "conventional",
            Self::Threshold => "Conv.-T",
            Self::Bypass => "bypass",
            Self::FragPicker => "FragPicker",
            Self::Indef => "indef",
        }
    }

    /// The command, to which paths are added; `indef` is [`indef_run`].
    pub(super) fn command(self, kind: Fs, mut indef: Command, told: Told<'_>) -> Command {
        let io_size = told.io_size.0.to_string();
        match self {
            Self::Conventional | Self::Threshold => {
                let words = kind.peer();
                let mut command = Command::new(words[0]);
                command.args(&words[1..]);
                if self == Self::Threshold {
                    command.args(["-t", &io_size]);
                }
                return command;
            }
            Self::Bypass => {
                indef.args(["--policy", "sequential", "--io-size", &io_size]);
            }
            Self::FragPicker => {
                indef.arg("--profile").arg(told.profile);
                indef.args(["--policy", "fragpicker", "--hot", &told.hot.to_string()]);
                // Whatever times the profile has: FragPicker asks for none.
                indef.args(["--io-size", &io_size, "--ignore-times"]);
            }
            Self::Indef => {
                indef.arg("--profile").arg(told.profile);
            }
        }
        indef
    }
}

/// `indef trace` of a command that reads files of `folder`: its reads become the profile.
pub(super) fn traced(indef: &Path, folder: &Path, reads: &Command, profile: &Path) -> Command {
    let mut command = Command::new(indef);
    command.args(["trace", "--quiet", "--max-overhead", "off", "-o"]);
    command.arg(profile).arg("--path").arg(folder).arg("--");
    command.arg(reads.get_program()).args(reads.get_args());
    command
}

/// `indef run`, to which options and paths are added. Its own files lie in `state`: what others left half done here is not
/// of this figure, nor is this of their history.
pub(super) fn indef_run(indef: &Path, state: &Path) -> Command {
    let mut command = Command::new(indef);
    command.args(["run", "--quiet"]);
    command.env("STATE_DIRECTORY", state);
    command
}
