//! Why a stage of the pipeline cannot do what was asked for.

use std::{
    io,
    path::{Path, PathBuf},
};

use indef_core::{plan::format::PlanError, profile::ProfileError};
use indef_engine::{claim::ClaimError, resume::ResumeError};
use indef_trace::{collect::TraceError, store::StoreError};

/// A stage failed as a whole. What concerns a single file is a [`Note`](crate::Note) or a result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be opened or made.
    #[error("{path}: {source}", path = path.display())]
    Open {
        /// Which.
        path: PathBuf,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("{path}: cannot write {what}: {source}", path = path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// "the plan", "the profile".
        what: &'static str,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// A profile of lines is damaged, or is none.
    #[error("{path}: {source}", path = path.display())]
    Profile {
        /// Which.
        path: PathBuf,
        /// Its line, and what is wrong with it.
        #[source]
        source: ProfileError,
    },
    /// A plan file is damaged, or is none.
    #[error("{path}: {source}", path = path.display())]
    Plan {
        /// Which.
        path: PathBuf,
        /// Its line, and what is wrong with it.
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
        /// Which run.
        why: ClaimError,
    },
    /// There is no run that could go on.
    #[error("no run was stopped with work left")]
    NothingStopped,
    /// There is no place to store runs at.
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
        /// Which.
        path: PathBuf,
    },
    /// A profile of lines would overwrite a profile store.
    #[error("{path}: there is a profile store", path = path.display())]
    IsStore {
        /// Which.
        path: PathBuf,
    },
    /// The store did not take all that was learned; the rest is kept in another file.
    #[error("{why}. What was not yet in it is kept in {path}", path = path.display())]
    Rescued {
        /// A profile of lines in the temporary directory.
        path: PathBuf,
        /// The store's problem.
        why: StoreError,
    },
    /// The store did not take all that was learned, and the rest is lost.
    #[error("{why}. It could not be kept elsewhere either: {source}")]
    NotRescued {
        /// The store's problem.
        why: StoreError,
        /// Why no other file could be written.
        #[source]
        source: io::Error,
    },
}

fn prefix(path: Option<&Path>) -> String {
    path.map_or_else(String::new, |path| format!("{}: ", path.display()))
}
