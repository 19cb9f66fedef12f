//! A plan as a run keeps it: only the facts that are needed to carry it out.

use std::{path::PathBuf, sync::Arc};

use indef_core::{
    SkipReason,
    plan::{BirthTime, Decision, FilePlan},
};
use indef_fs::{Mounts, TargetId};
use units::{Bytes, FileRange};

use super::{FileResult, Reason, Status};

/// One file to be worked on.
pub(super) struct FileJob {
    pub(super) path: PathBuf,
    /// The root, and the path beneath it.
    pub(super) place: Option<(PathBuf, PathBuf)>,
    pub(super) mounts: Mounts,
    pub(super) born: Option<BirthTime>,
    pub(super) id: TargetId,
    pub(super) fs: Arc<str>,
    pub(super) extents_before: u64,
    /// See [`FilePlan::named`].
    pub(super) named: Option<Arc<[u64]>>,
    /// The ranges to move.
    pub(super) runs: Box<[FileRange]>,
    pub(super) cost: Bytes,
    /// Of each byte of data.
    gain_per_byte: f64,
    /// The plan leaves the whole file alone.
    pub(super) skip: Option<SkipReason>,
}

impl FileJob {
    pub(super) fn new(plan: FilePlan) -> Box<Self> {
        let runs = plan.runs().into_boxed_slice();
        let skip = plan.skip.or_else(|| {
            runs.is_empty().then(|| {
                let reason = plan.chunks.iter().find_map(|chunk| match chunk.decision {
                    Decision::Skip(reason) => Some(reason),
                    Decision::Migrate => None,
                });
                reason.unwrap_or(SkipReason::Empty)
            })
        });
        Box::new(Self {
            cost: plan.cost(),
            gain_per_byte: plan.gain_per_byte(),
            id: TargetId {
                dev: plan.dev,
                inode: plan.inode,
            },
            place: plan
                .place()
                .map(|(root, below)| (root.to_owned(), below.to_owned())),
            // Where the root is not known, mounts may be between here and there.
            mounts: match plan.root_len {
                Some(_) => Mounts::Stay,
                None => Mounts::Cross,
            },
            born: plan.born,
            named: plan.named,
            path: plan.path,
            fs: plan.fs,
            extents_before: plan.extents_before,
            runs,
            skip,
        })
    }

    /// The result of a file that was not moved, or not yet.
    pub(super) fn result(self, status: Status, reason: Option<Reason>) -> FileResult {
        FileResult {
            path: self.path,
            id: self.id,
            fs: self.fs,
            engine: None,
            status,
            reason,
            extents_before: self.extents_before,
            extents_after: self.extents_before,
            bytes_planned: Bytes::ZERO,
            bytes_relocated: Bytes::ZERO,
            bytes_host_read: Bytes::ZERO,
            bytes_host_written: Bytes::ZERO,
            bytes_offloaded: Bytes::ZERO,
            bytes_reclaimed: Bytes::ZERO,
            holders: 0,
            bytes_unshared: Bytes::ZERO,
        }
    }
}

/// The best gain for each byte first: whatever ends the run, the most useful part is done.
pub(super) fn order(jobs: &mut [Box<FileJob>]) {
    jobs.sort_by(|a, b| b.gain_per_byte.total_cmp(&a.gain_per_byte));
}

/// `Skip` is no failure, an error is.
pub(super) fn status_of(reason: &Reason) -> Status {
    match reason {
        Reason::Skip(_) | Reason::DryRun => Status::Skipped,
        Reason::Failed(_) => Status::Failed,
    }
}
