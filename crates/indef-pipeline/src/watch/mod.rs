//! The hottest fragmented ranges, live or of a profile, and their repair.
//!
//! ```text
//! feed ─▶ ranges ─▶ survey ─▶ snapshot
//! (live    (hottest,  (where     (rows)  ─ ─▶ repair
//!  or       fading,    they lie)
//!  profile) bounded)
//! ```
//!
//! Nothing here defines a fragment or moves a byte; the first is done by `indef-core`, the second
//! by `indef-engine`, with all of its promises.

mod feed;
mod ranges;
mod repair;
mod row;
mod survey;

#[cfg(test)]
mod tests;

use std::{
    path::PathBuf,
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError},
    time::{Duration, Instant},
};

use indef_engine::{Cancel, run::RunOptions};
use indef_trace::FileKey;

use crate::{
    decay::Decay,
    error::Error,
    learn::{Batch as Seen, Live},
};
pub use feed::{Batch, Feed, LiveFeed, ProfileFeed};
pub use ranges::RangeKey;
use ranges::{Heat, RangePlace, Ranges};
pub use repair::{End, EndKind, Ending, Order, Repair};
pub use row::{Lost, RangeRow, Snapshot, SortBy};
use survey::Survey;

/// Live counts are worth half after this time: a screen follows a change within seconds, and does
/// not flicker.
const HALF_LIFE: Duration = Duration::from_secs(10);
/// Maximum number of rows of a snapshot.
const MAX_ROWS: usize = 5_000;
/// The part of an interval in which files are examined.
const SURVEY_SHARE: u32 = 4;

/// How often the feed is looked after.
pub const TICK: Duration = Duration::from_millis(50);

/// A request to the watching thread.
#[derive(Clone, Copy, Debug)]
pub enum WatchRequest {
    /// Put the details of this range into the next snapshots.
    Details(Option<RangeKey>),
    /// Examine a file again: it was repaired.
    LookAgain(FileKey),
}

/// Watches reads.
pub struct Watch {
    feed: Box<dyn Feed>,
    decay: Decay,
    live: Live,
    ranges: Ranges,
    survey: Survey,
}

impl Watch {
    /// A watch on files below `paths`, or on all; `options` are those of repairs.
    #[must_use]
    pub fn new(feed: Box<dyn Feed>, paths: Vec<PathBuf>, options: &RunOptions) -> Self {
        let decay = if feed.is_live() {
            Decay::half_life(HALF_LIFE)
        } else {
            Decay::NONE
        };
        Self {
            feed,
            decay,
            live: Live::default(),
            ranges: Ranges::new(decay),
            survey: Survey::new(paths, options),
        }
    }

    /// Whether counts come as they happen.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.feed.is_live()
    }

    /// Take in the counts so far.
    ///
    /// # Errors
    ///
    /// That of the feed.
    pub fn drain(&mut self, now: Duration) -> Result<(), Error> {
        let batch = self.feed.drain()?;
        self.take(batch, now);
        Ok(())
    }

    /// Look after the feed, some twenty times a second; take in its counts if it holds many.
    ///
    /// # Errors
    ///
    /// That of the feed.
    pub fn keep_up(&mut self, now: Duration) -> Result<(), Error> {
        match self.feed.keep_up() {
            true => self.drain(now),
            false => Ok(()),
        }
    }

    /// Take in the remaining counts, and watch no more.
    ///
    /// # Errors
    ///
    /// That of the feed.
    pub fn finish(&mut self, now: Duration) -> Result<(), Error> {
        let batch = self.feed.finish()?;
        self.take(batch, now);
        Ok(())
    }

    fn take(&mut self, batch: Batch, now: Duration) {
        let seen = Seen {
            tallies: &batch.tallies,
            files: &batch.files,
            lost: batch.lost,
            sampled: batch.sampled,
            windows: batch.windows,
            ..Seen::default()
        };
        let recent = self.live.add(&seen, now);
        self.ranges.add(batch.files.clone(), &recent, now);
    }

    /// Find the places of hot ranges, for as long as the limit allows.
    pub fn survey(&mut self, now: Duration, limit: Option<Duration>, cancel: &Cancel) {
        self.survey.look(&mut self.ranges, now, limit, cancel);
    }

    /// All hot ranges as of now.
    pub fn snapshot(&mut self, now: Duration, details: Option<RangeKey>) -> Snapshot {
        let scale = self.decay.per_second(now);
        let per_fragment = self.time_per_fragment();
        let live = self.is_live();
        let rates = self.live.rates();
        let total = self.live.total();
        let mut snapshot = Snapshot {
            ranges: self.ranges.len() as u64,
            live,
            timed: per_fragment.is_some(),
            reads: if live {
                rates.reads
            } else {
                total.reads as f64
            },
            read: if live {
                rates.read
            } else {
                total.read.get() as f64
            },
            error: live.then(|| self.live.rate_error()),
            lost: self.live.lost(),
            elapsed: now,
            ..Snapshot::default()
        };
        for (key, hot) in self.ranges.iter() {
            match hot.finding.as_ref().map(|finding| &finding.place) {
                None => snapshot.waiting += 1,
                Some(None) => snapshot.out_of_reach += 1,
                Some(Some(place)) if place.extra > 0 => {
                    snapshot
                        .rows
                        .push(row(key, &hot.heat, place, scale, per_fragment));
                }
                Some(Some(_)) => {}
            }
        }
        snapshot.fragmented = snapshot.rows.len() as u64;
        let order = |a: &RangeRow, b: &RangeRow| SortBy::Lost.order(a, b);
        if snapshot.rows.len() > MAX_ROWS {
            snapshot.rows.select_nth_unstable_by(MAX_ROWS - 1, order);
            snapshot.rows.truncate(MAX_ROWS);
        }
        snapshot.rows.sort_unstable_by(order);
        snapshot.details = details.map(|key| (key, self.survey.details(&self.ranges, &key)));
        snapshot
    }

    /// Device time of one request of a timed read, over all ranges; where requests were not
    /// counted, a fragment counts as one. `None` if nothing was timed.
    fn time_per_fragment(&self) -> Option<f64> {
        let (mut time, mut requests) = (0.0, 0.0);
        for (_, hot) in self.ranges.iter() {
            let heat = &hot.heat;
            let place = hot.finding.as_ref().and_then(|found| found.place.as_ref());
            let of_a_read = match place {
                _ if heat.requests > 0.0 => heat.requests / heat.reads,
                Some(place) => place.fragments.max(1) as f64,
                None => continue,
            };
            time += heat.time_ns;
            requests += heat.timed * of_a_read;
        }
        (time > 0.0 && requests > 0.0).then(|| time / requests)
    }

    /// Watch, and send a snapshot at every interval and after every request, if there is room for it, until the
    /// receiver is gone.
    ///
    /// # Errors
    ///
    /// That of the feed.
    pub fn run(
        mut self,
        interval: Duration,
        requests: &Receiver<WatchRequest>,
        snapshots: &SyncSender<Snapshot>,
        cancel: &Cancel,
    ) -> Result<(), Error> {
        let begin = Instant::now();
        let mut next = begin;
        let mut details = None;
        loop {
            let wait = next.saturating_duration_since(Instant::now());
            match requests.recv_timeout(wait.min(TICK)) {
                Ok(WatchRequest::Details(key)) => details = key,
                Ok(WatchRequest::LookAgain(file)) => {
                    self.ranges.look_again(&file);
                    self.survey(begin.elapsed(), Some(interval / SURVEY_SHARE), cancel);
                }
                Err(RecvTimeoutError::Timeout) if wait > TICK => {
                    self.keep_up(begin.elapsed())?;
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.keep_up(begin.elapsed())?;
                    self.drain(begin.elapsed())?;
                    self.survey(begin.elapsed(), Some(interval / SURVEY_SHARE), cancel);
                    next = Instant::now() + interval;
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            match snapshots.try_send(self.snapshot(begin.elapsed(), details)) {
                // Whoever shows them waits for a terminal that takes nothing, say. The next one is newer.
                Ok(()) | Err(TrySendError::Full(_)) => {}
                Err(TrySendError::Disconnected(_)) => return Ok(()),
            }
        }
    }
}

fn row(
    key: &RangeKey,
    heat: &Heat,
    place: &RangePlace,
    scale: f64,
    per_fragment: Option<f64>,
) -> RangeRow {
    let reads = heat.reads * scale;
    let mean_ns = (heat.timed > 0.0).then(|| heat.time_ns / heat.timed);
    let lost = match (mean_ns, per_fragment) {
        (Some(mean), _) => Lost::Timed(reads * mean * place.share()),
        (None, Some(time)) => Lost::Estimated(reads * place.extra as f64 * time),
        (None, None) => Lost::Unknown,
    };
    RangeRow {
        key: *key,
        path: std::sync::Arc::clone(&place.path),
        id: place.id,
        reads,
        dolf: place.dolf,
        extra: place.extra,
        requests_per_read: (heat.requests > 0.0).then(|| heat.requests / heat.reads),
        mean_ns,
        lost,
        cost: place.cost,
        skip: place.skip,
    }
}
