//! The Error Information log of a controller (Base §5.16.1.2).

use std::{collections::VecDeque, sync::Mutex};

use nvme_wire::log::ErrorEntry;
use zerocopy::little_endian::U64;

use super::limits::ERROR_ENTRIES;
use crate::lock::lock;

/// The latest failed commands, and the number of all of them.
#[derive(Debug, Default)]
pub(super) struct ErrorLog(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    count: u64,
    latest: VecDeque<ErrorEntry>,
}

impl ErrorLog {
    /// Add an entry; its number is given here.
    pub(super) fn note(&self, mut entry: ErrorEntry) {
        let mut entries = lock(&self.0);
        entries.count += 1;
        entry.count = U64::new(entries.count);
        entries.latest.push_front(entry);
        entries.latest.truncate(ERROR_ENTRIES);
    }

    /// The entries, the latest first.
    pub(super) fn latest(&self) -> Vec<ErrorEntry> {
        lock(&self.0).latest.iter().copied().collect()
    }

    /// Number of errors since the controller was made.
    pub(super) fn count(&self) -> u64 {
        lock(&self.0).count
    }
}
