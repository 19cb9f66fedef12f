//! What can be wrong with a store, and what to do about it.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use rusqlite::ErrorCode;

/// A store cannot be used: which one, what is wrong, what to do.
#[derive(Debug)]
pub struct StoreError {
    /// Where the store is.
    pub path: PathBuf,
    /// What is wrong.
    pub problem: StoreProblem,
}

/// What is wrong with a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreProblem {
    /// Something else, which is left as it is.
    #[error("this is not an indef store ({0}); nothing was changed. Name another file")]
    Foreign(&'static str),
    /// Made by another version.
    #[error(
        "a store of format {found}, but this indef uses format {}; export it with the indef that made it \
         (indef profile export) and import that, or name another file",
        super::format::VERSION
    )]
    Version {
        /// Which.
        found: i64,
    },
    /// Not what a store looks like inside.
    #[error(
        "the store is damaged ({0}); nothing was changed. Take it from a backup, or trace into a new file"
    )]
    Damaged(String),
    /// Another program has been using it all the time that was waited.
    #[error(
        "another program keeps the store locked; nothing was changed. Try again when it is done"
    )]
    Locked,
    /// No room for what was to be added.
    #[error(
        "no space left on the device; the store holds what it held before. Make room and try again"
    )]
    Full,
    /// It may not be written, or not be read.
    #[error(
        "no permission ({0}); run as a user that may, or name a file of yours (a store whose writer was killed \
         has to be opened by one that may write it)"
    )]
    Permission(String),
    /// The system could not do it.
    #[error("{0}; nothing was changed")]
    System(String),
}

/// The result of working with a store.
pub(super) type Result<T> = std::result::Result<T, StoreError>;

impl StoreError {
    /// Whether what was to be added should be kept and given again: the store is whole, and what
    /// was in the way may pass.
    #[must_use]
    pub const fn may_pass(&self) -> bool {
        matches!(
            self.problem,
            StoreProblem::Locked | StoreProblem::Full | StoreProblem::System(_)
        )
    }

    pub(super) fn io(path: &Path, error: &io::Error) -> Self {
        let problem = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreProblem::Full,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                StoreProblem::Permission(error.to_string())
            }
            _ => StoreProblem::System(error.to_string()),
        };
        Self {
            path: path.to_owned(),
            problem,
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.problem)
    }
}

impl std::error::Error for StoreError {}

/// What SQLite's error means for a store at `path`.
pub(super) fn meaning(path: &Path, error: rusqlite::Error) -> StoreError {
    let code = error.sqlite_error_code();
    let text = match &error {
        rusqlite::Error::SqliteFailure(plain, None) => plain.to_string(),
        other => other.to_string(),
    };
    let problem = match code {
        Some(ErrorCode::DiskFull) => StoreProblem::Full,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreProblem::Locked,
        Some(ErrorCode::NotADatabase) => StoreProblem::Foreign("no SQLite database"),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => StoreProblem::Permission(text),
        // A journal that cannot be made says only that much.
        Some(ErrorCode::CannotOpen | ErrorCode::SystemIoFailure) if no_room(path) => {
            StoreProblem::Full
        }
        Some(ErrorCode::CannotOpen) => StoreProblem::Permission(text),
        Some(ErrorCode::SystemIoFailure | ErrorCode::OutOfMemory) => StoreProblem::System(text),
        // Values of another type, missing tables, violated constraints: none is ours.
        _ => StoreProblem::Damaged(text),
    };
    StoreError {
        path: path.to_owned(),
        problem,
    }
}

/// Whether the file system has no space, or no room for another file.
fn no_room(path: &Path) -> bool {
    let folder = path.parent().unwrap_or(Path::new("/"));
    rustix::fs::statvfs(folder)
        .is_ok_and(|space| space.f_bavail == 0 || (space.f_files > 0 && space.f_favail == 0))
}
