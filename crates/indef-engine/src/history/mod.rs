//! What runs did: a record for each, in a bounded file of the state directory.
//!
//! A run leaves a line when it begins and one when it ends. One that was killed, or whose machine lost power, left
//! only the first: so its record says that it was killed, and nothing else, as nobody knows more. A run's second line
//! repeats what is in the first, so that either may be lost.
//!
//! Nothing here is needed by a run: whoever cannot keep a record goes on without.

mod error;
mod file;
mod record;

#[cfg(test)]
mod tests;

use std::path::Path;

pub use error::HistoryError;
pub use record::{Begun, End, History, Outcome, Record, State, WorkedOn};

/// Note that a run has begun.
///
/// # Errors
///
/// It could not be noted; nothing is harmed.
pub fn begin(directory: &Path, run: &Begun) -> Result<(), HistoryError> {
    file::append(directory, &file::Line::Begun(run.clone()))
}

/// Note the result of a run, durably.
///
/// # Errors
///
/// It could not be noted; nothing is harmed.
pub fn end(directory: &Path, run: &Begun, outcome: Outcome) -> Result<(), HistoryError> {
    let line = file::Line::Ended(run.clone(), Box::new(outcome));
    file::append(directory, &line)
}

/// The history in a directory; an empty one where there is none.
///
/// # Errors
///
/// The file cannot be read, or is none of ours.
pub fn read(directory: &Path) -> Result<History, HistoryError> {
    file::read(directory)
}
