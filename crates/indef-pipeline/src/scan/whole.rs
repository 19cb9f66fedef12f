//! The findings of a scan of a whole file system, or of a subvolume, by its metadata instead of a walk.

use std::{sync::Arc, thread};

use indef_engine::collect::{CollectOptions, CollectSummary};
use indef_fs::Filesystem;

use super::plain::Counts;

/// The findings.
pub(super) struct WholeScan {
    /// As of a walk.
    pub(super) summary: CollectSummary,
    /// Files in one piece.
    pub(super) counts: Counts,
    /// The file system.
    pub(super) fs: Arc<Filesystem>,
    /// Regular files that were not read.
    pub(super) remembered: u64,
}

/// Threads that read.
pub(super) fn threads(options: &CollectOptions) -> usize {
    match options.jobs {
        0 => thread::available_parallelism().map_or(1, |n| n.get().min(16)),
        jobs => jobs,
    }
}
