//! Errors with one file of a run.

use std::path::PathBuf;

use indef_fs::{Finding, FsError, NoCheckpoint};

/// An error with one file; the others go on. Its contents are whole all the same, and on the device but for
/// [`Self::Unwritten`] and a source that is [`NotTakenBack`](indef_fs::NotTakenBack)
/// ([`FileResult::is_unwritten`](super::FileResult::is_unwritten)).
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// An operation on it failed.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// It had moved, and then writing that back failed.
    #[error(
        "{0}: what was moved may not be durable; copy the file elsewhere before the machine is switched off, and check \
         the device"
    )]
    Unwritten(#[source] FsError),
    /// It had moved, and then F2FS wrote no checkpoint: its contents are on the device at its old place, at least.
    #[error(transparent)]
    NotDurable(FsError),
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

impl FileError {
    /// Whether the device has no space for data that the file system has space for.
    pub(super) fn is_device_full(&self) -> bool {
        match self {
            Self::Fs(error) | Self::Unwritten(error) | Self::NotDurable(error) => {
                error.finding() == Some(Finding::DeviceFull)
            }
            Self::MoreFragments { .. } | Self::NoProgress { .. } | Self::Panicked { .. } => false,
        }
    }

    /// Of a file that has moved, when that could not be made durable.
    pub(super) fn of_moved(error: FsError) -> Self {
        let source = error.source.get_ref();
        match error.finding() {
            Some(Finding::CheckpointsOff | Finding::ReadOnlyNow) => Self::NotDurable(error),
            _ if source.is_some_and(|source| source.is::<NoCheckpoint>()) => {
                Self::NotDurable(error)
            }
            _ => Self::Unwritten(error),
        }
    }
}
