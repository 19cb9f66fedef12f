//! The contenders of FragPicker's file, on F2FS.

use std::fmt;

use super::super::workload::Pattern;
use crate::way::Way;

/// A way to defragment the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contender {
    /// `f2fs_io defrag_file` of all of it.
    Conventional,
    /// FragPicker's policy, through the host, after it was told these reads.
    FragPicker(Pattern),
    /// indef's policy, with the data inside of the device, after it was told these reads.
    Indef(Pattern),
}

impl Contender {
    /// All of them, in their turns.
    pub(super) const ALL: [Self; 5] = [
        Self::Conventional,
        Self::FragPicker(Pattern::Sequential),
        Self::Indef(Pattern::Sequential),
        Self::FragPicker(Pattern::Stride),
        Self::Indef(Pattern::Stride),
    ];

    /// The reads that it is told.
    pub(super) const fn told(self) -> Option<Pattern> {
        match self {
            Self::Conventional => None,
            Self::FragPicker(pattern) | Self::Indef(pattern) => Some(pattern),
        }
    }

    /// The reads for which its file is the one to measure.
    pub(super) fn patterns(self) -> &'static [Pattern] {
        match self.told() {
            None => &Pattern::ALL,
            Some(Pattern::Sequential) => &[Pattern::Sequential],
            Some(Pattern::Stride) => &[Pattern::Stride],
        }
    }

    /// The name of its rows.
    pub(super) const fn series(self) -> &'static str {
        match self {
            Self::Conventional => "conventional",
            Self::FragPicker(_) => "FragPicker",
            Self::Indef(_) => "indef",
        }
    }

    /// The name of its folder.
    pub(super) fn folder(self) -> String {
        match self.told() {
            None => self.series().to_owned(),
            Some(pattern) => format!("{}-{}", self.series(), pattern.name()),
        }
    }

    /// The way of its data.
    pub(super) const fn way(self, truncate: u32) -> Way {
        match self {
            Self::Conventional => Way::Conventional,
            Self::FragPicker(_) => Way::FragPicker,
            Self::Indef(_) => Way::Indef { truncate },
        }
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.series())?;
        match self.told() {
            Some(pattern) => write!(f, " ({})", pattern.name()),
            None => Ok(()),
        }
    }
}
