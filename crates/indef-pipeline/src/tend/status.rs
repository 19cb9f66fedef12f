//! The numbers of the service since it began.

use std::{collections::BTreeMap, path::PathBuf};

use indef_core::SkipReason;
use units::{Bytes, Nanos};

use super::portion::{Portion, Traced};
use crate::consider::Reading;

/// All that metrics and the JSON document tell.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// Sums over all file systems.
    pub totals: Totals,
    /// Each file system.
    pub places: Vec<PlaceStatus>,
    /// Seconds traced.
    pub traced_s: f64,
    /// What the last trace has shown.
    pub traced: Option<Traced>,
    /// Bytes that may still be written today and in the year, where there are such budgets.
    pub left_day: Option<Bytes>,
    /// As above.
    pub left_year: Option<Bytes>,
}

/// Sums.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    /// Bytes that have new blocks.
    pub relocated: Bytes,
    /// Bytes that moves have written.
    pub written: Bytes,
    /// Files that came to their end with something moved.
    pub files_moved: u64,
    /// Extents that they have less.
    pub extents_removed: u64,
    /// Extents that they have then; a file that moves in several portions counts in each.
    pub extents_left: u64,
    /// Steps beyond the longest stall.
    pub stalls: u64,
    /// The longest step.
    pub longest_step: Nanos,
    /// Things that failed.
    pub failures: u64,
    /// Files that were left alone, by reason.
    pub skipped: BTreeMap<SkipReason, u64>,
    /// Looks at a file system.
    pub scans: u64,
}

impl Totals {
    /// Add what a portion has done.
    pub(super) fn add(&mut self, portion: &Portion) {
        self.relocated = self.relocated.saturating_add(portion.relocated);
        self.written = self.written.saturating_add(portion.written);
        self.files_moved += portion.files_moved;
        self.extents_removed += portion.extents_removed;
        self.extents_left += portion.extents_left;
        self.stalls += portion.stalls;
        self.longest_step = self.longest_step.max(portion.longest_step);
        self.failures += portion.failed.len() as u64;
        for (reason, files) in &portion.skipped {
            *self.skipped.entry(*reason).or_default() += files;
        }
    }
}

/// A file system.
#[derive(Clone, Debug, Default)]
pub struct PlaceStatus {
    /// A path on it.
    pub path: PathBuf,
    /// The name of the last decision, and its sentence.
    pub decision: Option<(&'static str, String)>,
    /// Bytes that the last decision wants to move.
    pub wanted: Bytes,
    /// Requests a day that this saves by prediction.
    pub saved_requests: f64,
    /// Seconds of reads a day that this saves by prediction, where times are known.
    pub saved_s: Option<f64>,
    /// The last readings.
    pub readings: Vec<Reading>,
    /// Why work waits: the name of the reason, and its sentence.
    pub held: Option<(&'static str, String)>,
    /// When a round last came to its end with nothing left to do, in seconds since 1970.
    pub last_success_s: Option<u64>,
    /// Bytes moved.
    pub relocated: Bytes,
    /// Bytes written.
    pub written: Bytes,
}
