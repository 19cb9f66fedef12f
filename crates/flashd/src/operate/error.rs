//! Errors of operating a daemon.

use std::io;

use metrics_server::ServeError;
use units::Nanos;

use super::runtime::RuntimeError;
use crate::{device::Failure, pace::LatenessReport};

/// A daemon cannot be operated.
#[derive(Debug, thiserror::Error)]
pub enum OperateError {
    /// The control socket cannot be made or found.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The Prometheus endpoint cannot be served.
    #[error("--metrics: {0}")]
    Metrics(#[source] ServeError),
    /// A signal handler or thread cannot be set up.
    #[error("cannot set up the daemon: {0}")]
    Io(#[from] io::Error),
    /// The data could not be made durable at the end.
    #[error("at the end, not everything could be made durable: {0}")]
    Close(#[from] Failure),
    /// Answers were later than allowed.
    #[error(
        "answers were late: {late} against the model at the {percentile}th percentile, and {allowed} \
         was allowed; do not use this run ({report})"
    )]
    Late {
        /// How late they were.
        late: Nanos,
        /// The percentile.
        percentile: f64,
        /// The limit.
        allowed: Nanos,
        /// The whole report.
        report: LatenessReport,
    },
}
