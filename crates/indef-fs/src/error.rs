//! Errors that name the operation that failed, the file and the place; and refusals, which are
//! results.

use std::{io, path::PathBuf};

use indef_core::SkipReason;
use units::FileOffset;

/// An operation on a file failed.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {operation} failed{place}: {source}", path = path.display(), place = place(*offset))]
pub struct FsError {
    /// The file.
    pub path: PathBuf,
    /// The operation, as a person would name it: `map extents`, `move extents`.
    pub operation: &'static str,
    /// Where in the file, if it matters.
    pub offset: Option<FileOffset>,
    /// The kernel's error.
    #[source]
    pub source: io::Error,
}

impl FsError {
    /// An error that does not belong to a place in the file.
    pub fn new(
        path: impl Into<PathBuf>,
        operation: &'static str,
        source: impl Into<io::Error>,
    ) -> Self {
        Self {
            path: path.into(),
            operation,
            offset: None,
            source: source.into(),
        }
    }
}

fn place(offset: Option<FileOffset>) -> String {
    offset.map_or_else(String::new, |offset| format!(" at byte {offset}"))
}

/// A file or a range stays where it is: a reason to skip it, or an error.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// Not moved, and that is all right.
    #[error("{0}")]
    Skip(SkipReason),
    /// Not moved because something failed.
    #[error(transparent)]
    Failed(#[from] FsError),
}

impl From<SkipReason> for Refusal {
    fn from(reason: SkipReason) -> Self {
        Self::Skip(reason)
    }
}
