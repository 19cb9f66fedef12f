//! Why the history cannot be read or written.

use std::{io, path::PathBuf};

/// The history cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {source}", path = path.display())]
pub struct HistoryError {
    /// Its file.
    pub path: PathBuf,
    /// The reason.
    #[source]
    pub source: io::Error,
}
