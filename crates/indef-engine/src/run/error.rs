//! Errors with one file of a run.

use std::path::PathBuf;

use indef_fs::FsError;

/// An error with one file; the others go on. Its contents are whole all the same.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// An operation on it failed.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// It has more fragments than before, and nobody else has changed it.
    #[error(
        "{}: more fragments than before ({after} instead of {before}); the contents are whole, please report this",
        .path.display()
    )]
    MoreFragments {
        /// The file.
        path: PathBuf,
        /// Fragments before.
        before: u64,
        /// Fragments afterwards.
        after: u64,
    },
    /// Step after step of its engine did nothing, without an end.
    #[error("{}: the engine {engine} makes no progress", .path.display())]
    NoProgress {
        /// The file.
        path: PathBuf,
        /// The engine's name.
        engine: &'static str,
    },
    /// The worker that moved it panicked.
    #[error("a worker panicked ({message}); the contents are whole, please report this")]
    Panicked {
        /// The panic's message.
        message: String,
    },
}
