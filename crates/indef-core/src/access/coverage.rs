//! How much of what is read a sample has seen the places of.
//!
//! A trace that counts one access in `k` misses ranges that are read less than `k` times or so. Nothing can be
//! planned there, so a plan of all ranges of the profile does not save all that there is to save. The part of the
//! reads that go to ranges never seen is estimated by the ranges that were seen once (Good 1953, *The
//! Population Frequencies of Species and the Estimation of Population Parameters*, §2; the variance is that of
//! Esty 1983, *A Normal Limit Law for a Nonparametric Estimator of the Coverage of a Random Sample*):
//!
//! ```text
//! unseen = once ÷ n      variance = (once (1 − once ÷ n) + 2 twice) ÷ n²
//! ```
//!
//! Of the reads of the trace, those that it counted went to ranges that it saw; so this is a part of the others.
//!
//! Counts stand for `k` accesses each, and `k` changes in a trace; reads that were timed were seen one by one. A range
//! whose reads were counted and not timed was seen once at least, and counts as that.

use super::AccessRange;

/// With fewer ranges nothing can be said.
const FEWEST: usize = 16;

/// The part of a file's reads that go to ranges which a sample did not see.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Unseen {
    /// Between 0 and 1.
    pub part: f64,
    /// Its variance.
    pub variance: f64,
}

impl Unseen {
    /// Of a file with these ranges, from a trace that did not count this part of the accesses.
    #[must_use]
    pub fn of(ranges: &[AccessRange], uncounted: f64) -> Self {
        let read = ranges.iter().filter(|range| range.reads > 0);
        let (mut ranges, mut once, mut twice, mut n) = (0_usize, 0.0, 0.0, 0.0);
        for range in read {
            let seen = range.observed.timed.max(1);
            ranges += 1;
            n += seen as f64;
            match seen {
                1 => once += 1.0,
                2 => twice += 1.0,
                _ => {}
            }
        }
        if ranges < FEWEST {
            return Self::default();
        }
        let part = once / n;
        Self {
            part: part * uncounted,
            variance: (once * (1.0 - part) + 2.0 * twice) / (n * n) * uncounted * uncounted,
        }
    }
}

#[cfg(test)]
mod tests {
    use units::{Bytes, FileOffset, FileRange};
    use workloads::Numbers;

    use super::*;
    use crate::access::Observed;

    fn seen(times: &[u64]) -> Vec<AccessRange> {
        let range = |(at, times): (usize, &u64)| AccessRange {
            range: FileRange {
                start: FileOffset(at as u64 * 131_072),
                len: Bytes::kib(128),
            },
            reads: 88 * times,
            observed: Observed {
                timed: *times,
                ..Observed::default()
            },
            ..AccessRange::default()
        };
        times.iter().enumerate().map(range).collect()
    }

    /// Draw from ranges of these frequencies; the part that is estimated to be unseen, its error, and the true part.
    fn drawn(frequencies: &[u64], draws: u64, numbers: &mut Numbers) -> (f64, f64, f64) {
        let all: u64 = frequencies.iter().sum();
        let mut times = vec![0; frequencies.len()];
        for _ in 0..draws {
            let mut at = numbers.below(all);
            let range = frequencies.iter().position(|frequency| {
                let here = at < *frequency;
                at = at.saturating_sub(*frequency);
                here
            });
            times[range.unwrap()] += 1;
        }
        let missed = { frequencies.iter().zip(&times) }.filter(|(_, times)| **times == 0);
        let missed: u64 = missed.map(|(frequency, _)| frequency).sum();
        let found: Vec<u64> = times.into_iter().filter(|times| *times > 0).collect();
        let unseen = Unseen::of(&seen(&found), 1.0);
        (
            unseen.part,
            unseen.variance.sqrt(),
            missed as f64 / all as f64,
        )
    }

    #[test]
    fn the_part_that_was_missed_is_estimated_whatever_the_skew() {
        for skew in [0.0, 0.5, 1.0, 1.4] {
            let frequencies: Vec<u64> = (1..=512)
                .map(|rank| (1e6 / f64::from(rank).powf(skew)) as u64)
                .collect();
            for draws in [100, 500, 2_000] {
                let (mut bias, mut outside) = (0.0, 0);
                for seed in 0..40 {
                    let (told, error, is) = drawn(&frequencies, draws, &mut Numbers::new(seed));
                    bias += (told - is) / 40.0;
                    outside += u32::from((told - is).abs() > 2.0 * error);
                }
                println!(
                    "skew {skew}, {draws} draws: off by {bias:+.3}, {outside} of 40 beyond two errors"
                );
                assert!(bias.abs() < 0.02, "{bias}");
                assert!(outside <= 6, "{outside}");
            }
        }
    }

    #[test]
    fn few_ranges_tell_nothing() {
        assert_eq!(Unseen::of(&seen(&[1; 15]), 1.0), Unseen::default());
        assert_eq!(Unseen::of(&[], 1.0), Unseen::default());
    }

    #[test]
    fn where_all_were_seen_often_nothing_is_missing() {
        assert_eq!(Unseen::of(&seen(&[9; 100]), 1.0), Unseen::default());
        assert_eq!(Unseen::of(&seen(&[1; 100]), 1.0).part, 1.0);
        assert_eq!(Unseen::of(&seen(&[1; 100]), 0.0).part, 0.0);
    }
}
