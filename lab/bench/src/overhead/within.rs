//! What a read costs its application in a trace, compared within the trace.
//!
//! A trace of many accesses attaches its programs in windows only, at random. So the same process reads with and without
//! them, in turn, and how fast the machine happens to be is hardly a part of the difference, as it is of that of two runs. The
//! time without begins when the programs have been gone for a while: what a window leaves behind (caches, the collector's
//! work) is on the trace's account.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::{
    cases::Told,
    trace::{field, processor_time},
};

/// From one look to the next.
const EVERY: Duration = Duration::from_millis(4);
/// After so long without programs, nothing is left of a window.
const REST: Duration = Duration::from_millis(200);
/// The least part of the time to compare with.
const LEAST: f64 = 0.1;
/// A trace holds so many descriptors more at least in a window: there are as many programs.
const PROGRAMS: usize = 3;

/// What is so at one time.
#[derive(Clone, Copy, Debug, Default)]
struct Look {
    at: Duration,
    /// Processor time of the application, and its reads, so far.
    busy: Duration,
    reads: u64,
    /// Descriptors of the trace.
    open: usize,
}

/// Looks at an application and its trace until it is asked.
pub(super) struct Within {
    ended: Arc<AtomicBool>,
    looks: JoinHandle<Vec<Look>>,
}

impl Within {
    /// From now on.
    pub(super) fn start(application: u32, told: Told, trace: u32) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let (until, began) = (ended.clone(), Instant::now());
        let looks = thread::spawn(move || {
            let mut looks = Vec::new();
            while !until.load(Ordering::Relaxed) {
                looks.extend(look(application, told, trace, began));
                thread::sleep(EVERY);
            }
            looks
        });
        Self { ended, looks }
    }

    /// The processor time of a read in all of the time, more than in that without programs, in percent of this; `None` where
    /// they were attached all the time.
    pub(super) fn finish(self) -> Option<f64> {
        self.ended.store(true, Ordering::Relaxed);
        more_pct(&self.looks.join().unwrap_or_default())
    }
}

/// `None` once one of the processes is gone.
fn look(application: u32, told: Told, trace: u32, began: Instant) -> Option<Look> {
    let io = fs::read_to_string(format!("/proc/{application}/io")).ok()?;
    Some(Look {
        at: began.elapsed(),
        busy: processor_time(application),
        reads: match told {
            Told::ByCalls => field(&io, "syscr:")?,
            Told::ByBytes(bytes) => field(&io, "read_bytes:")? / bytes,
        },
        open: fs::read_dir(format!("/proc/{trace}/fd")).ok()?.count(),
    })
}

fn more_pct(looks: &[Look]) -> Option<f64> {
    let open = looks.iter().map(|look| look.open);
    let (fewest, most) = (open.clone().min()?, open.max()?);
    if most < fewest + PROGRAMS {
        return None;
    }
    let is_attached = |look: &Look| 2 * look.open > fewest + most;
    let (mut all, mut without) = (Look::default(), Look::default());
    let mut attached_at = looks.first()?.at;
    for pair in looks.windows(2) {
        let [from, to] = pair else { continue };
        let took = Look {
            at: to.at - from.at,
            busy: to.busy.saturating_sub(from.busy),
            reads: to.reads.saturating_sub(from.reads),
            open: 0,
        };
        all.add(took);
        if is_attached(from) || is_attached(to) {
            attached_at = to.at;
        } else if from.at > attached_at + REST {
            without.add(took);
        }
    }
    let is_enough = without.at > all.at.mul_f64(LEAST);
    is_enough.then(|| (all.of_a_read() / without.of_a_read() - 1.0) * 100.0)
}

impl Look {
    fn add(&mut self, took: Self) {
        self.at += took.at;
        self.busy += took.busy;
        self.reads += took.reads;
    }

    /// Seconds of a processor.
    fn of_a_read(&self) -> f64 {
        self.busy.as_secs_f64() / self.reads.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks at a process that is busy all the time: a read takes 1 µs, and 1.5 µs in a window and in the 100 ms after it.
    fn looks(is_window: impl Fn(u64) -> bool) -> Vec<Look> {
        let mut look = Look {
            open: 20,
            ..Look::default()
        };
        let mut slow_until = 0;
        (0..5000)
            .map(|at| {
                let now = look;
                let window = is_window(at * 4);
                if window {
                    slow_until = at * 4 + 100;
                }
                look.at += EVERY;
                look.busy += EVERY;
                look.reads += if at * 4 < slow_until { 2667 } else { 4000 };
                look.open = 20 + 7 * usize::from(is_window((at + 1) * 4));
                now
            })
            .collect()
    }

    #[test]
    fn what_windows_cost_is_told_with_what_they_leave_behind() {
        // 100 ms in two seconds, and as much again.
        let more = more_pct(&looks(|at| at % 2000 < 100)).unwrap();
        // A tenth of the time brings two thirds of the reads.
        let expected = (1.0 / (0.9 + 0.1 / 1.5) - 1.0) * 100.0;
        assert!((more - expected).abs() < 0.2, "{more} {expected}");
    }

    #[test]
    fn nothing_is_told_without_anything_to_compare_with() {
        assert_eq!(more_pct(&looks(|_| true)), None);
        assert_eq!(more_pct(&looks(|_| false)), None);
        // Windows that follow each other too soon.
        assert_eq!(more_pct(&looks(|at| at % 200 < 100)), None);
        assert_eq!(more_pct(&[]), None);
    }
}
