//! What can be wrong with a plan file, in one line each.

use std::{fmt, io};

use super::{MAX_LINE, VERSION};

/// A plan file cannot be used: which line, what is wrong, what to do.
#[derive(Debug)]
pub struct PlanError {
    /// Counted from 1.
    pub line: u64,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong with a line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
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
    /// Not what the line should be.
    #[error("{0}; the plan is damaged, make a new one with 'indef plan'")]
    Damaged(String),
    /// Values that cannot be.
    #[error("{0}; correct the line, or make a new plan with 'indef plan'")]
    Absurd(String),
    /// No totals line.
    #[error("the plan ends too early, it was cut off; make a new plan with 'indef plan'")]
    Truncated,
    /// The totals do not fit the lines before them.
    #[error(
        "the totals do not match the files before them, which are incomplete or were changed to move more; make a new plan with 'indef plan'"
    )]
    Totals,
    /// Something behind the totals.
    #[error(
        "there is something behind the totals, where a plan ends; make a new plan with 'indef plan'"
    )]
    Trailing,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "plan line {}: {}", self.line, self.problem)
    }
}

impl std::error::Error for PlanError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.problem {
            Problem::Read(error) => Some(error),
            _ => None,
        }
    }
}
