//! The errors of a plan file, in one line each.

use std::{fmt, io};

use super::{
    super::{MOST_NAMED, OptionError},
    MAX_LINE, VERSION,
};
use crate::{layout::ParseGeometryError, path::PathError};

/// The error of an unusable plan file: the line, the problem and the remedy.
#[derive(Debug)]
pub struct PlanError {
    /// Counted from 1.
    pub line: u64,
    /// The problem of the line.
    pub problem: PlanProblem,
}

/// The problem of a line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanProblem {
    /// Reading failed.
    #[error("cannot be read: {0}")]
    Read(#[source] io::Error),
    /// The first line is no header.
    #[error("this is not an indef plan; give a file that 'indef plan -o' wrote")]
    Foreign,
    /// Written by another version.
    #[error(
        "plan format {0}, but this indef reads format {VERSION}; make a new plan with 'indef plan'"
    )]
    Version(u64),
    /// Too long to be one of ours.
    #[error(
        "longer than {MAX_LINE} bytes, so the plan is damaged; make a new plan with 'indef plan'"
    )]
    TooLong,
    /// Not JSON, or not with the members of such a line.
    #[error("{}; the plan is damaged, make a new one with 'indef plan'", json_error(.0))]
    Json(#[source] serde_json::Error),
    /// A line that continues a file, without chunks.
    #[error("a line of no chunks; the plan is damaged, make a new one with 'indef plan'")]
    NoChunks,
    /// Impossible values.
    #[error("{0}; correct the line, or make a new plan with 'indef plan'")]
    Absurd(#[from] Absurd),
    /// No totals line.
    #[error("the plan ends too early, it was cut off; make a new plan with 'indef plan'")]
    Truncated,
    /// The totals do not fit the lines before them.
    #[error(
        "the totals do not match the files before them, which are incomplete or were changed to move more; make a new plan with 'indef plan'"
    )]
    Totals,
    /// Data after the totals.
    #[error(
        "there is something after the totals, where a plan ends; make a new plan with 'indef plan'"
    )]
    Trailing,
}

/// An impossible value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Absurd {
    /// Not a geometry.
    #[error("{}", one_line(&.0.to_string()))]
    Geometry(#[from] ParseGeometryError),
    /// An option out of its range.
    #[error("{}", one_line(&.0.to_string()))]
    OutOfRange(#[from] OptionError),
    /// Not a path.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A name that is too long, or not printable.
    #[error("a name of the {of} that is none")]
    Name {
        /// The thing to name.
        of: &'static str,
    },
    /// The root would end where no directory of the path ends.
    #[error("a root of {0} bytes, where the path has no directory that ends")]
    Root(usize),
    /// Not a block size.
    #[error("a block size of {0} bytes, but it must be a power of two from 512")]
    BlockSize(u64),
    /// Not a file's size.
    #[error("a size of {0} bytes, which no file has")]
    Size(u64),
    /// More files that may share blocks with it than any engine moves together.
    #[error("{0} named inodes, but there are at most {MOST_NAMED}")]
    Named(usize),
    /// A chunk that does not fit its file, or contradicts itself.
    #[error("the chunk at byte {start} {fault}")]
    Chunk {
        /// Where it begins.
        start: u64,
        /// The mistake.
        fault: ChunkFault,
    },
    /// A negative or infinite number of a chunk.
    #[error("{name} of the chunk at byte {start} is {value}")]
    Number {
        /// The name of the number.
        name: &'static str,
        /// Where the chunk begins.
        start: u64,
        /// The value.
        value: f64,
    },
}

/// A fault of a chunk, as the words after its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChunkFault {
    /// Its end is no offset.
    #[error("is longer than any file")]
    TooLong,
    /// Its end is none of its file.
    #[error("ends past the end of its file")]
    PastEnd,
    /// No bytes.
    #[error("is empty")]
    Empty,
    /// A part of a block.
    #[error("does not lie on block boundaries")]
    Unaligned,
    /// A price without a reason.
    #[error("costs more bytes than it has")]
    Cost,
    /// Chunks are ordered and disjoint.
    #[error("overlaps the one before it, or is out of order")]
    Order,
    /// A reason to skip what is not skipped.
    #[error("migrates but has a reason")]
    NeedlessReason,
    /// No reason to skip what is skipped.
    #[error("is skipped without a reason")]
    NoReason,
}

/// The message of `serde_json` with the column alone: it counts lines within the text that it was
/// given, so that its line is always 1.
fn json_error(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let what = text
        .rsplit_once(" at line ")
        .map_or(&*text, |(what, _)| what);
    one_line(&format!("{what} at column {}", error.column()))
}

/// Text from the file on one line of a terminal: no control characters, not too long.
fn one_line(text: &str) -> String {
    let mut shown: String = text
        .chars()
        .take(200)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    if text.chars().nth(200).is_some() {
        shown.push('…');
    }
    shown
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "plan line {}: {}", self.line, self.problem)
    }
}

impl std::error::Error for PlanError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.problem {
            PlanProblem::Read(error) => Some(error),
            _ => None,
        }
    }
}
