//! How far a prediction of a plan is to be believed, by what became of earlier ones.
//!
//! ```text
//! saving of a move = saved a day × given × days        days = life · (1 − e^(−horizon ÷ life))
//! ```
//!
//! - **Life** ([`Lasting`]). Joints of read ranges are looked at again and again. Each is as likely to be lost on one day as on
//!   another, so the days that a layout is expected to last are the joint-days that were watched ÷ the joints that were lost. Within
//!   the horizon it serves `days`: all of it where layouts last, a life where they do not.
//! - **Given** ([`Given`]). Of the ranges that were moved, what reads have saved since ÷ what had been foretold.
//!
//! - **Reads** ([`Credibility`]). A range that was seen to be read once in a short trace is most likely one of many that are read
//!   seldom, of which chance showed this one. Its rate is estimated between its own count and the mean of all ranges, those that
//!   were not seen included; these are known however few were seen, so the first trace is no exception.
//!
//! Life and given begin with a belief that is worth little evidence, so that a few observations neither stop nor start anything: that a layout
//! lasts as long as the horizon, with the weight of one file that was spoilt once; and that moves give what is foretold, with the
//! weight of [`PRIOR_READS`] reads. This is the mean of the posterior of a rate with a Gamma prior (Gelman et al. 2013, *Bayesian
//! Data Analysis*, §2.6), where the evidence of all files is the prior of each.

use serde::{Deserialize, Serialize};
use units::Bytes;

use super::FilePlan;

/// How far the count of a single range is to be believed, by those of all ranges: the best linear estimate of its rate (Bühlmann
/// 1967, *Experience Rating and Credibility*, §2), as in [`crate::access`], but over all files, and with the ranges that were not
/// read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Credibility {
    mean: f64,
    own: f64,
}

impl Credibility {
    /// Counts are believed as they are.
    pub const FULL: Self = Self {
        mean: 0.0,
        own: 1.0,
    };

    /// By the reads of these ranges, where the variance of a count is so many times the count.
    #[must_use]
    pub fn of(counts: &Counts, noise: f64) -> Self {
        let ranges = counts.all();
        if ranges <= 0.0 {
            return Self::FULL;
        }
        let mean = counts.reads / ranges;
        let variance = counts.squares / ranges - mean * mean;
        if !(mean > 0.0 && variance > 0.0 && noise >= 0.0) {
            return Self::FULL;
        }
        Self {
            mean,
            own: (1.0 - noise * mean / variance).max(0.0),
        }
    }

    /// What the reads of a range are estimated to be, as a part of those that were counted.
    #[must_use]
    pub fn part(&self, reads: u64) -> f64 {
        let reads = reads as f64;
        match reads > 0.0 {
            true => (self.mean + self.own * (reads - self.mean)) / reads,
            false => 0.0,
        }
    }
}

/// The counts of the reads of all ranges.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// Ranges that were read, their bytes, reads, and the sum of the squares of these.
    ranges: f64,
    bytes: f64,
    reads: f64,
    squares: f64,
    /// Bytes of all files.
    of_files: f64,
}

impl Counts {
    /// Add a file, read or not.
    pub fn add(&mut self, file: &FilePlan) {
        self.of_files += file.size.get() as f64;
        for chunk in file.chunks.iter().filter(|chunk| chunk.reads > 0) {
            let reads = chunk.reads as f64;
            self.ranges += 1.0;
            self.bytes += chunk.range.len.get() as f64;
            self.reads += reads;
            self.squares += reads * reads;
        }
    }

    /// Add files that were not read.
    pub fn add_unread(&mut self, bytes: Bytes) {
        self.of_files += bytes.get() as f64;
    }

    /// Ranges of all files, were they all as long as those that were read.
    fn all(&self) -> f64 {
        (self.of_files / self.bytes.max(1.0) * self.ranges).max(self.ranges)
    }
}

/// Reads that had been foretold at which what came of them counts as much as the belief that all comes as foretold: as many as
/// ranges that a calibration needs.
pub const PRIOR_READS: f64 = crate::calibrate::FEWEST_RANGES as f64;

/// Evidence of how long layouts last, in files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lasting {
    /// Files whose joints were lost; a part where some were.
    spoilt: f64,
    /// Days for which files were watched.
    days: f64,
}

impl Lasting {
    /// A file was looked at again after so many days, and had lost this part of its joints. What is lost was there for half of
    /// the time.
    pub fn add(&mut self, days: f64, lost: f64) {
        let lost = lost.clamp(0.0, 1.0);
        self.spoilt += lost;
        self.days += days.max(0.0) * (1.0 - lost / 2.0);
    }

    /// Older evidence is worth this part from now on.
    pub fn fade(&mut self, factor: f64) {
        self.spoilt *= factor;
        self.days *= factor;
    }

    /// The evidence of both.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            spoilt: self.spoilt + other.spoilt,
            days: self.days + other.days,
        }
    }

    /// The days that a layout is expected to last, where `before` is believed without this evidence.
    #[must_use]
    pub fn life_days(&self, before: f64) -> f64 {
        (self.days + before) / (self.spoilt + 1.0)
    }

    /// Whether nothing was watched yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.days <= 0.0 && self.spoilt <= 0.0
    }
}

/// The days of a horizon for which a layout serves that lasts so long on average.
#[must_use]
pub fn serves_days(life_days: f64, horizon_days: f64) -> f64 {
    if life_days.is_nan() || life_days <= 0.0 || horizon_days <= 0.0 {
        return 0.0;
    }
    let lives = horizon_days / life_days;
    // 1 − e^−x loses its digits where x is small, and there it is x.
    match lives < 1e-9 {
        true => horizon_days,
        false => -life_days * (-lives).exp_m1(),
    }
}

/// Evidence of what moves gave, in time of reads or any other quantity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Given {
    /// Reads of moved ranges that had been foretold for the time since.
    pub reads: f64,
    /// What these were to save.
    pub foretold: f64,
    /// What reads have saved.
    pub saved: f64,
}

impl Given {
    /// The evidence of both.
    pub fn add(&mut self, other: &Self) {
        self.reads += other.reads;
        self.foretold += other.foretold;
        self.saved += other.saved;
    }

    /// Older evidence is worth this part from now on.
    pub fn fade(&mut self, factor: f64) {
        self.reads *= factor;
        self.foretold *= factor;
        self.saved *= factor;
    }

    /// The part of what is foretold that moves are expected to give; 0 where they made reads slower.
    #[must_use]
    pub fn part(&self) -> f64 {
        let known = self.foretold > 0.0 && self.saved.is_finite();
        let kept = if known {
            self.saved / self.foretold
        } else {
            1.0
        };
        let part = (kept * self.reads + PRIOR_READS) / (self.reads + PRIOR_READS);
        if part.is_finite() { part.max(0.0) } else { 1.0 }
    }

    /// Whether it counts at least as much as the belief without it.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.reads >= PRIOR_READS
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_life_is_what_was_watched_by_what_was_lost() {
        let mut files = Lasting::default();
        // Without evidence: what was believed before.
        assert_eq!(files.life_days(30.0), 30.0);
        // Of 100 files, each looked at again after a day, two are gone each day.
        for _ in 0..50 {
            (0..98).for_each(|_| files.add(1.0, 0.0));
            (0..2).for_each(|_| files.add(1.0, 1.0));
        }
        let life = files.life_days(30.0);
        assert!((life - 50.0).abs() < 1.0, "{life}");
        // Half of the joints of one file are as much as all joints of half a file.
        let (mut half, mut whole) = (Lasting::default(), Lasting::default());
        (0..2).for_each(|_| half.add(2.0, 0.5));
        (0..2).for_each(|lost| whole.add(2.0, f64::from(lost)));
        assert_eq!(half, whole);
        // Older evidence makes way for the belief.
        files.fade(0.0);
        assert_eq!((files.life_days(30.0), files.is_empty()), (30.0, true));
    }

    #[test]
    fn a_file_that_is_unlike_the_others_is_told_in_time() {
        let others = 2.0;
        let mut quiet = Lasting::default();
        assert_eq!(quiet.life_days(others), others);
        quiet.add(60.0, 0.0);
        assert_eq!(quiet.life_days(others), 62.0);
    }

    #[test]
    fn a_layout_serves_no_longer_than_it_lasts_nor_than_the_horizon() {
        assert_eq!(serves_days(f64::INFINITY, 30.0), 30.0);
        assert!((serves_days(30.0, 30.0) - 30.0 * (1.0 - (-1f64).exp())).abs() < 1e-9);
        assert!((serves_days(1.0, 30.0) - 1.0).abs() < 1e-9);
        for nothing in [0.0, -1.0, f64::NAN] {
            assert_eq!(serves_days(nothing, 30.0), 0.0);
        }
        assert_eq!(serves_days(5.0, 0.0), 0.0);
    }

    /// So many ranges of 128 KiB, of which these were read so often.
    fn counts(ranges: u64, read: &[u64]) -> Counts {
        Counts {
            ranges: read.len() as f64,
            bytes: (read.len() << 17) as f64,
            reads: read.iter().map(|reads| *reads as f64).sum(),
            squares: read.iter().map(|reads| (*reads as f64).powi(2)).sum(),
            of_files: (ranges << 17) as f64,
        }
    }

    /// However few ranges a trace showed: of the others it is known that they were not read.
    #[test]
    fn what_was_read_once_is_one_of_many_that_are_read_seldom() {
        for read in [&[1][..], &[1; 3], &[1; 15], &[1; 16], &[1; 40]] {
            let seen = counts(1000, read);
            let (part, mean) = (
                Credibility::of(&seen, 1.0).part(1),
                read.len() as f64 / 1000.0,
            );
            assert!((part - mean).abs() < 1e-3 + 0.1 * mean, "{part} {mean}");
        }
        // A hot one among them stays hot.
        let hot = Credibility::of(&counts(1000, &[60, 1, 1]), 1.0);
        assert!(hot.part(60) > 0.9, "{hot:?}");
        // All that there is was read as often: that is its rate.
        assert_eq!(Credibility::of(&counts(1, &[5]), 1.0).part(5), 1.0);
        assert_eq!(Credibility::of(&Counts::default(), 1.0), Credibility::FULL);
    }

    #[test]
    fn what_moves_gave_is_believed_by_its_weight() {
        let given = |reads, saved| Given {
            reads,
            foretold: 10.0,
            saved,
        };
        assert_eq!(Given::default().part(), 1.0);
        assert_eq!(given(PRIOR_READS, 0.0).part(), 0.5);
        assert!((given(1e9, 2.0).part() - 0.2).abs() < 1e-6);
        assert!((given(1e12, 30.0).part() - 3.0).abs() < 1e-6);
        // Reads became slower: nothing is gained, however that is scaled.
        assert_eq!(given(1e6, -5.0).part(), 0.0);
        assert!(!given(PRIOR_READS / 2.0, 0.0).is_known() && given(PRIOR_READS, 0.0).is_known());
    }

    proptest! {
        #[test]
        fn beliefs_are_numbers(
            spoilt in prop::collection::vec((0.0..400.0f64, -0.5..2.0f64), 0..50),
            before in 0.0..1e4f64,
            given in (0.0..1e9f64, -1e12..1e12f64, -1e12..1e12f64),
            horizon in 0.0..400.0f64,
        ) {
            let mut lasting = Lasting::default();
            spoilt.iter().for_each(|(days, lost)| lasting.add(*days, *lost));
            let life = lasting.life_days(before);
            prop_assert!(life.is_finite() && life >= 0.0);
            let serves = serves_days(life, horizon);
            prop_assert!(serves >= 0.0 && serves <= horizon * (1.0 + 1e-9) && serves <= life * (1.0 + 1e-9));
            let (reads, foretold, saved) = given;
            let part = Given { reads, foretold, saved }.part();
            prop_assert!(part.is_finite() && part >= 0.0);
        }
    }
}
