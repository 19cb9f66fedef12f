//! The contenders for many files.

use std::{fmt, path::Path, process::Command};

use stage::Fs;

use super::super::tool::indef_run;

/// A way to defragment all files of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super::super) enum Contender {
    /// `e4defrag`: file by file.
    E4defrag,
    /// indef with so many workers, a file each, of which each moves what is in pieces as a whole, with many reads at a
    /// time: what ScaleDefrag does.
    Whole(usize),
    /// indef as it is by itself, without a profile.
    Indef,
}

impl Contender {
    /// Those of a figure, in their turns.
    pub(in super::super::super) fn all(workers: usize) -> [Self; 4] {
        [
            Self::E4defrag,
            Self::Whole(1),
            Self::Whole(workers),
            Self::Indef,
        ]
    }

    /// The command for `folder`; indef's own files lie in `state`.
    pub(super) fn command(self, indef: &Path, folder: &Path, state: &Path) -> Command {
        let mut command = match self {
            Self::E4defrag => {
                let words = Fs::Ext4.peer();
                let mut command = Command::new(words[0]);
                command.args(&words[1..]);
                command
            }
            Self::Whole(workers) => {
                let mut command = indef_run(indef, state);
                command.args(["--policy", "whole", "--jobs", &workers.to_string()]);
                command
            }
            Self::Indef => indef_run(indef, state),
        };
        command.arg(folder);
        command
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::E4defrag => f.write_str("e4defrag"),
            Self::Whole(workers) => write!(f, "whole files, {workers} at a time"),
            Self::Indef => f.write_str("indef"),
        }
    }
}
