//! A process that can wait.

use rustix::process::setpriority_process;

/// The nice value of whatever can wait.
const LAST: i32 = 19;

/// Let others go first, whoever starts this process: a unit that says so itself, cron, a person. All threads that follow have
/// it from this one.
pub(super) fn be_last() {
    if let Err(error) = setpriority_process(None, LAST) {
        tracing::debug!(%error, "it runs as it was started");
    }
}
