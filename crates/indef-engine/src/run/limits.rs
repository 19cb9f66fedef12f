//! The limits of a run: bytes, rate, time, and somebody who asks to stop.

use std::{
    sync::{
        Mutex, OnceLock,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use units::Bytes;

use super::StopCause;
use crate::{Cancel, sync::lock};

/// Bytes that may still be written. They are reserved before a relocation begins, and those that it
/// did not need are given back, so that at no time more can have been written than there were, if
/// engines write what they say. Where one wrote more, others may write less: below 0 nobody may.
#[derive(Debug)]
pub(super) struct Budget(AtomicI64);

impl Budget {
    pub(super) fn new(bytes: Bytes) -> Self {
        Self(AtomicI64::new(signed(bytes)))
    }

    /// Take this many, if they are there.
    pub(super) fn reserve(&self, bytes: Bytes) -> bool {
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                (left >= signed(bytes)).then(|| left - signed(bytes))
            })
            .is_ok()
    }

    /// The end of a relocation: give back bytes that were reserved and not written, or take those that
    /// were written beyond.
    pub(super) fn settle(&self, reserved: Bytes, written: Bytes) {
        let settled = |left: i64| {
            let left = left.saturating_add(signed(reserved));
            Some(left.saturating_sub(signed(written)))
        };
        // It fails for `None` only.
        let _ = (self.0).fetch_update(Ordering::Relaxed, Ordering::Relaxed, settled);
    }

    /// Take as many of these as there are. Returns those that are missing.
    fn take(&self, bytes: Bytes) -> Bytes {
        let there = |left: i64| left.clamp(0, signed(bytes));
        let taken = |left| Some(left - there(left));
        let before = (self.0).fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken);
        let (Ok(before) | Err(before)) = before;
        bytes.saturating_sub(Bytes(there(before).cast_unsigned()))
    }
}

/// Bytes of a requested budget beyond those that the plans cost, for what other files are read to be compared.
#[derive(Debug)]
pub(super) struct Surplus(Option<Budget>);

impl Surplus {
    pub(super) fn new(requested: Option<Bytes>, planned: Bytes) -> Self {
        Self(requested.map(|budget| Budget::new(budget.saturating_sub(planned))))
    }

    /// Take this many: all of one kind, also from those that the plans leave.
    pub(super) fn reserve(&self, bytes: Bytes, of_plans: &Budget) -> bool {
        let surplus = self.0.as_ref();
        surplus.is_none_or(|surplus| surplus.reserve(bytes) || of_plans.reserve(bytes))
    }

    /// Take this many, which were used already: those that are missing, from the plans.
    pub(super) fn take(&self, bytes: Bytes, of_plans: &Budget) {
        if let Some(surplus) = &self.0 {
            of_plans.settle(Bytes::ZERO, surplus.take(bytes));
        }
    }

    /// Whether there is a requested budget.
    pub(super) fn is_limited(&self) -> bool {
        self.0.is_some()
    }
}

fn signed(bytes: Bytes) -> i64 {
    i64::try_from(bytes.get()).unwrap_or(i64::MAX)
}

/// Whether, and why, a run ends early.
#[derive(Debug)]
pub(super) struct Stop<'a> {
    cancel: &'a Cancel,
    deadline: Option<Instant>,
    cause: OnceLock<StopCause>,
}

impl<'a> Stop<'a> {
    pub(super) fn new(cancel: &'a Cancel, time_limit: Option<Duration>) -> Self {
        Self {
            cancel,
            // A limit beyond the clock's end is none.
            deadline: time_limit.and_then(|limit| Instant::now().checked_add(limit)),
            cause: OnceLock::new(),
        }
    }

    /// Why to stop, if so. Once there is a cause it stays.
    pub(super) fn cause(&self) -> Option<StopCause> {
        let cause = if self.cancel.is_cancelled() {
            Some(StopCause::Cancelled)
        } else if self.deadline.is_some_and(|end| Instant::now() >= end) {
            Some(StopCause::TimeLimit)
        } else {
            None
        };
        match cause {
            Some(cause) => Some(*self.cause.get_or_init(|| cause)),
            None => self.cause.get().copied(),
        }
    }

    /// Sleep, but not through a stop.
    pub(super) fn sleep(&self, time: Duration) {
        let end = Instant::now() + time;
        while self.cause().is_none() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(Duration::from_millis(20)));
        }
    }
}

/// Keeps all workers together at a number of bytes a second. A writer gives the most bytes that it
/// will write, waits for its turn, and gives the number of written bytes afterwards.
#[derive(Debug)]
pub(super) struct Pace {
    per_second: Option<f64>,
    /// When the next one may write.
    next: Mutex<Instant>,
}

impl Pace {
    /// The bytes that may be written at once after a pause, as time.
    const BURST: Duration = Duration::from_millis(100);

    pub(super) fn new(per_second: Option<Bytes>) -> Self {
        Self {
            per_second: per_second.map(|rate| rate.get().max(1) as f64),
            next: Mutex::new(Instant::now()),
        }
    }

    /// Bytes that are written in `time` at this rate; `None` without a limit.
    pub(super) fn bytes_in(&self, time: Duration) -> Option<u64> {
        self.per_second
            .map(|rate| (rate * time.as_secs_f64()) as u64)
    }

    /// Wait for the turn to write up to `planned` bytes, or for a stop.
    pub(super) fn wait(&self, planned: Bytes, stop: &Stop<'_>) {
        let Some(rate) = self.per_second else { return };
        let mut next = lock(&self.next);
        let now = Instant::now();
        let turn = (*next).max(now.checked_sub(Self::BURST).unwrap_or(now));
        *next = turn + time(planned, rate);
        drop(next);
        stop.sleep(turn.saturating_duration_since(now));
    }

    /// Correct the pace: `written` bytes were written, and not `planned` ones.
    pub(super) fn settle(&self, planned: Bytes, written: Bytes) {
        let Some(rate) = self.per_second else { return };
        let mut next = lock(&self.next);
        if written > planned {
            *next += time(written - planned, rate);
        } else {
            let back = time(planned - written, rate);
            *next = next.checked_sub(back).unwrap_or(*next);
        }
    }
}

fn time(bytes: Bytes, rate: f64) -> Duration {
    const LONGEST: Duration = Duration::from_secs(1 << 30);
    Duration::try_from_secs_f64(bytes.get() as f64 / rate).map_or(LONGEST, |time| time.min(LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_never_overdrawn() {
        let budget = Budget::new(Bytes(100));
        assert!(budget.reserve(Bytes(60)));
        assert!(!budget.reserve(Bytes(41)));
        assert!(budget.reserve(Bytes(40)));
        budget.settle(Bytes(40), Bytes(30));
        assert!(!budget.reserve(Bytes(11)));
        assert!(budget.reserve(Bytes(10)));
    }

    #[test]
    fn what_is_written_beyond_a_reservation_is_taken_from_the_others() {
        let budget = Budget::new(Bytes(100));
        assert!(budget.reserve(Bytes(50)) && budget.reserve(Bytes(50)));
        budget.settle(Bytes(50), Bytes(80));
        budget.settle(Bytes(50), Bytes(10));
        assert!(!budget.reserve(Bytes(11)));
        assert!(budget.reserve(Bytes(10)));
        assert!(Budget::new(Bytes(u64::MAX)).reserve(Bytes(u64::MAX)));
    }

    #[test]
    fn what_was_used_without_leave_is_missing_for_others() {
        let (plans, surplus) = (
            Budget::new(Bytes(100)),
            Surplus::new(Some(Bytes(150)), Bytes(100)),
        );
        surplus.take(Bytes(40), &plans);
        assert!(surplus.reserve(Bytes(5), &plans));
        surplus.take(Bytes(35), &plans);
        assert!(plans.reserve(Bytes(70)) && !plans.reserve(Bytes(1)));
        surplus.take(Bytes(7), &plans);
        plans.settle(Bytes(70), Bytes::ZERO);
        assert!(!plans.reserve(Bytes(64)) && plans.reserve(Bytes(63)));
        // Without a requested budget reads are not limited.
        Surplus::new(None, Bytes(100)).take(Bytes::gib(1), &plans);
        plans.settle(Bytes(63), Bytes::ZERO);
        assert!(plans.reserve(Bytes(63)));
    }

    #[test]
    fn the_pace_is_kept_and_a_stop_ends_the_wait() {
        let cancel = Cancel::new();
        let stop = Stop::new(&cancel, None);
        let pace = Pace::new(Some(Bytes::mib(10)));
        let begin = Instant::now();
        for _ in 0..5 {
            pace.wait(Bytes::mib(4), &stop);
            pace.settle(Bytes::mib(4), Bytes::mib(1));
        }
        pace.wait(Bytes::ZERO, &stop);
        // 5 MiB at 10 MiB/s, less the burst.
        assert!(begin.elapsed() >= Duration::from_millis(390));
        pace.settle(Bytes::ZERO, Bytes::gib(100));
        let begin = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(50));
                cancel.cancel();
            });
            pace.wait(Bytes::mib(1), &stop);
        });
        assert!(begin.elapsed() < Duration::from_secs(5));
        assert_eq!(stop.cause(), Some(StopCause::Cancelled));
    }

    #[test]
    fn the_first_cause_stays() {
        let cancel = Cancel::new();
        let stop = Stop::new(&cancel, Some(Duration::ZERO));
        assert_eq!(stop.cause(), Some(StopCause::TimeLimit));
        cancel.cancel();
        assert_eq!(stop.cause(), Some(StopCause::TimeLimit));
        assert_eq!(Stop::new(&Cancel::new(), None).cause(), None);
    }
}
