//! A stage that cannot be built, or an act on it that failed.

use std::{io, path::PathBuf, process::ExitStatus};

use source_tree::BuildError;

/// See the module.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StageError {
    /// It could not be started.
    #[error("cannot run {}: {source}; is it installed?", .program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It failed.
    #[error("{}: {status}\n{output}", .program.display())]
    Program {
        /// The program.
        program: PathBuf,
        /// How it ended.
        status: ExitStatus,
        /// What it wrote to stderr.
        output: String,
    },
    /// flashd is no program of this tree, or does not build.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// `flashd mount` ended, or took too long.
    #[error("flashd mount has no disk: {0}")]
    NoDisk(String),
    /// `flashd serve` ended before it told an address.
    #[error("flashd serve has not begun")]
    NotServed,
    /// flashd ended with an error.
    #[error("flashd: {0}")]
    Flashd(ExitStatus),
    /// It printed something else than expected.
    #[error("{what} printed something else than expected: {text}")]
    Said {
        /// The program, or the file of the kernel.
        what: String,
        /// What it printed.
        text: String,
    },
    /// No loop device of this machine passes discards on.
    #[error(
        "no loop device passes discards on: their discard_max_bytes are 0, which some program has set; boot anew, or \
         make further devices"
    )]
    NoDiscards,
    /// A file operation failed.
    #[error("{what}: {source}")]
    Io {
        /// The operation, and its file.
        what: String,
        /// Why.
        source: io::Error,
    },
}

impl StageError {
    /// For `map_err`.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        |source| Self::Io { what, source }
    }
}
