//! A trace in progress: sums, rates, and the hottest files.
//!
//! Memory is bounded, however many files and ranges there are: sums are exact always; single files
//! are counted separately only if they are among the hottest, once there are very many
//! ([`MAX_FILES`]).

use std::{
    borrow::Cow,
    hash::{BuildHasher, Hash},
    path::{Path, PathBuf},
    time::Duration,
};

use foldhash::{HashMap, HashSet, fast::RandomState};
use indef_core::access::Observed;
use indef_trace::{
    FileKey, Tally, TracedFile,
    collect::{Sampled, Spent, Windowed},
};
use units::{Bytes, Nanos};

use crate::{
    decay::Decay,
    rate_error::{FadingError, RateError},
    steady::Steady,
};

/// Maximum number of files that are counted separately. When there are more, the colder half is
/// forgotten.
pub const MAX_FILES: usize = 16 << 10;
/// Maximum number of files whose names are kept: each name arrives only once, and a forgotten file
/// may become hot again.
const MAX_NAMES: usize = 64 << 10;
/// Different files and ranges are counted up to this number of each.
const MAX_DISTINCT: usize = 112 << 10;
/// Rates are those of about the last ten seconds.
const RECENT: Decay = Decay::half_life(Duration::from_secs(5));

/// The counts of a collector over a time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Batch<'a> {
    /// Accesses since the last time.
    pub tallies: &'a [Tally],
    /// Files met for the first time.
    pub files: &'a [TracedFile],
    /// Events lost since the last time.
    pub lost: u64,
    /// How exact these counts are.
    pub sampled: Sampled,
    /// Reads and writes that are known to have been made, of which nothing is in the counts
    /// ([`Drained::untold`](indef_trace::collect::Drained::untold)).
    pub untold: u64,
    /// Processor time that they took.
    pub spent: Spent,
    /// The windows in which they were counted; `None`: all the time.
    pub windows: Option<Windowed>,
}

/// Sums over accesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessCounts {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes read.
    pub read: Bytes,
    /// Bytes written.
    pub written: Bytes,
    /// Requests and times of the reads.
    pub observed: Observed,
}

impl AccessCounts {
    fn add(&mut self, tally: &Tally) {
        let bytes = |times: u64| Bytes(tally.range.len.get().saturating_mul(times));
        self.reads = self.reads.saturating_add(tally.reads);
        self.writes = self.writes.saturating_add(tally.writes);
        self.read = self.read.saturating_add(bytes(tally.reads));
        self.written = self.written.saturating_add(bytes(tally.writes));
        self.observed += tally.observed;
    }

    /// Requests that a read became, on average; `None` if they were not counted.
    #[must_use]
    pub fn requests_per_read(&self) -> Option<f64> {
        (self.observed.requests > 0 && self.reads > 0)
            .then(|| self.observed.requests as f64 / self.reads as f64)
    }

    /// Device time of all reads: that of the timed ones, and as much for the others; `None` if none
    /// was timed.
    #[must_use]
    pub fn device_time(&self) -> Option<Nanos> {
        let (time, timed) = (self.observed.time.get(), self.observed.timed);
        let all = u128::from(time) * u128::from(self.reads.max(timed));
        let all = all.checked_div(u128::from(timed))?;
        Some(Nanos(u64::try_from(all).unwrap_or(u64::MAX)))
    }

    /// Mean device time of a read; `None` if none was timed.
    #[must_use]
    pub fn mean_time(&self) -> Option<Nanos> {
        self.observed
            .time
            .get()
            .checked_div(self.observed.timed)
            .map(Nanos)
    }
}

/// Sums that fade.
#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    reads: f64,
    writes: f64,
    read: f64,
    written: f64,
    time: f64,
    at: Duration,
}

impl Recent {
    fn fade(&mut self, now: Duration) {
        let factor = RECENT.factor(now.saturating_sub(self.at));
        for sum in [
            &mut self.reads,
            &mut self.writes,
            &mut self.read,
            &mut self.written,
            &mut self.time,
        ] {
            *sum *= factor;
        }
        self.at = now;
    }

    fn add(&mut self, tally: &Tally) {
        let len = tally.range.len.get() as f64;
        self.reads += tally.reads as f64;
        self.writes += tally.writes as f64;
        self.read += len * tally.reads as f64;
        self.written += len * tally.writes as f64;
        self.time += tally.observed.time.get() as f64;
    }
}

/// Accesses per second, as of now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Reads.
    pub reads: f64,
    /// Writes.
    pub writes: f64,
    /// Bytes read.
    pub read: f64,
    /// Bytes written.
    pub written: f64,
}

/// A file among the hottest.
#[derive(Clone, Copy, Debug)]
pub struct HotFile<'a> {
    /// Its key.
    pub key: FileKey,
    /// Its name, if it has one and could be found.
    pub path: Option<&'a Path>,
    /// Counts since the beginning.
    pub total: AccessCounts,
    /// Recent rates.
    pub rates: Rates,
}

#[derive(Clone, Copy, Debug, Default)]
struct LiveFile {
    total: AccessCounts,
    recent: Recent,
}

/// The number of distinct items.
#[derive(Clone, Debug, Default)]
pub struct Distinct {
    hasher: RandomState,
    seen: HashSet<u64>,
}

impl Distinct {
    fn insert(&mut self, thing: impl Hash) {
        if self.seen.len() < MAX_DISTINCT {
            self.seen.insert(self.hasher.hash_one(thing));
        }
    }

    /// The number.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.seen.len() as u64
    }

    /// Whether it may be more, because counting ended.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.seen.len() >= MAX_DISTINCT
    }
}

/// The results of the trace so far.
#[derive(Debug, Default)]
pub struct Live {
    files: HashMap<FileKey, LiveFile>,
    names: HashMap<FileKey, PathBuf>,
    files_seen: Distinct,
    ranges_seen: Distinct,
    total: AccessCounts,
    recent: Recent,
    recent_error: FadingError,
    steady: Steady,
    lost: u64,
    sampled: Sampled,
    untold: u64,
    spent: Spent,
    elapsed: Duration,
}

impl Live {
    /// Add new counts; `elapsed` is the time since the beginning. Returns the accesses of the time since the
    /// last call, which are not these counts where they were counted in windows.
    pub fn add<'a>(&mut self, batch: &Batch<'a>, elapsed: Duration) -> Cow<'a, [Tally]> {
        self.elapsed = elapsed.max(self.elapsed);
        self.lost = self.lost.saturating_add(batch.lost);
        self.sampled.add(batch.sampled);
        self.untold = self.untold.saturating_add(batch.untold);
        self.spent.add(batch.spent);
        for file in batch.files {
            if let Some(path) = &file.path
                && (self.names.len() < MAX_NAMES || self.names.contains_key(&file.key))
            {
                self.names.insert(file.key, path.clone());
            }
        }
        self.recent.fade(self.elapsed);
        self.recent_error.add(&batch.sampled, RECENT, self.elapsed);
        let recent = self
            .steady
            .take(batch.tallies, batch.sampled, batch.windows, self.elapsed);
        for tally in batch.tallies {
            self.files_seen.insert(tally.file);
            self.ranges_seen.insert((tally.file, tally.range));
            self.total.add(tally);
            let file = self.files.entry(tally.file).or_default();
            file.total.add(tally);
        }
        for tally in recent.iter() {
            self.recent.add(tally);
            let file = self.files.entry(tally.file).or_default();
            file.recent.fade(self.elapsed);
            file.recent.add(tally);
        }
        if self.files.len() > MAX_FILES {
            self.forget_colder_half();
        }
        recent
    }

    fn forget_colder_half(&mut self) {
        let heat = |file: &LiveFile| (file.total.device_time(), file.total.reads);
        let mut heats: Vec<_> = self.files.values().map(heat).collect();
        let middle = heats.len() / 2;
        let (_, median, _) = heats.select_nth_unstable(middle);
        let median = *median;
        // Where all are equally hot, any half can be kept.
        let mut equal = MAX_FILES / 2;
        self.files.retain(|_, file| match heat(file).cmp(&median) {
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Equal => {
                equal = equal.saturating_sub(1);
                equal > 0
            }
            std::cmp::Ordering::Greater => true,
        });
    }

    /// Counts since the beginning.
    #[must_use]
    pub fn total(&self) -> &AccessCounts {
        &self.total
    }

    /// Recent rates.
    #[must_use]
    pub fn rates(&self) -> Rates {
        self.rates_of(&self.recent)
    }

    /// How exact the rates are.
    #[must_use]
    pub fn rate_error(&self) -> RateError {
        let scale = RECENT.per_second(self.elapsed);
        self.steady
            .error()
            .unwrap_or_else(|| self.recent_error.of_rates(scale))
    }

    fn rates_of(&self, recent: &Recent) -> Rates {
        let mut recent = *recent;
        recent.fade(self.elapsed);
        let scale = RECENT.per_second(self.elapsed);
        Rates {
            reads: recent.reads * scale,
            writes: recent.writes * scale,
            read: recent.read * scale,
            written: recent.written * scale,
        }
    }

    /// Time since the beginning.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// Events lost since the beginning.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// How exact the counts are.
    #[must_use]
    pub fn sampled(&self) -> Sampled {
        self.sampled
    }

    /// Reads and writes that are known to have been made, of which nothing is in the counts; 0 before the end of the trace.
    #[must_use]
    pub fn untold(&self) -> u64 {
        self.untold
    }

    /// Processor time that tracing took.
    #[must_use]
    pub fn spent(&self) -> Spent {
        self.spent
    }

    /// The number of distinct files.
    #[must_use]
    pub fn files_seen(&self) -> &Distinct {
        &self.files_seen
    }

    /// The number of distinct ranges.
    #[must_use]
    pub fn ranges_seen(&self) -> &Distinct {
        &self.ranges_seen
    }

    /// The reads of each file that is counted separately.
    pub fn reads(&self) -> impl Iterator<Item = (FileKey, u64)> + '_ {
        let files = self.files.iter();
        files.map(|(key, file)| (*key, file.total.reads))
    }

    /// The files that were hottest recently: by the time of their reads, or by the number of reads
    /// where nothing was timed.
    #[must_use]
    pub fn hottest_now(&self, most: usize) -> Vec<HotFile<'_>> {
        let timed = self.total.observed.timed > 0;
        let heat = |file: &LiveFile| {
            let mut recent = file.recent;
            recent.fade(self.elapsed);
            let first = if timed { recent.time } else { recent.reads };
            (first, recent.reads + recent.writes)
        };
        self.hottest(most, heat, |(a, c), (b, d)| {
            b.total_cmp(a).then_with(|| d.total_cmp(c))
        })
    }

    /// The files that were hottest since the beginning.
    #[must_use]
    pub fn hottest_of_all(&self, most: usize) -> Vec<HotFile<'_>> {
        let heat = |file: &LiveFile| {
            let total = &file.total;
            (total.device_time(), total.reads, total.writes)
        };
        self.hottest(most, heat, |a, b| b.cmp(a))
    }

    fn hottest<H>(
        &self,
        most: usize,
        heat: impl Fn(&LiveFile) -> H,
        order: impl Fn(&H, &H) -> std::cmp::Ordering,
    ) -> Vec<HotFile<'_>> {
        let mut files: Vec<_> = self
            .files
            .iter()
            .map(|(key, file)| (heat(file), *key, file))
            .collect();
        let order = |a: &(H, FileKey, &LiveFile), b: &(H, FileKey, &LiveFile)| {
            order(&a.0, &b.0).then(a.1.cmp(&b.1))
        };
        if most == 0 {
            return Vec::new();
        }
        if files.len() > most {
            files.select_nth_unstable_by(most - 1, order);
            files.truncate(most);
        }
        files.sort_unstable_by(order);
        files
            .into_iter()
            .map(|(_, key, file)| HotFile {
                key,
                path: self.names.get(&key).map(PathBuf::as_path),
                total: file.total,
                rates: self.rates_of(&file.recent),
            })
            .collect()
    }
}
