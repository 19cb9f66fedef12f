//! The errors of a stage of the pipeline.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use indef_core::{SkipReason, plan::format::PlanError, profile::ProfileError};
use indef_engine::{claim::ClaimError, resume::ResumeError};
use indef_fs::{EngineKind, FsKind, NoEmptier, PartKind};
use indef_trace::{collect::TraceError, store::StoreError};
use units::Bytes;

/// The output of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// A plan.
    Plan,
    /// A profile of lines.
    Profile,
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plan => "the plan",
            Self::Profile => "the profile",
        })
    }
}

/// Why free space cannot be made whole on a file system.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CannotCompact {
    /// No way is known for this kind of file system.
    #[error("free space of {0} cannot be made whole by indef")]
    Kind(FsKind),
    /// The kernel cannot empty parts of this one, or does not tell of them.
    #[error("its kernel empties no part of it: {0:?}")]
    Parts(NoEmptier),
    /// The kernel empties parts of it, whoever has what lies there.
    #[error("the kernel moves all files there, so none can be left out")]
    NotByFile,
    /// Another operation that the kernel does not do beside this one is under way, or paused.
    #[error("a balance or another operation on its devices is under way")]
    Busy,
    /// Somebody has ended what the kernel did.
    #[error("somebody has paused or cancelled the balance that emptied a chunk")]
    Ended,
    /// Only root may see the space of all files, and move them.
    #[error("only root may make free space whole")]
    NotRoot,
    /// The engine that was asked for moves nothing out of the way there.
    #[error("the engine {engine} moves nothing out of the way on {kind}")]
    Engine {
        /// The engine.
        engine: EngineKind,
        /// The file system's kind.
        kind: FsKind,
        /// Those that do, best first.
        others: Vec<EngineKind>,
    },
    /// No engine works there.
    #[error("no engine can move files out of the way there: {0}")]
    Refused(SkipReason),
    /// The wanted run is longer than all free space.
    #[error("a free run of {wanted} is wanted, and {free} are free")]
    WantsMore {
        /// The wanted length.
        wanted: Bytes,
        /// All free space.
        free: Bytes,
        /// The size of the file system.
        size: Bytes,
        /// The longest region that may be emptied now.
        most: Bytes,
        /// Percent that stay free, and bound it.
        min_free_pct: f64,
    },
    /// There is no free space at all.
    #[error("nothing is free")]
    Full,
    /// The file system does not tell, or does not hold, its space.
    #[error("cannot look at its space: {0}")]
    Space(#[from] io::Error),
    /// Data that was to be written there, by whomever, could not be.
    #[error("data could not be written back: {0}")]
    Unwritten(io::Error),
    /// The kernel failed to empty a part of it.
    #[error("a {} could not be emptied: {error}", .part.as_str())]
    NotEmptied {
        /// What it is.
        part: PartKind,
        /// The kernel's error.
        error: io::Error,
    },
}

/// A stage failed as a whole. A failure that concerns a single file is a [`Note`](crate::Note) or
/// a result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be opened or made.
    #[error("{path}: {source}", path = path.display())]
    Open {
        /// Its path.
        path: PathBuf,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("{path}: cannot write {what}: {source}", path = path.display())]
    Write {
        /// Its path.
        path: PathBuf,
        /// The kind of file that it should have been.
        what: Written,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// A profile of lines is damaged, or is no profile.
    #[error("{path}: {source}", path = path.display())]
    Profile {
        /// Its path.
        path: PathBuf,
        /// Its line, and the mistake in it.
        #[source]
        source: ProfileError,
    },
    /// A plan file is damaged, or is no plan.
    #[error("{path}: {source}", path = path.display())]
    Plan {
        /// Its path.
        path: PathBuf,
        /// Its line, and the mistake in it.
        #[source]
        source: PlanError,
    },
    /// A profile store cannot be used. Names its path.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Another run works on a file system.
    #[error("{}{why}", prefix(path.as_deref()))]
    Claimed {
        /// A path on it.
        path: Option<PathBuf>,
        /// The other run.
        why: ClaimError,
    },
    /// Which space no file reaches cannot be told to this user.
    #[error("{path}: only root may read which space of Btrfs no file reaches", path = path.display())]
    UnreachableUntold {
        /// A path on the file system.
        path: PathBuf,
    },
    /// This kernel does not rewrite all that is asked for.
    #[error("{path}: giving space back needs Linux 6.17 or newer", path = path.display())]
    ReclaimNeedsKernel {
        /// A path on the file system.
        path: PathBuf,
    },
    /// Free space cannot be made whole there.
    #[error("{path}: {why}", path = path.display())]
    CannotCompact {
        /// A path on the file system.
        path: PathBuf,
        /// Its kind.
        kind: FsKind,
        /// The reason.
        #[source]
        why: CannotCompact,
    },
    /// There is no stopped run to continue.
    #[error("no run was stopped with work left")]
    NothingStopped,
    /// There is no directory in which to store runs.
    #[error("no directory for the state of runs: set HOME or XDG_STATE_HOME")]
    NoStateDirectory(#[source] io::Error),
    /// A stored run cannot be read or written. Names its path.
    #[error(transparent)]
    Resume(#[from] ResumeError),
    /// Nothing can be collected.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A file is no profile store, and is not overwritten.
    #[error("{path}: there is something else than a profile store", path = path.display())]
    NoStore {
        /// Its path.
        path: PathBuf,
    },
    /// A profile of lines would overwrite a profile store.
    #[error("{path}: there is a profile store", path = path.display())]
    IsStore {
        /// Its path.
        path: PathBuf,
    },
    /// The store did not take all recorded accesses; the rest is kept in another file.
    #[error("{why}. What was not yet in it is kept in {path}", path = path.display())]
    Rescued {
        /// A profile of lines in the temporary directory.
        path: PathBuf,
        /// The store's problem.
        why: StoreError,
    },
    /// The store did not take all recorded accesses, and the rest is lost.
    #[error("{why}. It could not be kept elsewhere either: {source}")]
    NotRescued {
        /// The store's problem.
        why: StoreError,
        /// The reason for which no other file could be written.
        #[source]
        source: io::Error,
    },
}

fn prefix(path: Option<&Path>) -> String {
    path.map_or_else(String::new, |path| format!("{}: ", path.display()))
}

/// An error with its causes, in one line. A cause that an error before it has told already is not told again.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !line.contains(&text) {
            line = format!("{line}: {text}");
        }
        cause = error.source();
    }
    line
}

#[cfg(test)]
mod tests {
    use indef_fs::FsError;

    use super::*;

    #[test]
    fn a_cause_is_told_once() {
        let full = io::Error::from_raw_os_error(28);
        let text = full.to_string();
        let error = ResumeError::from(FsError::new("/a", "create", full));
        let told = chain(&Error::Resume(error));
        assert_eq!(told, format!("/a: create failed: {text}"));
        let error = Error::NoStateDirectory(io::Error::other("nobody knows"));
        assert!(chain(&error).ends_with("XDG_STATE_HOME: nobody knows"));
    }
}
