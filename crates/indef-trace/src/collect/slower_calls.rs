//! What a system call takes longer while programs are attached to all of them: the kernel's way to the programs, which their own
//! statistics do not know, and the programs' way to "not this one".

use std::{hint, time::Instant};

use super::options::{Layer, TraceOptions};

/// Calls that are timed at once, and how often: the fastest counts, as others run beside.
const CALLS: u32 = 64;
const TIMES: usize = 8;

/// Seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SlowerCalls {
    /// Without programs; `None` where they are not at system calls.
    before: Option<f64>,
    more: f64,
}

impl SlowerCalls {
    /// The programs are not attached yet.
    pub(super) fn before(options: &TraceOptions) -> Self {
        let before = (options.layer == Layer::Syscall).then(seconds_of_a_call);
        Self { before, more: 0.0 }
    }

    /// They are.
    pub(super) fn after(&mut self) {
        if let Some(before) = self.before {
            self.more = (seconds_of_a_call() - before).max(0.0);
        }
    }

    /// Whether the programs are at system calls.
    pub(super) fn is_asked(&self) -> bool {
        self.before.is_some()
    }

    pub(super) fn seconds(&self) -> f64 {
        self.more
    }
}

/// Of one that does nothing.
fn seconds_of_a_call() -> f64 {
    let batch = || {
        let began = Instant::now();
        for _ in 0..CALLS {
            hint::black_box(rustix::process::getppid());
        }
        began.elapsed().as_secs_f64() / f64::from(CALLS)
    };
    (0..TIMES).map(|_| batch()).fold(f64::INFINITY, f64::min)
}
