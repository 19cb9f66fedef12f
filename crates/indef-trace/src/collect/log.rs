//! The messages of libbpf while it loads programs, kept to explain a failure.

use std::sync::{Mutex, MutexGuard, PoisonError};

use libbpf_rs::{PrintLevel, set_print};

use super::error::{Step, TraceError};

/// Collects the messages of the whole process, as libbpf has one printer for it.
pub(super) struct Log;

static SAID: Mutex<String> = Mutex::new(String::new());

/// The last lines that are shown; a verifier's refusal explains itself there.
const SHOWN: usize = 25;

impl Log {
    pub(super) fn begin() -> Self {
        set_print(Some((PrintLevel::Warn, |_, message| {
            tracing::debug!("libbpf: {}", message.trim_end());
            said().push_str(&message);
        })));
        Self
    }

    pub(super) fn clear(&self) {
        said().clear();
    }

    /// The error of a step that libbpf or the kernel refused, with the last messages.
    pub(super) fn error(&self, doing: Step, source: libbpf_rs::Error) -> TraceError {
        let said = said();
        let lines: Vec<&str> = said.lines().collect();
        TraceError::Kernel {
            doing,
            source,
            log: lines[lines.len().saturating_sub(SHOWN)..].join("\n"),
        }
    }
}

fn said() -> MutexGuard<'static, String> {
    SAID.lock().unwrap_or_else(PoisonError::into_inner)
}
