//! The results that a collector hands out.

use std::time::Duration;

use units::{FileRange, Nanos};

use super::sampling::{Sampled, Spent};
use crate::tally::{FileKey, Tally, TracedFile};

/// Windows in which accesses were counted, where the programs are attached for a part of the time only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Windowed {
    /// How many have ended.
    pub windows: u32,
    /// The time that they stand for.
    pub time: Duration,
}

impl Windowed {
    /// Add the windows of another time.
    pub fn add(&mut self, more: Self) {
        self.windows = self.windows.saturating_add(more.windows);
        self.time += more.time;
    }
}

/// The counts, files and accesses since the last time.
#[derive(Debug, Default)]
pub struct Drained {
    /// Ranges with their counts. A range may occur more than once.
    pub tallies: Vec<Tally>,
    /// Files that were accessed for the first time.
    pub files: Vec<TracedFile>,
    /// Single accesses, if they were asked for, in order of time.
    pub accesses: Vec<Access>,
    /// Accesses that are missing because there was no room for them.
    pub lost: u64,
    /// How exact the counts are.
    pub sampled: Sampled,
    /// Layer syscall, at the end of a trace: reads and writes of any files that tasks in scope are known to have made, of which
    /// nothing is in the counts, as no chosen moment met these tasks at work.
    pub untold: u64,
    /// Processor time that tracing took.
    pub spent: Spent,
    /// The windows in which the accesses were counted; `None`: all the time.
    pub windows: Option<Windowed>,
}

impl Drained {
    pub(super) fn append(&mut self, mut more: Self) {
        self.tallies.append(&mut more.tallies);
        self.files.append(&mut more.files);
        self.accesses.append(&mut more.accesses);
        self.lost += more.lost;
        self.sampled.add(more.sampled);
        self.untold += more.untold;
        self.spent.add(more.spent);
        if let Some(more) = more.windows {
            self.windows.get_or_insert_default().add(more);
        }
    }
}

/// One access, as it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Which file.
    pub file: FileKey,
    /// Which bytes.
    pub range: FileRange,
    /// Whether it was a write.
    pub write: bool,
    /// Whether it bypassed the page cache.
    pub direct: bool,
    /// Requests that it became; 0 if they were not counted.
    pub requests: u32,
    /// The process; 0 if it is not in this process's PID namespace.
    pub pid: u32,
    /// When, on the clock that counts from boot.
    pub time: Nanos,
}
