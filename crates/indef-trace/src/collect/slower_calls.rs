//! The kernel's way to the programs, which their own statistics do not know.
//!
//! Where programs are at all system calls (layer `syscall`), each call takes the kernel's slow way in and out, and is looked at
//! by the programs, whoever makes it. How much longer a call takes then is timed when a trace begins; what the programs take of
//! it, by the kernel's statistics, is taken off. The way from a function of the kernel (fentry, `tp_btf`) cannot be timed so: its
//! cost is assumed.

use std::{hint, time::Instant};

use linux_abi::bpf;

use super::{
    meter::{Runs, Watched},
    options::{Layer, TraceOptions},
};

/// Calls that are timed at once, and how often: the fastest counts, as others run beside.
const CALLS: u32 = 64;
const TIMES: usize = 8;
/// Programs that run at each system call: at its beginning and at its end.
const AT_A_CALL: f64 = 2.0;
/// The way to a program at a function of the kernel, beyond the reading of the clock that is in its time, in seconds: of what
/// `cargo lab bench overhead` shows that reads take longer while programs are attached, the part that is not theirs.
pub(super) const ASSUMED_WAY: f64 = 25e-9;

/// Seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlowerCalls {
    /// Without programs; `None` where they are not at system calls.
    before: Option<f64>,
    /// By how much a call takes longer with them, as it was timed.
    longer: f64,
    way: f64,
}

impl SlowerCalls {
    /// The programs are not attached yet.
    pub(super) fn before(options: &TraceOptions) -> Self {
        let before = (options.layer == Layer::Syscall).then(seconds_of_a_call);
        Self {
            before,
            longer: 0.0,
            way: ASSUMED_WAY,
        }
    }

    /// At system calls, with this way to a program, in seconds.
    #[cfg(test)]
    pub(super) fn known(way: f64) -> Self {
        Self {
            before: Some(0.0),
            longer: 0.0,
            way,
        }
    }

    /// They are.
    pub(super) fn after(&mut self, programs: &[Watched]) {
        if let Some(before) = self.before {
            self.longer = (seconds_of_a_call() - before).max(0.0);
            let way = self.longer / AT_A_CALL - seconds_of_a_run(programs);
            self.way = way.max(ASSUMED_WAY);
        }
    }

    /// Whether the programs are at system calls.
    pub(super) fn is_asked(&self) -> bool {
        self.before.is_some()
    }

    /// What a call takes longer, without the programs; 0 where they are at no system calls.
    pub(super) fn way_of_a_call(&self) -> f64 {
        match self.is_asked() {
            true => AT_A_CALL * self.way,
            false => 0.0,
        }
    }

    /// What a call takes longer with what the programs take of it, as far as it was timed; 0 likewise.
    pub(super) fn longer(&self) -> f64 {
        self.longer.max(self.way_of_a_call())
    }

    /// The kernel's way to a program and back.
    pub(super) fn way(&self) -> f64 {
        self.way
    }
}

/// Of a call that does nothing.
fn seconds_of_a_call() -> f64 {
    let batch = || {
        let began = Instant::now();
        calls();
        began.elapsed().as_secs_f64() / f64::from(CALLS)
    };
    least(batch)
}

/// Of a program at such a call, by the kernel's statistics; nothing where these may not be asked.
fn seconds_of_a_run(programs: &[Watched]) -> f64 {
    let Ok(_statistics) = bpf::enable_run_time() else {
        return 0.0;
    };
    let batch = || {
        let before = Runs::of(programs);
        calls();
        let runs = Runs::of(programs).since(before);
        runs.time.as_secs_f64() / runs.count.max(1) as f64
    };
    least(batch)
}

fn calls() {
    for _ in 0..CALLS {
        hint::black_box(rustix::process::getppid());
    }
}

fn least(batch: impl Fn() -> f64) -> f64 {
    (0..TIMES).map(|_| batch()).fold(f64::INFINITY, f64::min)
}
