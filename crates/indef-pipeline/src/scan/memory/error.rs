//! The reasons for which there is no memory.

use std::{io, path::PathBuf};

/// A memory cannot be read, or not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// There is no directory.
    #[error("no directory for indef's state: {0}")]
    NoDirectory(#[source] io::Error),
    /// The kernel refuses.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// It is no regular file of this user that nobody else may write.
    #[error("{path}: not a file that only this user may write", path = .0.display())]
    Foreign(PathBuf),
    /// It is not as it was written.
    #[error("{path}: damaged", path = .0.display())]
    Damaged(PathBuf),
    /// Another version of indef wrote it.
    #[error("{path}: of another version of indef", path = .0.display())]
    OtherVersion(PathBuf),
}
