//! Sampling: one access in `k` is counted, as `k` accesses, where counting each one would cost too
//! much.
//!
//! **What is chosen.** At layer fs every read and every bio that is written has a coin of its own, in
//! the program that sees it first; a chosen read keeps its requests and its time. So the estimate of a
//! range's count is unbiased whatever the application does, and its ranges are those of real requests.
//! At layer syscall a coin holds for all calls of a task within a tick of the kernel's clock (1 to 10 ms): choosing single calls
//! would make a sequential reader look like a random one, and its windows of read-ahead would be lost.
//!
//! **Pauses.** A call that is not chosen still runs a program. Beyond `k` = 64 the programs are also
//! attached for a random part of the time only ([`super::windows`]), and cost nothing in between; `k` is
//! the product of both.
//!
//! **Error.** An access with the weight `k` was chosen with the probability `1/k`. So a sum over `N`
//! accesses has the variance `N (k - 1)`, for which the sum of `k (k - 1)` over the chosen ones is an
//! unbiased estimate, also where `k` changes. The relative standard error of a count `C` (that is,
//! `C / k` chosen accesses) is `sqrt((k - 1) / C)`. Where one coin covers `n` accesses (layer syscall,
//! pauses), the sum varies by `(k n)²`, not `n k²`: the difference is summed up, too. If each range has the
//! same part in all of them, it is an error that all counts share, which changes no ranking
//! ([`Sampled::common_error`]).
//!
//! **Control.** `k` follows the cost, as it is measured, and the programs themselves choose fewer where an
//! allowance is spent ([`super::control`]). What tracing took is told ([`Spent`]).

use std::time::Duration;

/// How many of the accesses are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sampling {
    /// Every one.
    #[default]
    All,
    /// One in this many, at random, always.
    OneIn(u32),
    /// One in `one_in`, in random windows that are one in `pauses` of the time.
    Paused {
        /// Chosen in a window.
        one_in: u32,
        /// Windows.
        pauses: u32,
    },
    /// One in as many as keep the cost of tracing below this many millionths of the time of one
    /// processor. One in one, as long as that does.
    AtMost(u32),
}

impl Sampling {
    /// The cost is at most this many percent of the time of one processor; of 100 and more, every
    /// access is counted.
    #[must_use]
    pub fn at_most_percent(percent: f64) -> Self {
        if percent >= 100.0 {
            return Self::All;
        }
        Self::AtMost((percent * 10_000.0) as u32)
    }

    /// The share of a processor's time that tracing may cost.
    pub(super) fn budget(self) -> Option<f64> {
        match self {
            Self::AtMost(millionths) => Some(f64::from(millionths) / 1e6),
            Self::All | Self::OneIn(_) | Self::Paused { .. } => None,
        }
    }

    /// The share of a processor's time that tracing may cost, in percent; `None` without a bound.
    #[must_use]
    pub fn bound_percent(self) -> Option<f64> {
        self.budget().map(|share| share * 100.0)
    }
}

/// Processor time that tracing took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// In the BPF programs: estimated from times at which it was measured; `None` if the cost has no
    /// bound, and it was not.
    pub programs: Option<Duration>,
    /// In the collector: the reader of the ring, and whoever takes the counts and keeps them.
    pub collector: Duration,
}

impl Spent {
    /// Add the time of another part of the trace.
    pub fn add(&mut self, more: Self) {
        self.collector += more.collector;
        if let Some(programs) = more.programs {
            *self.programs.get_or_insert_default() += programs;
        }
    }

    /// The difference since it was `before`.
    pub(super) fn since(&self, before: Self) -> Self {
        let programs = before.programs.unwrap_or_default();
        Self {
            programs: self.programs.map(|time| time.saturating_sub(programs)),
            collector: self.collector.saturating_sub(before.collector),
        }
    }

    /// The share of one processor's time, in percent, over the `traced` time; `None` if it is not known
    /// of the programs.
    #[must_use]
    pub fn percent(&self, traced: Duration) -> Option<f64> {
        let all = self.programs? + self.collector;
        (!traced.is_zero()).then(|| all.as_secs_f64() / traced.as_secs_f64() * 100.0)
    }
}

/// How exact counts are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sampled {
    /// Sum of all counts.
    pub counted: u64,
    /// Estimated variance of that sum, as if every access was chosen by itself: 0 if each was counted.
    pub variance: u64,
    /// The part of the error that comes from one choice for many accesses.
    pub common: u64,
}

impl Sampled {
    /// Add the counts of another time.
    pub fn add(&mut self, more: Self) {
        self.counted = self.counted.saturating_add(more.counted);
        self.variance = self.variance.saturating_add(more.variance);
        self.common = self.common.saturating_add(more.common);
    }

    /// `k`: one in so many accesses was counted, as a mean over the accesses; 1 if every one was.
    #[must_use]
    pub fn one_in(&self) -> f64 {
        if self.variance == 0 || self.counted == 0 {
            return 1.0;
        }
        1.0 + self.variance as f64 / self.counted as f64
    }

    /// The part of the relative standard error that all counts share: it changes no ranking.
    #[must_use]
    pub fn common_error(&self) -> f64 {
        (self.common as f64).sqrt() / self.counted.max(1) as f64
    }

    /// The relative standard error of a count: 0 if every access was counted.
    #[must_use]
    pub fn relative_error(&self, count: u64) -> f64 {
        relative_error(self.one_in(), count).hypot(self.common_error())
    }
}

/// The relative standard error of a count, where one in `one_in` accesses was counted, each by a choice
/// of its own; 0 where every one was.
#[must_use]
pub fn relative_error(one_in: f64, count: u64) -> f64 {
    ((one_in - 1.0).max(0.0) / count.max(1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use workloads::Numbers;

    use super::*;

    #[test]
    fn the_options_tell_shares() {
        assert_eq!(Sampling::at_most_percent(1.0).budget(), Some(0.01));
        assert_eq!(Sampling::at_most_percent(100.0), Sampling::All);
        assert_eq!(Sampling::OneIn(3).budget(), None);
    }

    proptest! {
        /// The mean of many estimates is the number of accesses, and their spread is the stated error,
        /// also where the weight changes in the middle.
        #[test]
        fn estimates_are_unbiased(first in 1_u32..40, second in 1_u32..40, seed in 0_u64..1000) {
            const ACCESSES: u32 = 400;
            const ROUNDS: u32 = 400;
            let mut numbers = Numbers::new(seed);
            let (mut sum, mut squares, mut stated) = (0.0, 0.0, 0.0);
            for _ in 0..ROUNDS {
                let mut sampled = Sampled::default();
                for access in 0..ACCESSES {
                    let k = if access < ACCESSES / 2 { first } else { second };
                    let weight = u64::from(k);
                    if numbers.below(weight) == 0 {
                        sampled.add(Sampled {
                            counted: weight,
                            variance: weight * (weight - 1),
                            common: 0,
                        });
                    }
                }
                let estimate = sampled.counted as f64;
                sum += estimate;
                squares += (estimate - f64::from(ACCESSES)).powi(2);
                stated += sampled.variance as f64;
            }
            let rounds = f64::from(ROUNDS);
            let (mean, variance, stated) = (sum / rounds, squares / rounds, stated / rounds);
            let error = (variance / rounds).sqrt();
            prop_assert!((mean - f64::from(ACCESSES)).abs() <= 5.0 * error + 1e-9, "{mean} ± {error}");
            prop_assert!((variance - stated).abs() <= 0.5 * stated + 1e-9, "{variance}, {stated}");
        }

        #[test]
        fn the_time_that_was_spent_adds_up(programs in 0_u64..9000, collector in 0_u64..9000) {
            let mut spent = Spent::default();
            prop_assert_eq!(spent.percent(Duration::from_secs(1)), None);
            for _ in 0..2 {
                spent.add(Spent {
                    programs: Some(Duration::from_micros(programs)),
                    collector: Duration::from_micros(collector),
                });
            }
            let percent = spent.percent(Duration::from_secs(2)).unwrap();
            prop_assert!((percent - (programs + collector) as f64 / 1e4).abs() < 1e-9);
        }

        #[test]
        fn k_means_what_it_says(k in 1_u64..5000, chosen in 1_u64..5000) {
            let sampled = Sampled {
                counted: k * chosen,
                variance: k * (k - 1) * chosen,
                common: 0,
            };
            prop_assert!((sampled.one_in() - k as f64).abs() < 1e-6 * k as f64);
            let expected = ((k - 1) as f64 / (k * chosen) as f64).sqrt();
            let error = sampled.relative_error(sampled.counted);
            prop_assert!((error - expected).abs() < 1e-6);
        }
    }
}
