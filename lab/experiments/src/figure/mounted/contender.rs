//! The contenders of FragPicker's file: its defragmenters, and what those were told.

use std::{fmt, fs, io, path::Path, process::Command};

use stage::Fs;

use super::{
    super::{
        told,
        workload::{Pattern, Workload},
    },
    tool::{Told, Tool, indef_run},
};

/// A way to defragment the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contender {
    /// None: the file as it is.
    Before,
    /// [`Tool::Conventional`].
    Conventional,
    /// [`Tool::Threshold`].
    Threshold,
    /// [`Tool::Bypass`].
    Bypass,
    /// [`Tool::FragPicker`], after it was told these reads.
    FragPicker(Pattern),
    /// [`Tool::Indef`], after it was told these reads.
    Indef(Pattern),
}

impl Contender {
    /// Those for a file system, in their turns.
    pub(super) fn all(kind: Fs) -> Vec<Self> {
        let mut all = vec![Self::Before, Self::Conventional];
        if kind == Fs::Btrfs {
            all.push(Self::Threshold);
        }
        all.push(Self::Bypass);
        for pattern in Pattern::ALL {
            all.extend([Self::FragPicker(pattern), Self::Indef(pattern)]);
        }
        all
    }

    /// The calls for which its file is the one to measure.
    pub(super) fn patterns(self) -> &'static [Pattern] {
        match self {
            Self::FragPicker(Pattern::Sequential) | Self::Indef(Pattern::Sequential) => {
                &[Pattern::Sequential]
            }
            Self::FragPicker(Pattern::Stride) | Self::Indef(Pattern::Stride) => &[Pattern::Stride],
            Self::Before | Self::Conventional | Self::Threshold | Self::Bypass => &Pattern::ALL,
        }
    }

    /// The name of its rows.
    pub(super) fn series(self) -> &'static str {
        self.tool().map_or("before", Tool::series)
    }

    /// Its defragmenter.
    fn tool(self) -> Option<Tool> {
        match self {
            Self::Before => None,
            Self::Conventional => Some(Tool::Conventional),
            Self::Threshold => Some(Tool::Threshold),
            Self::Bypass => Some(Tool::Bypass),
            Self::FragPicker(_) => Some(Tool::FragPicker),
            Self::Indef(_) => Some(Tool::Indef),
        }
    }

    /// The command for the file at `path`; what indef is told lies in `folder`. `None`: there is nothing to do.
    pub(super) fn command(
        self,
        kind: Fs,
        indef: &Path,
        workload: &Workload,
        path: &Path,
        folder: &Path,
    ) -> io::Result<Option<Command>> {
        let Some(tool) = self.tool() else {
            return Ok(None);
        };
        let profile = folder.join("profile");
        if let Self::FragPicker(pattern) | Self::Indef(pattern) = self {
            fs::write(&profile, told::lines(path, workload.ranges(pattern))?)?;
        }
        let indef = indef_run(indef, folder);
        let told = Told {
            io_size: workload.io_size,
            profile: &profile,
            hot: 100.0,
        };
        let mut command = tool.command(kind, indef, told);
        command.arg(path);
        Ok(Some(command))
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.series())?;
        match self {
            Self::FragPicker(pattern) | Self::Indef(pattern) => write!(f, " ({})", pattern.name()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_btrfs_has_a_threshold_and_each_contender_is_there_once() {
        for kind in Fs::ALL {
            let all = Contender::all(kind);
            assert_eq!(all.contains(&Contender::Threshold), kind == Fs::Btrfs);
            for (at, contender) in all.iter().enumerate() {
                assert!(!all[..at].contains(contender), "{contender}");
            }
        }
    }
}
