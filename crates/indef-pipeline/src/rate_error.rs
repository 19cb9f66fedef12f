//! How exact rates are, where one access in `k` is counted (`indef-trace`, "Cost" in docs/trace.md).

use std::time::Duration;

use indef_trace::collect::Sampled;

use crate::decay::Decay;

/// The error of rates of one time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RateError {
    /// The variance of a rate is so many times the rate, per second.
    single: f64,
    /// The part of the relative standard error that all rates share.
    common: f64,
}

impl RateError {
    /// That of counts over a time: a count times `per_second` is a rate. `variance` is that of their sum where
    /// each access was chosen by itself, `common` what comes to it.
    fn new(counted: f64, variance: f64, common: f64, per_second: f64) -> Self {
        let counted = counted.max(1.0);
        Self {
            single: variance / counted * per_second,
            common: common.sqrt() / counted,
        }
    }

    /// That of counts that stand for this time.
    pub(crate) fn over(sampled: &Sampled, time: Duration) -> Self {
        let of = |count: u64| count as f64;
        Self::new(
            of(sampled.counted),
            of(sampled.variance),
            of(sampled.common),
            1.0 / time.as_secs_f64(),
        )
    }

    /// Whether every access was counted.
    #[must_use]
    pub fn is_none(self) -> bool {
        self == Self::default()
    }

    /// The relative standard error of a rate per second; 0 if every access was counted.
    #[must_use]
    pub fn relative(self, rate: f64) -> f64 {
        if self.single == 0.0 {
            return self.common;
        }
        (self.single / rate).sqrt().hypot(self.common)
    }
}

/// How exact counts that fade are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FadingError {
    counted: f64,
    variance: f64,
    common: f64,
    at: Duration,
}

impl FadingError {
    /// Add what was counted until `now`.
    pub(crate) fn add(&mut self, sampled: &Sampled, decay: Decay, now: Duration) {
        let factor = decay.factor(now.saturating_sub(self.at));
        self.counted = self.counted * factor + sampled.counted as f64;
        // A count that is worth half has half the error, and a quarter of the variance.
        let square = factor * factor;
        self.variance = self.variance * square + sampled.variance as f64;
        self.common = self.common * square + sampled.common as f64;
        self.at = now;
    }

    /// The error of rates, which are the faded counts times `per_second`.
    pub(crate) fn of_rates(&self, per_second: f64) -> RateError {
        RateError::new(self.counted, self.variance, self.common, per_second)
    }
}

#[cfg(test)]
mod tests {
    use workloads::Numbers;

    use super::*;

    #[test]
    fn counts_of_windows_have_the_error_of_their_time() {
        // One in 16, 1,600 accesses in 8 s.
        let sampled = Sampled {
            counted: 1600,
            variance: 15 * 1600,
            common: 0,
        };
        let error = RateError::over(&sampled, Duration::from_secs(8));
        // 200 per second, of which 100 were counted.
        assert!((error.relative(200.0) - (15.0 / 1600.0_f64).sqrt()).abs() < 1e-9);
        // A range with a hundredth of them, of which one was.
        assert!((error.relative(2.0) - (15.0 / 16.0_f64).sqrt()).abs() < 1e-9);
        let common = Sampled {
            common: 160 * 160,
            ..sampled
        };
        let error = RateError::over(&common, Duration::from_secs(8));
        assert!((error.relative(f64::INFINITY) - 0.1).abs() < 1e-9);
    }

    #[test]
    fn every_access_is_no_error() {
        let sampled = Sampled {
            counted: 1600,
            ..Sampled::default()
        };
        let error = RateError::over(&sampled, Duration::from_secs(1));
        assert!(error.is_none());
        assert_eq!((error.relative(5.0), error.relative(0.0)), (0.0, 0.0));
        assert!(FadingError::default().of_rates(1.0).is_none());
    }

    /// Rates of counts that fade are off by the error that is told, over many seeds.
    #[test]
    fn fading_counts_are_as_exact_as_they_tell() {
        const K: u64 = 8;
        const PER_SECOND: u64 = 40;
        let decay = Decay::half_life(Duration::from_secs(5));
        let (mut squares, mut told, mut rounds) = (0.0, 0.0, 0.0);
        for seed in 0..500 {
            let mut numbers = Numbers::new(seed);
            let (mut count, mut error) = (0.0, FadingError::default());
            for second in 1..60 {
                let chosen = (0..PER_SECOND).filter(|_| numbers.below(K) == 0).count();
                let counted = K * chosen as u64;
                let sampled = Sampled {
                    counted,
                    variance: (K - 1) * counted,
                    common: 0,
                };
                let now = Duration::from_secs(second);
                count = count * decay.factor(Duration::from_secs(1)) + counted as f64;
                error.add(&sampled, decay, now);
            }
            let scale = 1.0 - decay.factor(Duration::from_secs(1));
            let rate = count * scale;
            squares += (rate / PER_SECOND as f64 - 1.0).powi(2);
            told += error.of_rates(scale).relative(PER_SECOND as f64).powi(2);
            rounds += 1.0;
        }
        let (off, told) = (f64::sqrt(squares / rounds), f64::sqrt(told / rounds));
        assert!((off / told - 1.0).abs() < 0.15, "{off} off, {told} told");
    }
}
