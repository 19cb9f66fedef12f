//! Counts that the walkers share.

use std::sync::atomic::{AtomicU64, Ordering};

use super::seen::{CollectSummary, Excluded};

#[derive(Default)]
pub(super) struct WalkCounts {
    pub(super) files: AtomicU64,
    pub(super) directories: AtomicU64,
    pub(super) hard_links: AtomicU64,
    pub(super) others: AtomicU64,
    pub(super) other_file_systems: AtomicU64,
    pub(super) excluded_files: AtomicU64,
    pub(super) excluded_directories: AtomicU64,
    pub(super) small: AtomicU64,
    pub(super) vanished: AtomicU64,
    pub(super) problems: AtomicU64,
}

impl WalkCounts {
    pub(super) fn summary(&self, cancelled: bool) -> CollectSummary {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        CollectSummary {
            files: get(&self.files),
            directories: get(&self.directories),
            hard_links: get(&self.hard_links),
            others: get(&self.others),
            other_file_systems: get(&self.other_file_systems),
            excluded: Excluded {
                files: get(&self.excluded_files),
                directories: get(&self.excluded_directories),
                small: get(&self.small),
            },
            vanished: get(&self.vanished),
            problems: get(&self.problems),
            cancelled,
        }
    }
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
