//! Why there is no report.

use std::{io, process::ExitStatus};

/// See the module.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FioError {
    /// It cannot be started.
    #[error("cannot run fio: {0}; is it installed?")]
    Start(#[source] io::Error),
    /// Its end cannot be waited for.
    #[error("cannot wait for fio: {0}")]
    Wait(#[source] io::Error),
    /// It failed.
    #[error("fio: {status}\n{output}")]
    Failed {
        /// Its exit status.
        status: ExitStatus,
        /// All that it printed.
        output: String,
    },
    /// It printed something else than a report.
    #[error("fio's report cannot be understood: {0}")]
    Report(#[source] serde_json::Error),
    /// A job met an error.
    #[error("fio reports error {error} of its job '{job}'")]
    Job {
        /// Its name.
        job: String,
        /// The errno.
        error: i64,
    },
    /// The report lacks something.
    #[error("fio reports no {0}")]
    Missing(String),
}
