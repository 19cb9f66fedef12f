//! How late answers were: counted in buckets, reported as percentiles.

use std::{
    str::FromStr,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use serde::Serialize;
use units::Nanos;

/// Buckets for each doubling: a bucket is at most 1/32 (3 %) wide.
const STEPS: u64 = 32;
const STEP_BITS: u32 = STEPS.trailing_zeros();
/// Up to 2⁴⁰ ns, 18 minutes; later answers count in the last one.
const BUCKETS: usize = (STEPS * (40 - STEP_BITS as u64 + 1)) as usize;

/// Counts how late answers were. Shared by threads; counting is one atomic addition.
#[derive(Debug)]
pub struct Lateness {
    buckets: Vec<AtomicU64>,
    worst_ns: AtomicU64,
}

impl Default for Lateness {
    fn default() -> Self {
        Self::new()
    }
}

impl Lateness {
    /// No answers yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
            worst_ns: AtomicU64::new(0),
        }
    }

    /// Count an answer that was late by `late_ns`.
    pub fn count(&self, late_ns: u64) {
        self.buckets[bucket(late_ns)].fetch_add(1, Ordering::Relaxed);
        self.worst_ns.fetch_max(late_ns, Ordering::Relaxed);
    }

    /// Forget all answers so far.
    pub fn restart(&self) {
        for bucket in &self.buckets {
            bucket.store(0, Ordering::Relaxed);
        }
        self.worst_ns.store(0, Ordering::Relaxed);
    }

    /// The percentiles.
    #[must_use]
    pub fn report(&self) -> LatenessReport {
        let counts: Vec<u64> = self
            .buckets
            .iter()
            .map(|bucket| bucket.load(Ordering::Relaxed))
            .collect();
        let worst = self.worst_ns.load(Ordering::Relaxed);
        let at = |percentile| quantile(&counts, percentile).min(worst);
        LatenessReport {
            answers: counts.iter().sum(),
            p50_ns: Nanos(at(50.0)),
            p90_ns: Nanos(at(90.0)),
            p99_ns: Nanos(at(99.0)),
            p999_ns: Nanos(at(99.9)),
            worst_ns: Nanos(worst),
        }
    }

    /// Check the answers so far against the limit: `Err` holds how late they really were.
    ///
    /// # Errors
    ///
    /// The percentile of the answers was later than allowed.
    pub fn check(&self, limit: &LatenessLimit) -> Result<(), Nanos> {
        let counts: Vec<u64> = self
            .buckets
            .iter()
            .map(|bucket| bucket.load(Ordering::Relaxed))
            .collect();
        let worst = self.worst_ns.load(Ordering::Relaxed);
        let late = Nanos(quantile(&counts, limit.percentile).min(worst));
        if late > limit.at_most_ns {
            Err(late)
        } else {
            Ok(())
        }
    }
}

/// How late answers were, in real time: from the model's (stretched) deadline until the answer had
/// been handed to the kernel. Percentiles are upper bounds, at most 3 % too high.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LatenessReport {
    /// Answers that had a deadline.
    pub answers: u64,
    /// Half of them were later than this.
    pub p50_ns: Nanos,
    /// One in ten was later than this.
    pub p90_ns: Nanos,
    /// One in a hundred was later than this.
    pub p99_ns: Nanos,
    /// One in a thousand was later than this.
    pub p999_ns: Nanos,
    /// The latest one.
    pub worst_ns: Nanos,
}

impl std::fmt::Display for LatenessReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.answers == 0 {
            return f.write_str("no answers had a deadline");
        }
        write!(
            f,
            "{} answers; late by {} (median), {} (p90), {} (p99), {} (p99.9), {} (worst)",
            self.answers, self.p50_ns, self.p90_ns, self.p99_ns, self.p999_ns, self.worst_ns
        )
    }
}

/// How late answers may be before a run counts as failed: `100us`, or `100us@p99.9`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatenessLimit {
    /// This percentile of the answers …
    pub percentile: f64,
    /// … may be this late in real time.
    pub at_most_ns: Nanos,
}

/// A limit that could not be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no limit of lateness; write a time and if need be a percentile, like 100us or 1ms@p99.9"
)]
pub struct ParseLimitError(String);

impl FromStr for LatenessLimit {
    type Err = ParseLimitError;

    fn from_str(text: &str) -> Result<Self, ParseLimitError> {
        let fail = || ParseLimitError(text.to_owned());
        let (time, percentile) = match text.split_once("@p") {
            None => (text, 99.0),
            Some((time, percentile)) => (time, percentile.parse::<f64>().map_err(|_| fail())?),
        };
        if !(percentile > 0.0 && percentile <= 100.0) {
            return Err(fail());
        }
        Ok(Self {
            percentile,
            at_most_ns: parse_time(time).ok_or_else(fail)?.into(),
        })
    }
}

/// `17us`, `1.5ms`, `250 ns`, `2s`.
fn parse_time(text: &str) -> Option<Duration> {
    let text = text.trim();
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
    let (number, unit) = text.split_at(split);
    let factor = match unit.trim() {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * factor).ok()
}

/// The bucket of a value: exact below [`STEPS`], then [`STEPS`] buckets to each doubling.
fn bucket(value: u64) -> usize {
    if value < STEPS {
        return value as usize;
    }
    let doubling = value.ilog2() - STEP_BITS;
    let index = (u64::from(doubling) + 1) * STEPS + (value >> doubling) - STEPS;
    (index as usize).min(BUCKETS - 1)
}

/// The largest value of a bucket.
fn upper_end(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < STEPS {
        return bucket;
    }
    let doubling = bucket / STEPS - 1;
    ((bucket % STEPS + STEPS + 1) << doubling) - 1
}

fn quantile(counts: &[u64], percentile: f64) -> u64 {
    let total: u64 = counts.iter().sum();
    let wanted = ((total as f64 * percentile / 100.0).ceil() as u64).max(1);
    let mut seen = 0;
    for (bucket, count) in counts.iter().enumerate() {
        seen += count;
        if seen >= wanted {
            return upper_end(bucket);
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn percentiles_and_limits() {
        let lateness = Lateness::new();
        assert_eq!(lateness.report().to_string(), "no answers had a deadline");
        (1..=1000).for_each(|late| lateness.count(late * 1000));
        let report = lateness.report();
        assert_eq!((report.answers, report.worst_ns), (1000, Nanos(1_000_000)));
        for (told, exact) in [
            (report.p50_ns, 500_000),
            (report.p90_ns, 900_000),
            (report.p99_ns, 990_000),
        ] {
            assert!((exact..=exact * 103 / 100).contains(&told.get()), "{told}");
        }
        let check = |limit: &str| lateness.check(&limit.parse().unwrap());
        assert_eq!(check("1ms@p100"), Ok(()));
        assert_eq!(check("1.1ms"), Ok(()));
        assert!(check("900us").is_err());
        assert_eq!(check("910us@p50"), Ok(()));
    }

    #[test]
    fn nonsense_is_no_limit() {
        for text in [
            "", "10", "ms", "-1us", "1us@p0", "1us@p101", "1us@", "1 parsec",
        ] {
            assert!(text.parse::<LatenessLimit>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn buckets_hold_their_values(value in 0u64..1 << 40) {
            let bucket = bucket(value);
            prop_assert!(value <= upper_end(bucket));
            prop_assert!(bucket == 0 || value > upper_end(bucket - 1));
            prop_assert!(upper_end(bucket) - value <= value / STEPS);
        }

        #[test]
        fn nothing_is_too_late_to_count(value: u64) {
            prop_assert!(bucket(value) < BUCKETS);
        }
    }
}
