//! Reads of ranges of one file, chosen by Zipf's law, the same every time.

use crate::Numbers;

/// The distribution of the reads.
#[derive(Clone, Copy, Debug)]
pub struct Zipf {
    /// The range of rank `k` is read in proportion to `1 / k^skew`; 0 for all alike.
    pub skew: f64,
    /// Ranges of the file.
    pub ranges: u64,
    /// Number of reads.
    pub reads: u64,
    /// Any.
    pub seed: u64,
}

impl Zipf {
    /// The reads in order: numbers of ranges. Ranks are scattered over the file, so that hot
    /// ranges do not lie together.
    #[must_use]
    pub fn sequence(&self) -> Vec<u32> {
        let mut numbers = Numbers::new(self.seed);
        let mut places: Vec<u32> = (0..self.ranges as u32).collect();
        numbers.shuffle(&mut places);
        let mut sum = 0.0;
        let cumulative: Vec<f64> = (1..=self.ranges)
            .map(|rank| {
                sum += (rank as f64).powf(-self.skew);
                sum
            })
            .collect();
        let mut pick = || {
            let wanted = numbers.fraction() * sum;
            let rank = cumulative.partition_point(|upto| *upto <= wanted);
            places[rank.min(places.len() - 1)]
        };
        (0..self.reads).map(|_| pick()).collect()
    }

    /// The number of times that each range is read by `sequence`.
    #[must_use]
    pub fn counts(&self, sequence: &[u32]) -> Vec<u64> {
        let mut counts = vec![0; self.ranges as usize];
        for range in sequence {
            counts[*range as usize] += 1;
        }
        counts
    }

    /// A sample that stands for all reads: of the reads ordered by the heat of their range, every
    /// n-th. So a part of the time shows the time of all.
    #[must_use]
    pub fn sample(&self, sequence: &[u32], wanted: usize) -> Vec<u32> {
        let counts = self.counts(sequence);
        let mut ordered = sequence.to_vec();
        ordered.sort_unstable_by_key(|range| (counts[*range as usize], *range));
        let wanted = wanted.clamp(1, ordered.len());
        let mut sample: Vec<u32> = (0..wanted)
            .map(|i| ordered[(2 * i + 1) * ordered.len() / (2 * wanted)])
            .collect();
        Numbers::new(!self.seed).shuffle(&mut sample);
        sample
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(skew: f64) -> Zipf {
        Zipf {
            skew,
            ranges: 1000,
            reads: 20_000,
            seed: 3,
        }
    }

    #[test]
    fn it_is_zipfs_law_and_the_same_every_time() {
        let hot = workload(1.2);
        let sequence = hot.sequence();
        assert_eq!(sequence, hot.sequence());
        let mut counts = hot.counts(&sequence);
        assert_eq!(counts.iter().sum::<u64>(), 20_000);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let sum: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-1.2)).sum();
        for rank in [1u32, 2, 10] {
            let expected = 20_000.0 * f64::from(rank).powf(-1.2) / sum;
            let found = counts[rank as usize - 1] as f64;
            assert!(
                (found / expected - 1.0).abs() < 0.15,
                "{rank}: {found} {expected}"
            );
        }
        let flat = workload(0.0);
        let counts = flat.counts(&flat.sequence());
        assert!(counts.iter().all(|count| (3..60).contains(count)));
    }

    #[test]
    fn a_sample_stands_for_all_reads() {
        for skew in [0.0, 0.8, 1.4] {
            let workload = workload(skew);
            let sequence = workload.sequence();
            let counts = workload.counts(&sequence);
            let sample = workload.sample(&sequence, 1000);
            assert_eq!(sample.len(), 1000);
            let mut ranked: Vec<u32> = (0..1000).collect();
            ranked.sort_unstable_by_key(|range| std::cmp::Reverse(counts[*range as usize]));
            for top in [10, 100, 400] {
                let is_top = |range: &&u32| ranked[..top].contains(range);
                let share =
                    |reads: &[u32]| reads.iter().filter(is_top).count() as f64 / reads.len() as f64;
                let (all, some) = (share(&sequence), share(&sample));
                assert!((all - some).abs() < 0.005, "{skew} {top}: {all} {some}");
            }
        }
    }
}
