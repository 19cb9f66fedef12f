//! What a year has shown of a host.

use indef_core::plan::{SavedBy, Terms};
use units::Bytes;

use crate::promises::Promises;

/// Sums over a year. Times and bytes are those of a simulated host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Reads that reached the drive.
    pub reads: f64,
    /// Pieces that they met.
    pub pieces: f64,
    /// Their time.
    pub read_ns: f64,
    /// The time that the same reads take in one piece each.
    pub best_ns: f64,
    /// Bytes that users and file system wrote.
    pub used: Bytes,
    /// Bytes that the defragmenter wrote.
    pub moved: Bytes,
    /// The time that moves took of the drive, and of the host that waited for it.
    pub moving_ns: f64,
    /// Bytes that flash cells took.
    pub programmed: Bytes,
    /// Erases that a block of the drive takes; `None`: they do not wear it.
    pub endurance: Option<u32>,
    /// Decisions of `watch`, by their names.
    pub decisions: std::collections::BTreeMap<&'static str, u64>,
    /// What its moves promised, and kept.
    pub promises: Promises,
}

impl Outcome {
    /// The speed of reads that is lost against contiguous files, in percent.
    #[must_use]
    pub fn lost_pct(&self) -> f64 {
        match self.read_ns > 0.0 {
            true => (1.0 - self.best_ns / self.read_ns).max(0.0) * 100.0,
            false => 0.0,
        }
    }

    /// What moves cost by these terms, in seconds: as long as they took, if that is longer than by the terms, and the wear.
    #[must_use]
    pub fn price(&self, terms: &Terms) -> f64 {
        let seconds = self.moving_ns / 1e9 / self.moved.0.max(1) as f64;
        let terms = terms.with_seconds_per_byte(seconds);
        terms.price(self.moved, SavedBy::Time)
    }

    /// The share of the drive's life that a year takes, in percent: cells' writes ÷ what they take. `size`: its bytes.
    #[must_use]
    pub fn life_pct(&self, size: Bytes) -> Option<f64> {
        let erases = self.programmed.0 as f64 / size.0 as f64;
        Some(100.0 * erases / f64::from(self.endurance?))
    }
}
