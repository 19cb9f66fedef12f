//! The ranges that are hottest, with counts that fade.
//!
//! Memory is bounded: of more than [`MAX_RANGES`] the colder quarter is forgotten, which for ranges
//! that are read now and then only means that their counts begin anew.

use std::{cmp::Ordering, collections::HashMap, path::Path, sync::Arc, time::Duration};

use indef_core::SkipReason;
use indef_fs::TargetId;
use indef_trace::{FileKey, Tally, TracedFile};
use units::{Bytes, FileRange};

use crate::decay::Decay;

/// Maximum number of ranges that are kept.
pub(super) const MAX_RANGES: usize = 100_000;
/// Maximum number of files whose identity is kept, beyond those that have ranges.
const MAX_FILES: usize = 64 << 10;
/// A range with less than this part of a read left is no longer hot.
const COLD: f64 = 0.01;

/// A range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RangeKey {
    /// The file.
    pub file: FileKey,
    /// The place in it.
    pub range: FileRange,
}

/// Counts of a range, as of `at`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Heat {
    pub(super) reads: f64,
    pub(super) writes: f64,
    pub(super) requests: f64,
    pub(super) timed: f64,
    pub(super) time_ns: f64,
    at: Duration,
}

impl Heat {
    fn fade(&mut self, decay: Decay, now: Duration) {
        let factor = decay.factor(now.saturating_sub(self.at));
        for count in [
            &mut self.reads,
            &mut self.writes,
            &mut self.requests,
            &mut self.timed,
            &mut self.time_ns,
        ] {
            *count *= factor;
        }
        self.at = now;
    }

    fn add(&mut self, tally: &Tally) {
        self.reads += tally.reads as f64;
        self.writes += tally.writes as f64;
        self.requests += tally.observed.requests as f64;
        self.timed += tally.observed.timed as f64;
        self.time_ns += tally.observed.time.get() as f64;
    }

    /// Its cost, by the best information about all of its reads: not all are timed, but all are
    /// counted, and mostly their requests, too.
    fn cost(&self) -> f64 {
        self.requests.max(self.reads)
    }

    /// The costly ones first.
    fn hotter(&self, other: &Self) -> Ordering {
        other.cost().total_cmp(&self.cost())
    }
}

/// The result of an examination of a range.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) at: Duration,
    /// `None`: the file is gone, was replaced, may not be read, or is not requested.
    pub(super) place: Option<RangePlace>,
}

/// The place of a range.
#[derive(Clone, Debug)]
pub(super) struct RangePlace {
    pub(super) path: Arc<Path>,
    pub(super) id: TargetId,
    /// Fragments in the range.
    pub(super) dolf: u64,
    /// Fragments of one read of it, over its requests.
    pub(super) fragments: u64,
    /// The number of those that a repair would remove.
    pub(super) extra: u64,
    /// Bytes that a repair writes at most.
    pub(super) cost: Bytes,
    /// The reason if nothing of it would be moved.
    pub(super) skip: Option<SkipReason>,
}

impl RangePlace {
    /// The share of its fragments that a repair would remove.
    pub(super) fn share(&self) -> f64 {
        self.extra as f64 / self.fragments.max(1) as f64
    }
}

/// A range that is kept.
#[derive(Clone, Debug, Default)]
pub(super) struct Hot {
    pub(super) heat: Heat,
    /// The result of the last examination, if there was one.
    pub(super) finding: Option<Finding>,
}

/// The hottest ranges of all files.
#[derive(Debug)]
pub(super) struct Ranges {
    decay: Decay,
    ranges: HashMap<RangeKey, Hot>,
    files: HashMap<FileKey, TracedFile>,
    now: Duration,
}

impl Ranges {
    pub(super) fn new(decay: Decay) -> Self {
        Self {
            decay,
            ranges: HashMap::new(),
            files: HashMap::new(),
            now: Duration::ZERO,
        }
    }

    /// Add counts that arrived until `now`, the time since the beginning.
    pub(super) fn add(&mut self, files: Vec<TracedFile>, tallies: &[Tally], now: Duration) {
        self.now = now.max(self.now);
        for file in files {
            self.files.insert(file.key, file);
        }
        for tally in tallies.iter().filter(|tally| tally.reads > 0) {
            let key = RangeKey {
                file: tally.file,
                range: tally.range,
            };
            let hot = self.ranges.entry(key).or_default();
            hot.heat.fade(self.decay, self.now);
            hot.heat.add(tally);
            // However many arrive at a time.
            if self.ranges.len() >= 2 * MAX_RANGES {
                self.forget();
            }
        }
        for hot in self.ranges.values_mut() {
            hot.heat.fade(self.decay, self.now);
        }
        self.forget();
    }

    /// Forget cold ranges, and ranges in excess of the maximum.
    fn forget(&mut self) {
        self.ranges.retain(|_, hot| hot.heat.reads >= COLD);
        if self.ranges.len() > MAX_RANGES {
            let kept = MAX_RANGES / 4 * 3;
            let mut heats: Vec<_> = self.ranges.values().map(|hot| hot.heat).collect();
            let (hotter, coldest, _) = heats.select_nth_unstable_by(kept, Heat::hotter);
            let coldest = *coldest;
            // Number of ranges as hot as the coldest one that stays, for which there is room.
            let is_hotter = |heat: &Heat| heat.hotter(&coldest) == Ordering::Less;
            let mut room = kept - hotter.iter().filter(|heat| is_hotter(heat)).count();
            self.ranges
                .retain(|_, hot| match hot.heat.hotter(&coldest) {
                    Ordering::Less => true,
                    Ordering::Equal if room > 0 => {
                        room -= 1;
                        true
                    }
                    Ordering::Equal | Ordering::Greater => false,
                });
        }
        if self.files.len() > MAX_FILES {
            let used: std::collections::HashSet<_> =
                self.ranges.keys().map(|key| key.file).collect();
            self.files.retain(|key, _| used.contains(key));
        }
    }

    /// The identity of a file.
    pub(super) fn file(&self, key: &FileKey) -> Option<&TracedFile> {
        self.files.get(key)
    }

    /// The number of ranges that are kept.
    pub(super) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// All ranges, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&RangeKey, &Hot)> {
        self.ranges.iter()
    }

    /// The ranges that were not examined since `since`, hottest first, `most` of them at most.
    pub(super) fn to_look_at(&self, since: Duration, most: usize) -> Vec<RangeKey> {
        let is_due = |hot: &Hot| hot.finding.as_ref().is_none_or(|found| found.at < since);
        let mut due: Vec<_> = self
            .ranges
            .iter()
            .filter(|(_, hot)| is_due(hot))
            .map(|(key, hot)| (hot.finding.is_some(), hot.heat, *key))
            .collect();
        // Ranges that were never examined come first.
        let order = |a: &(bool, Heat, RangeKey), b: &(bool, Heat, RangeKey)| {
            a.0.cmp(&b.0)
                .then_with(|| a.1.hotter(&b.1))
                .then_with(|| a.2.cmp(&b.2))
        };
        if due.len() > most {
            due.select_nth_unstable_by(most, order);
            due.truncate(most);
        }
        due.sort_unstable_by(order);
        due.into_iter().map(|(_, _, key)| key).collect()
    }

    /// Store the result of an examination of a range.
    pub(super) fn found(&mut self, key: &RangeKey, finding: Finding) {
        if let Some(hot) = self.ranges.get_mut(key) {
            hot.finding = Some(finding);
        }
    }

    /// Have the ranges of a file examined again: it was repaired.
    pub(super) fn look_again(&mut self, file: &FileKey) {
        for (key, hot) in &mut self.ranges {
            if key.file == *file {
                hot.finding = None;
            }
        }
    }
}
