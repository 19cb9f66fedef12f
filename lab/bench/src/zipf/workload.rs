//! A known sequence of reads: ranges of one file, chosen by Zipf's law, the same every time.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use rustix::fs::OFlags;
use scratch_fs::AlignedBuffer;
use units::Bytes;
use workloads::Numbers;

/// Bytes of one read.
pub(super) const READ: Bytes = Bytes::kib(128);

/// The distribution of the reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    /// The range of rank `k` is read in proportion to `1 / k^skew`; 0 for all alike.
    pub(crate) skew: f64,
    /// Ranges of [`READ`] bytes in the file.
    pub(crate) ranges: u64,
    /// Number of reads.
    pub(crate) reads: u64,
    pub(crate) seed: u64,
}

impl Workload {
    /// The reads in order: numbers of ranges. Ranks are scattered over the file, so that hot
    /// ranges do not lie together.
    pub(crate) fn sequence(&self) -> Vec<u32> {
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
    pub(super) fn counts(&self, sequence: &[u32]) -> Vec<u64> {
        let mut counts = vec![0; self.ranges as usize];
        for range in sequence {
            counts[*range as usize] += 1;
        }
        counts
    }

    /// A sample that stands for all reads: of the reads ordered by the heat of their range, every
    /// n-th. So a part of the time shows the time of all.
    pub(super) fn sample(&self, sequence: &[u32], wanted: usize) -> Vec<u32> {
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

/// Reads ranges of a file, bypassing every cache of the system.
pub(super) struct DirectReader {
    file: File,
    buffer: AlignedBuffer,
}

impl DirectReader {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(OFlags::DIRECT.bits() as i32)
            .open(path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        Ok(Self {
            file,
            buffer: AlignedBuffer::new(READ.get() as usize),
        })
    }

    /// Read a range. Returns the time that it took.
    pub(super) fn read(&mut self, range: u32) -> Result<Duration> {
        let offset = u64::from(range) * READ.get();
        let started = Instant::now();
        self.file.read_exact_at(self.buffer.slice(), offset)?;
        Ok(started.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(skew: f64) -> Workload {
        Workload {
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
