//! Counts of a trace that looks in windows only, spread over the time that the windows stand for.
//!
//! In a window (`indef-trace`, "Cost" in docs/trace.md) come the counts of all of the time around it at once:
//! a rate that follows them would jump. But it is known for how long the windows stand, so the counts of
//! two or more of them, divided by that time, are a rate; it holds until the next windows tell another one.

use std::{borrow::Cow, time::Duration};

use indef_core::access::Observed;
use indef_trace::{
    Tally,
    collect::{Sampled, Windowed},
};

use crate::rate_error::RateError;

/// As many windows tell a rate: a stratum has two.
const ENOUGH: u32 = 2;

/// Counts, and the time in which they came.
#[derive(Debug, Default)]
struct Counted {
    tallies: Vec<Tally>,
    windows: Windowed,
    sampled: Sampled,
}

/// Makes counts steady.
#[derive(Debug, Default)]
pub(crate) struct Steady {
    /// The windows since `rate`.
    next: Counted,
    rate: Option<Counted>,
    /// The time for which `rate` was told.
    told: Duration,
    /// When something was told last.
    at: Duration,
}

impl Steady {
    /// Take the counts that have arrived until `now`, `sampled` as exactly as that, and return those of the time
    /// since the last call. Of the parts that arrive together, the last one tells of their windows.
    pub(crate) fn take<'a>(
        &mut self,
        tallies: &'a [Tally],
        sampled: Sampled,
        windows: Option<Windowed>,
        now: Duration,
    ) -> Cow<'a, [Tally]> {
        let Some(windows) = windows else {
            *self = Self {
                at: now,
                ..Self::default()
            };
            return Cow::Borrowed(tallies);
        };
        self.next.tallies.extend_from_slice(tallies);
        self.next.windows.add(windows);
        self.next.sampled.add(sampled);
        let mut told = Vec::new();
        if self.next.windows.windows >= ENOUGH {
            let next = std::mem::take(&mut self.next);
            // Times are those of single reads, and have no weight.
            told.extend(next.tallies.iter().map(times_alone));
            self.rate = Some(next);
            self.told = Duration::ZERO;
        }
        if let Some(Counted {
            tallies, windows, ..
        }) = &self.rate
        {
            let until = self.told + now.saturating_sub(self.at);
            let share = |count: u64, time: Duration| {
                (count as f64 * time.as_secs_f64() / windows.time.as_secs_f64()) as u64
            };
            let since = |count| share(count, until) - share(count, self.told);
            told.extend(tallies.iter().map(|tally| counts_alone(tally, since)));
            self.told = until;
            self.at = now;
        }
        told.retain(|tally| tally.reads > 0 || tally.writes > 0 || tally.observed.timed > 0);
        Cow::Owned(told)
    }

    /// The error of the rate that holds; `None` without windows.
    pub(crate) fn error(&self) -> Option<RateError> {
        let rate = self.rate.as_ref()?;
        Some(RateError::over(&rate.sampled, rate.windows.time))
    }
}

fn times_alone(tally: &Tally) -> Tally {
    let mut times = *tally;
    (times.reads, times.writes, times.observed.requests) = (0, 0, 0);
    times
}

fn counts_alone(tally: &Tally, part: impl Fn(u64) -> u64) -> Tally {
    let mut counts = Tally {
        reads: part(tally.reads),
        writes: part(tally.writes),
        observed: Observed::default(),
        ..*tally
    };
    counts.observed.requests = part(tally.observed.requests);
    counts
}

#[cfg(test)]
mod tests {
    use indef_trace::FileKey;
    use units::{FileRange, Nanos};

    use super::*;

    fn tally(reads: u64) -> Tally {
        Tally {
            file: FileKey {
                dev: 1,
                inode: 2,
                generation: 3,
                subvolume: 0,
            },
            range: FileRange::new(0, 4096),
            reads,
            writes: 2 * reads,
            observed: Observed {
                requests: 4 * reads,
                timed: 3,
                time: Nanos(300),
                ahead: None,
            },
        }
    }

    /// One in 64.
    const SAMPLED: Sampled = Sampled {
        counted: 640,
        variance: 63 * 640,
        common: 0,
    };

    fn sums(tallies: &[Tally]) -> (u64, u64, u64, u64) {
        let sum = |count: fn(&Tally) -> u64| tallies.iter().map(count).sum();
        (
            sum(|t| t.reads),
            sum(|t| t.writes),
            sum(|t| t.observed.requests),
            sum(|t| t.observed.timed),
        )
    }

    /// 1,000 reads in each second, told by a window of 50 ms in each 6.4 s, whenever it comes.
    #[test]
    fn a_steady_load_is_steady() {
        let windows = [5, 9, 15, 25, 27, 38, 40, 51, 60, 64, 72];
        let mut steady = Steady::default();
        let mut told = Vec::new();
        for second in 1..80 {
            let in_window = windows.contains(&second);
            // 50 accesses that stand for 128 each.
            let tallies = if in_window { vec![tally(6400)] } else { vec![] };
            let windowed = Windowed {
                windows: in_window.into(),
                time: Duration::from_millis(if in_window { 6400 } else { 0 }),
            };
            let now = Duration::from_secs(second);
            told.push(sums(&steady.take(&tallies, SAMPLED, Some(windowed), now)));
        }
        // Until two windows were seen, nothing is known.
        assert!(told[..8].iter().all(|sums| sums.0 == 0));
        // Then all of the time before.
        assert_eq!(told[8], (9000, 18_000, 36_000, 6));
        for (second, sums) in told.iter().enumerate().skip(9) {
            assert!(
                sums.0.abs_diff(1000) <= 1 && sums.1.abs_diff(2000) <= 1,
                "{second}: {sums:?}"
            );
        }
        // The error is that of the windows of the rate.
        let error = steady.error().unwrap().relative(100.0);
        assert!((0.2..0.4).contains(&error), "{error}");
        // Each time once.
        let timed: u64 = told.iter().map(|sums| sums.3).sum();
        assert_eq!(timed, 3 * 10);
    }

    #[test]
    fn a_load_that_ends_is_told_to_end_with_two_windows() {
        let mut steady = Steady::default();
        let windows = |windows| {
            Some(Windowed {
                windows,
                time: Duration::from_secs(windows.into()),
            })
        };
        let seconds = Duration::from_secs;
        assert_eq!(
            steady
                .take(&[tally(10)], SAMPLED, windows(2), seconds(1))
                .len(),
            2
        );
        assert_eq!(
            sums(&steady.take(&[], SAMPLED, windows(1), seconds(2))).0,
            5
        );
        assert!(steady.take(&[], SAMPLED, windows(1), seconds(3)).is_empty());
    }

    #[test]
    fn without_windows_counts_come_as_they_are() {
        let mut steady = Steady::default();
        let all = [tally(10)];
        let told = steady.take(&all, SAMPLED, None, Duration::from_secs(1));
        assert!(matches!(told, Cow::Borrowed(told) if told == all));
        // What a window told that was the only one is not told later.
        let one = Windowed {
            windows: 1,
            time: Duration::from_secs(1),
        };
        assert!(
            steady
                .take(&all, SAMPLED, Some(one), Duration::from_secs(2))
                .is_empty()
        );
        assert_eq!(
            steady
                .take(&all, SAMPLED, None, Duration::from_secs(3))
                .len(),
            1
        );
        assert!(
            steady
                .take(&[], SAMPLED, Some(one), Duration::from_secs(4))
                .is_empty()
        );
    }
}
