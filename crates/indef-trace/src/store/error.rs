//! Errors of a store, with advice.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use rusqlite::ErrorCode;
use rustix::io::Errno;

/// A store cannot be used: its path, the problem, and advice.
#[derive(Debug)]
pub struct StoreError {
    /// The path of the store.
    pub path: PathBuf,
    /// The problem.
    pub problem: StoreProblem,
}

/// The problem with a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreProblem {
    /// Something else than a store, which is left as it is.
    #[error("this is not an indef store ({0}); nothing was changed. Name another file")]
    Foreign(Foreign),
    /// Made by a later version. Earlier ones are read, and changed when something is added.
    #[error(
        "a store of format {found}, but this indef uses format {}; export it with the indef that made it \
         (indef profile export) and import that, or name another file",
        super::format::VERSION
    )]
    Version {
        /// The version.
        found: i64,
    },
    /// The contents are not those of a store.
    #[error(
        "the store is damaged ({0}); nothing was changed. Take it from a backup, or trace into a new file"
    )]
    Damaged(Cause),
    /// Another program kept it in use while this one waited.
    #[error(
        "another program keeps the store locked; nothing was changed. Try again when it is done"
    )]
    Locked,
    /// There is no room for the addition.
    #[error(
        "no space left on the device; the store holds what it held before. Make room and try again"
    )]
    Full,
    /// The folder that would hold it does not exist.
    #[error("the folder {} does not exist; create it, or name another file", .0.display())]
    NoFolder(PathBuf),
    /// It may not be written or read.
    #[error(
        "no permission ({0}); run as a user that may, or name a file of yours (a store whose writer was killed \
         has to be opened by one that may write it)"
    )]
    Permission(Cause),
    /// A system call failed.
    #[error("{0}; nothing was changed")]
    System(Cause),
}

/// Who says so.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// A system call failed.
    #[error(transparent)]
    Io(io::Error),
    /// SQLite refused.
    #[error("{}", said(.0))]
    Sqlite(rusqlite::Error),
    /// It was found by looking.
    #[error(transparent)]
    Found(#[from] Damage),
}

/// The kind of a file that is no store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Foreign {
    /// A folder, a device, a FIFO, a socket.
    #[error("no regular file")]
    NoFile,
    /// Less than a header.
    #[error("too short")]
    TooShort,
    /// Something without SQLite's header.
    #[error("no SQLite database")]
    NoDatabase,
    /// A database without the mark of a store.
    #[error("another program's database")]
    OtherProgram,
}

/// Damage of a store that is not left to SQLite to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The file is shorter than it says.
    #[error("it was cut off")]
    CutOff,
    /// SQLite's integrity check failed.
    #[error("its pages do not fit together")]
    Pages,
    /// A row does not have its checksum.
    #[error("a count was changed")]
    Count,
    /// The same of a row of this other table.
    #[error("a row of its {0} was changed")]
    Row(&'static str),
    /// Other tables, or too few.
    #[error("its tables are not those of a store")]
    Tables,
}

/// SQLite's message, or that of its code where there is none.
fn said(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqliteFailure(plain, None) => plain.to_string(),
        other => other.to_string(),
    }
}

/// The result of working with a store.
pub(super) type Result<T> = std::result::Result<T, StoreError>;

impl StoreError {
    /// Whether the caller should keep the tallies and add them again: the store is whole, and the
    /// obstacle may pass.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match &self.problem {
            StoreProblem::Locked | StoreProblem::Full => true,
            // A path that is none stays so.
            StoreProblem::System(Cause::Io(error)) => !matches!(
                Errno::from_io_error(error),
                Some(Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG)
            ),
            StoreProblem::System(_) => true,
            _ => false,
        }
    }

    pub(super) fn io(path: &Path, error: io::Error) -> Self {
        let problem = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreProblem::Full,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                StoreProblem::Permission(Cause::Io(error))
            }
            _ => StoreProblem::System(Cause::Io(error)),
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

/// The meaning of SQLite's error for a store at `path`.
pub(super) fn meaning(path: &Path, error: rusqlite::Error) -> StoreError {
    let code = error.sqlite_error_code();
    let cause = Cause::Sqlite(error);
    let problem = match code {
        Some(ErrorCode::DiskFull) => StoreProblem::Full,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreProblem::Locked,
        Some(ErrorCode::NotADatabase) => StoreProblem::Foreign(Foreign::NoDatabase),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => StoreProblem::Permission(cause),
        // SQLite does not say why a journal cannot be made.
        Some(ErrorCode::CannotOpen | ErrorCode::SystemIoFailure) if no_room(path) => {
            StoreProblem::Full
        }
        Some(ErrorCode::CannotOpen) => StoreProblem::Permission(cause),
        Some(ErrorCode::SystemIoFailure | ErrorCode::OutOfMemory) => StoreProblem::System(cause),
        // Values of another type, missing tables, violated constraints: no store has them.
        _ => StoreProblem::Damaged(cause),
    };
    StoreError {
        path: path.to_owned(),
        problem,
    }
}

/// Whether the file system has no space or no inode left.
fn no_room(path: &Path) -> bool {
    let folder = path.parent().unwrap_or(Path::new("/"));
    rustix::fs::statvfs(folder)
        .is_ok_and(|space| space.f_bavail == 0 || (space.f_files > 0 && space.f_favail == 0))
}
