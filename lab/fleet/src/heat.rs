//! What a service knows of reads: traced, and kept as a profile keeps it.
//!
//! A profile's counts are halved every week; here they are kept as of the first day, as the store does
//! (`indef_trace::store`), and its own function turns them into what a plan gets.

use std::{collections::BTreeMap, time::Duration};

use indef_core::access::{AccessRange, Observed};
use indef_pipeline::tend::PARTS;
use indef_trace::store::{DEFAULT_HALF_LIFE, counted_in_parts};
use lfs_sim::{BLOCK, FileId, volume::Volume};
use units::{FileRange, Nanos};
use workloads::Numbers;

use crate::reads::Window;

/// The counts of a range as of the first day: reads, writes, requests, timed reads, their time, requests ahead.
type Counts = [f64; 6];

/// A profile.
#[derive(Clone, Debug, Default)]
pub struct Heat {
    ranges: BTreeMap<(FileId, u32), (u32, Counts)>,
    /// Beginning and length of each trace.
    traces: Vec<(Duration, Duration)>,
}

/// The half-life of heat where nobody sets another.
pub const HALF_LIFE: Duration = DEFAULT_HALF_LIFE;

/// The worth of a count of this time as of the first day.
fn weight(time: Duration) -> f64 {
    (time.as_secs_f64() / HALF_LIFE.as_secs_f64()).exp2()
}

impl Heat {
    /// A trace begins, of this length.
    pub fn trace(&mut self, at: Duration, len: Duration) {
        self.traces.push((at, len));
        // What is forgotten weighs nothing any more.
        let begin = at.saturating_sub(HALF_LIFE * 20);
        self.traces.retain(|(at, _)| *at >= begin);
    }

    /// A read that was seen: its time, and its requests.
    pub fn add(&mut self, window: &Window, at: Duration, time: Nanos, requests: u64) {
        let weight = weight(at);
        let len = window.blocks.end - window.blocks.start;
        let key = (window.file, window.blocks.start);
        let (_, counts) = self.ranges.entry(key).or_insert((len, Counts::default()));
        let [reads, _, sum, timed, took, _] = counts;
        *reads += weight;
        *sum += weight * requests as f64;
        *timed += weight;
        *took += weight * time.0 as f64;
    }

    /// Traces by now: the time of each, and how long ago it ended.
    pub fn traces(&self, now: Duration) -> impl Iterator<Item = (Duration, Duration)> + '_ {
        let ago = move |(at, len): &(Duration, Duration)| (*len, now.saturating_sub(*at + *len));
        self.traces.iter().map(ago)
    }

    /// The same of those that began since a moment.
    pub fn traces_since(
        &self,
        since: Duration,
        now: Duration,
    ) -> impl Iterator<Item = (Duration, Duration)> + '_ {
        let begun = self.traces.partition_point(|(at, _)| *at < since);
        let ago = move |(at, len): &(Duration, Duration)| (*len, now.saturating_sub(*at + *len));
        self.traces[begun..].iter().map(ago)
    }

    /// The times of reads of these ranges are those of a layout that is gone.
    pub fn forget_times<'a>(&mut self, file: FileId, moved: impl Iterator<Item = &'a FileRange>) {
        for gone in moved {
            let ranges = self.ranges.range_mut((file, 0)..=(file, u32::MAX));
            for ((_, start), (len, counts)) in ranges {
                if bytes_of(*start, *len).overlaps(*gone) {
                    [counts[3], counts[4]] = [0.0, 0.0];
                }
            }
        }
    }

    /// The ranges of files that are there, as the service gets them, reads in parts ([`PARTS`]); what is gone or forgotten is
    /// dropped.
    pub fn accesses(
        &mut self,
        now: Duration,
        volume: &Volume,
    ) -> BTreeMap<FileId, Vec<AccessRange>> {
        let left = 1.0 / weight(now);
        let mut files: BTreeMap<FileId, Vec<AccessRange>> = BTreeMap::new();
        self.ranges.retain(|(file, start), (len, counts)| {
            if !volume.files().has(*file) {
                return false;
            }
            let range = bytes_of(*start, *len);
            let counts = counts.map(|count| count * left);
            let Some(access) = counted_in_parts(range, counts, PARTS) else {
                return false;
            };
            files.entry(*file).or_default().push(access);
            true
        });
        files
    }
}

/// Every read is known: so many days of them.
#[must_use]
pub fn told(windows: &[(Window, Nanos, u64)], days: f64) -> BTreeMap<FileId, Vec<AccessRange>> {
    let mut files: BTreeMap<FileId, Vec<AccessRange>> = BTreeMap::new();
    for (window, time, requests) in windows {
        let reads = (window.rate * days).round() as u64;
        if reads == 0 {
            continue;
        }
        let len = window.blocks.end - window.blocks.start;
        let access = AccessRange {
            range: bytes_of(window.blocks.start, len),
            reads: reads * PARTS,
            writes: 0,
            observed: Observed {
                requests: requests * reads * PARTS,
                timed: reads,
                time: Nanos(time.0 * reads),
                ahead: Some(0),
            },
        };
        files.entry(window.file).or_default().push(access);
    }
    files
}

fn bytes_of(start: u32, len: u32) -> FileRange {
    FileRange::new(u64::from(start) * BLOCK.0, u64::from(len) * BLOCK.0)
}

/// Windows to draw reads from.
#[derive(Clone, Debug, Default)]
pub struct Draw {
    windows: Vec<Window>,
    /// Rates up to and with each window.
    sums: Vec<f64>,
}

impl Draw {
    /// From these.
    #[must_use]
    pub fn of(windows: Vec<Window>) -> Self {
        let mut sum = 0.0;
        let sums = windows.iter().map(|window| {
            sum += window.rate;
            sum
        });
        Self {
            sums: sums.collect(),
            windows,
        }
    }

    /// All of them.
    #[must_use]
    pub fn windows(&self) -> &[Window] {
        &self.windows
    }

    /// Reads a day of all.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.sums.last().copied().unwrap_or(0.0)
    }

    /// The reads of a time, each at random: times between two are exponential.
    pub fn reads(&self, days: f64, numbers: &mut Numbers) -> Vec<&Window> {
        let (rate, mut at, mut drawn) = (self.rate(), 0.0, Vec::new());
        if rate <= 0.0 {
            return drawn;
        }
        loop {
            at -= (1.0 - numbers.fraction()).ln() / rate;
            if at > days {
                return drawn;
            }
            let wanted = numbers.fraction() * rate;
            let index = self.sums.partition_point(|upto| *upto <= wanted);
            drawn.push(&self.windows[index.min(self.windows.len() - 1)]);
        }
    }

    /// At most so many windows that stand for all: every n-th read of a day, with the rate that each stands for.
    #[must_use]
    pub fn sample(&self, most: usize) -> Vec<Window> {
        let rate = self.rate();
        if self.windows.len() <= most || rate <= 0.0 {
            return self.windows.clone();
        }
        let step = rate / most as f64;
        let mut sample: Vec<Window> = Vec::new();
        for number in 0..most {
            let wanted = (number as f64 + 0.5) * step;
            let index = self.sums.partition_point(|upto| *upto <= wanted);
            let window = &self.windows[index.min(self.windows.len() - 1)];
            match sample.last_mut() {
                Some(last) if last.file == window.file && last.blocks == window.blocks => {
                    last.rate += step;
                }
                _ => sample.push(Window {
                    rate: step,
                    ..window.clone()
                }),
            }
        }
        sample
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(rates: &[f64]) -> Vec<Window> {
        let window = |(at, rate): (usize, &f64)| Window {
            file: FileId(at as u32),
            blocks: 0..32,
            rate: *rate,
        };
        rates.iter().enumerate().map(window).collect()
    }

    #[test]
    fn reads_come_at_their_rates() {
        let draw = Draw::of(windows(&[1.0, 0.0, 9.0]));
        let mut numbers = Numbers::new(3);
        let reads = draw.reads(1000.0, &mut numbers);
        let of = |file| {
            reads
                .iter()
                .filter(|read| read.file == FileId(file))
                .count()
        };
        assert_eq!(of(1), 0);
        assert!((800..1200).contains(&of(0)) && (8_500..9_500).contains(&of(2)));
        assert!(Draw::default().reads(10.0, &mut numbers).is_empty());
    }

    #[test]
    fn a_sample_has_the_rate_of_all() {
        let rates: Vec<f64> = (1..=100).map(|rank| 1.0 / f64::from(rank)).collect();
        let draw = Draw::of(windows(&rates));
        let sample = draw.sample(20);
        assert!(sample.len() <= 20);
        let sum: f64 = sample.iter().map(|window| window.rate).sum();
        assert!((sum / draw.rate() - 1.0).abs() < 1e-9);
        assert_eq!(draw.sample(200), draw.windows);
    }

    #[test]
    fn counts_fade_as_in_a_profile() {
        let mut volume = Volume::from(lfs_sim::volume::InPlaceVolume::new(64, 64, false));
        let file = volume.create();
        let window = Window {
            file,
            blocks: 0..32,
            rate: 1.0,
        };
        let mut heat = Heat::default();
        heat.trace(Duration::ZERO, Duration::from_secs(600));
        for _ in 0..8 {
            heat.add(&window, Duration::ZERO, Nanos(100), 3);
        }
        let reads = |heat: &mut Heat, weeks: u32| {
            let accesses = heat.accesses(HALF_LIFE * weeks, &volume);
            accesses
                .get(&file)
                .map(|ranges| (ranges[0].reads, ranges[0].observed.time.0))
        };
        assert_eq!(reads(&mut heat, 0), Some((8 * PARTS, 800)));
        assert_eq!(reads(&mut heat, 1), Some((4 * PARTS, 400)));
        // A fraction of a read counts as that.
        let faded = heat.accesses(HALF_LIFE * 6, &volume);
        assert_eq!(faded[&file][0].reads, PARTS / 8);
        let moved = FileRange::new(64 << 10, 4096);
        heat.forget_times(file, [moved].iter());
        assert_eq!(reads(&mut heat, 0), Some((8 * PARTS, 0)));
        assert_eq!(reads(&mut heat, 20), None);
        assert_eq!(reads(&mut heat, 0), None);
    }
}
