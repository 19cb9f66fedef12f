//! The cost of tracing, as it is.
//!
//! - The programs: the kernel's own statistics of BPF programs. They cost two readings of the clock for
//!   each run, so they are on for some 50 ms in a second only. Their times contain one of these
//!   readings, and not the kernel's way to a program: that is charged for each run ([`super::slower_calls`]).
//! - The collector: the processor time of the thread that reads the ring, and of whoever takes the
//!   counts and keeps them, averaged over some seconds.
//!
//! Only an administrator may turn the statistics on. Others get an estimate from the number of
//! accesses that are looked at.

use std::{
    os::fd::{OwnedFd, RawFd},
    time::{Duration, Instant},
};

use linux_abi::bpf;
use rustix::time::{ClockId, clock_gettime};

/// The shortest time that is measured.
const SHORTEST: Duration = Duration::from_millis(40);
/// From one measurement to the next, while nothing changes.
const EVERY: Duration = Duration::from_secs(1);
/// Time over which the collector's own cost is averaged.
const AVERAGED: f64 = 5.0;
/// Where the programs' times cannot be read: of an access that is looked at, and of any one for which programs
/// run, in seconds. Larger than what `cargo lab bench overhead` measures.
const ASSUMED_LOOK: f64 = 2e-6;
const ASSUMED_RUN: f64 = 0.1e-6;

/// Processor time of the calling thread.
pub(super) fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// A loaded BPF program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watched {
    pub(super) fd: RawFd,
    /// Whether it runs in pauses, too.
    pub(super) stays: bool,
}

/// The time that BPF programs ran, since they were loaded and while statistics were on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Runs {
    /// Of the programs that pause, and how often they ran.
    pub(super) time: Duration,
    pub(super) count: u64,
    /// Of the others.
    staying: Duration,
    staying_count: u64,
}

impl Runs {
    /// The sum over programs.
    pub(super) fn of(programs: &[Watched]) -> Self {
        let mut sum = Self::default();
        for Watched { fd, stays } in programs {
            let bpf::Runs { time, count } = bpf::runs(*fd).unwrap_or_default();
            match stays {
                true => {
                    sum.staying += time;
                    sum.staying_count += count;
                }
                false => {
                    sum.time += time;
                    sum.count += count;
                }
            }
        }
        sum
    }

    /// Those since `before`.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            time: self.time.saturating_sub(before.time),
            count: self.count.saturating_sub(before.count),
            staying: self.staying.saturating_sub(before.staying),
            staying_count: self.staying_count.saturating_sub(before.staying_count),
        }
    }
}

/// Processor time of the collector.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OwnTime {
    /// All of it.
    pub(super) all: Duration,
    /// The part that is the same whatever is read: for measuring and choosing, slot by slot.
    pub(super) upkeep: Duration,
}

/// A measurement that goes on.
struct Begun {
    at: Instant,
    runs: Runs,
    /// Off again when it is dropped.
    statistics: Option<OwnedFd>,
}

/// A measurement, as shares of a processor's time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    /// The programs that pause, while they are attached.
    pub(super) attached: f64,
    /// How often these ran in a second; 0 where that is not known.
    pub(super) runs: f64,
    /// The others.
    pub(super) staying: f64,
    pub(super) staying_runs: f64,
    /// The collector, averaged, and which part of that is for measuring and choosing.
    pub(super) own: f64,
    pub(super) upkeep: f64,
    /// Accesses that were looked at per second since the last measurement.
    pub(super) seen: f64,
}

/// Measures again and again.
pub(super) struct Meter {
    begun: Option<Begun>,
    /// When the next measurement is due.
    due: Instant,
    /// When the last one ended, with the collector's time then, and the accesses that were looked at.
    last: (Instant, OwnTime, u64),
    /// The collector's own cost for accesses, as a share, and its upkeep.
    own: f64,
    upkeep: f64,
}

impl Meter {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self {
            begun: None,
            due: now,
            last: (now, OwnTime::default(), 0),
            own: 0.0,
            upkeep: 0.0,
        }
    }

    /// Begin a measurement, if one is due. The programs have to stay attached until it ends.
    pub(super) fn begin(&mut self, programs: &[Watched]) {
        if self.begun.is_some() || Instant::now() < self.due {
            return;
        }
        let statistics = bpf::enable_run_time().ok();
        self.begun = Some(Begun {
            runs: Runs::of(programs),
            at: Instant::now(),
            statistics,
        });
    }

    /// End the measurement, if it is long enough. `own` is the collector's processor time so far, `seen` the number
    /// of accesses that were looked at, `now_seen` that of this measurement, of `made`.
    pub(super) fn end(
        &mut self,
        programs: &[Watched],
        own: OwnTime,
        seen: u64,
        (now_seen, made): (u64, u64),
    ) -> Option<Measured> {
        let begun = self.begun.take_if(|begun| begun.at.elapsed() >= SHORTEST)?;
        let now = Instant::now();
        let runs = Runs::of(programs);
        let (before, own_before, seen_before) = std::mem::replace(&mut self.last, (now, own, seen));
        let since = (now - before).as_secs_f64();
        let share = |now: Duration, before| now.saturating_sub(before).as_secs_f64() / since;
        let upkeep = share(own.upkeep, own_before.upkeep);
        let rest = (share(own.all, own_before.all) - upkeep).max(0.0);
        let part = 1.0 - (-since / AVERAGED).exp();
        self.own += (rest - self.own) * part;
        self.upkeep += (upkeep - self.upkeep) * part;
        let seen = seen.saturating_sub(seen_before) as f64 / since;
        let took = (now - begun.at).as_secs_f64();
        let runs = runs.since(begun.runs);
        let attached = match begun.statistics {
            Some(_) => runs.time.as_secs_f64(),
            None => now_seen as f64 * ASSUMED_LOOK + made as f64 * ASSUMED_RUN,
        };
        self.due = now + EVERY;
        Some(Measured {
            attached: attached / took,
            runs: runs.count as f64 / took,
            staying: runs.staying.as_secs_f64() / took,
            staying_runs: runs.staying_count as f64 / took,
            own: self.own + self.upkeep,
            upkeep: self.upkeep,
            seen,
        })
    }

    /// The collector gets so many times the accesses from now on: what it cost before does not hold.
    pub(super) fn expect(&mut self, times: f64) {
        self.own *= times.min(1.0);
    }

    /// Measure again at once: the last measurement does not hold any more.
    pub(super) fn hurry(&mut self) {
        self.due = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_is_not_shorter_than_it_tells_something() {
        let mut meter = Meter::new();
        meter.begin(&[]);
        let none = OwnTime::default();
        assert!(meter.end(&[], none, 0, (0, 0)).is_none());
        std::thread::sleep(SHORTEST);
        let own = OwnTime {
            all: Duration::from_secs(1),
            upkeep: Duration::from_millis(250),
        };
        let cost = meter.end(&[], own, 500, (500, 500));
        let cost = cost.unwrap();
        assert!(cost.own > 0.0 && cost.seen > 100.0, "{cost:?}");
        assert!((cost.upkeep / cost.own - 0.25).abs() < 1e-9, "{cost:?}");
        // Fewer accesses spare no upkeep.
        let rest = meter.own;
        meter.expect(0.5);
        assert_eq!((meter.own, meter.upkeep), (rest / 2.0, cost.upkeep));
        meter.expect(4.0);
        assert_eq!(meter.own, rest / 2.0);
        // The next one is due later.
        meter.begin(&[]);
        assert!(meter.begun.is_none());
        meter.hurry();
        meter.begin(&[]);
        assert!(meter.begun.is_some());
    }
}
