//! Mistakes in a profile, in one line each.

use std::{fmt, io};

use super::{MAGIC, MAX_LINE, VERSION};
use crate::path::PathError;

/// The error of an unusable profile: the line, the mistake and the remedy.
#[derive(Debug)]
pub struct ProfileError {
    /// Counted from 1.
    pub line: u64,
    /// The mistake.
    pub problem: ProfileProblem,
}

/// A mistake.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileProblem {
    /// Reading failed.
    #[error("cannot be read: {0}")]
    Read(#[source] io::Error),
    /// The first line is no header.
    #[error("this is not an indef profile; its first line must be '{MAGIC} {VERSION}'")]
    Foreign,
    /// Written by another version.
    #[error("profile format {0}, but this indef reads format {VERSION}; record the profile anew")]
    Version(u64),
    /// Too long.
    #[error(
        "longer than {MAX_LINE} bytes, so the profile is damaged; remove the line or record the profile anew"
    )]
    TooLong,
    /// A line that cannot be understood.
    #[error("{0}; correct or remove the line")]
    Line(#[from] LineError),
    /// The promised `end` is missing.
    #[error(
        "the profile ends too early, it was cut off; record it anew, or remove 'with-end' from its first line to use what is there"
    )]
    Truncated,
    /// The `end` counts other records.
    #[error("the profile has {found} records, but its end says {promised}; record it anew")]
    Count {
        /// Records read.
        found: u64,
        /// The number of records in the last line.
        promised: u64,
    },
    /// More lines after the end.
    #[error("there is something past the end of the profile; remove it or record the profile anew")]
    Trailing,
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "profile line {}: {}", self.line, self.problem)
    }
}

impl std::error::Error for ProfileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.problem {
            ProfileProblem::Read(error) => Some(error),
            _ => None,
        }
    }
}

/// A mistake inside a line. Words of the line are shown short and without control
/// characters.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    /// It begins with an unknown word.
    #[error("'{word}' is not file, read, write, range or end")]
    Kind {
        /// The word.
        word: String,
    },
    /// A superfluous word.
    #[error("'{word}' is not expected here")]
    Unexpected {
        /// The word.
        word: String,
    },
    /// A value is missing.
    #[error("the {name} is missing")]
    Missing {
        /// The name of the value.
        name: &'static str,
    },
    /// A value that cannot be read.
    #[error("'{word}' is not a valid {name}")]
    Invalid {
        /// The word.
        word: String,
        /// The name of the value.
        name: &'static str,
    },
    /// Not a path.
    #[error(transparent)]
    Path(#[from] PathError),
    /// More files than can be counted.
    #[error("too many files")]
    TooManyFiles,
    /// Two files with the same number.
    #[error("file {0} is there twice")]
    Twice(u32),
    /// An access to a file that no earlier line names.
    #[error("file {0} is not named before")]
    NotNamed(u32),
    /// No bytes.
    #[error("the length is zero")]
    NoLength,
    /// More bytes than a file can have.
    #[error("the range ends past the end of any file")]
    PastEnd,
    /// A number of timed requests without their time, or the time alone.
    #[error("timed=N and time=NS belong together")]
    HalfTimed,
    /// A range without reads and writes.
    #[error("the range needs reads=N or writes=N")]
    NoAccess,
}
