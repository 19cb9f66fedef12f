//! The errors of a guest.

use std::{
    io,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

/// A guest could not be made, or did not do its task.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// This machine has no guests: a program, the processor or the network is missing.
    #[error("no guest here: {why}")]
    Unavailable {
        /// The missing thing, and the remedy.
        why: String,
        /// Whether a machine with everything installed would still lack it (a network, say).
        foreseen: bool,
    },
    /// A request that cannot be fulfilled.
    #[error("{0}")]
    Request(String),
    /// A program failed, of the host or in a guest.
    #[error("{command}: {output}")]
    Command {
        /// The command line.
        command: String,
        /// Its output.
        output: String,
    },
    /// A file operation failed.
    #[error("{path}: {source}")]
    Io {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The guest came to no result: it did not boot, panicked, or was ended.
    #[error("the guest ended without a result: {why}; the end of its console:\n{console}")]
    Died {
        /// The known cause.
        why: String,
        /// The last lines of its console.
        console: String,
    },
    /// The guest took too long.
    #[error("no result from the guest after {after:?}; the end of its console:\n{console}")]
    TimedOut {
        /// The time that it was given.
        after: Duration,
        /// The last lines of its console.
        console: String,
    },
    /// The zoned SSD cannot be made or served.
    #[error("the zoned SSD: {0}")]
    Device(String),
    /// The caller requested the end.
    #[error("stopped")]
    Stopped,
}

impl LabError {
    pub(crate) fn missing(why: impl Into<String>) -> Self {
        Self::Unavailable {
            why: why.into(),
            foreseen: false,
        }
    }

    /// For `map_err` of an operation on a file.
    pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}

/// Run a program of the host to its end and return its standard output.
pub(crate) fn output_of(command: &mut Command) -> Result<Vec<u8>, LabError> {
    let line = format!("{command:?}");
    let failed = |output: String| LabError::Command {
        command: line,
        output,
    };
    let done = match command.output() {
        Ok(done) => done,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let program = command.get_program().to_string_lossy().into_owned();
            return Err(LabError::missing(format!("{program} is not installed")));
        }
        Err(error) => return Err(failed(error.to_string())),
    };
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        return Err(failed(format!("{}: {}", done.status, said.trim())));
    }
    Ok(done.stdout)
}
