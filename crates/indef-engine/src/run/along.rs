//! Files of a run that got new blocks together with another one, since they share them.

use std::{collections::HashSet, sync::Mutex};

use indef_core::SkipReason;
use indef_fs::TargetId;

use super::{FileResult, Reason, Status, job::FileJob};
use crate::sync::lock;

/// See the module.
#[derive(Debug)]
pub(super) struct Along {
    /// The files of the plans: those that share with them may be very many more.
    planned: HashSet<TargetId>,
    moved: Mutex<HashSet<TargetId>>,
}

impl Along {
    pub(super) fn new(jobs: &[Box<FileJob>]) -> Self {
        let moving = jobs.iter().filter(|job| job.skip.is_none());
        Self {
            planned: moving.map(|job| job.id).collect(),
            moved: Mutex::default(),
        }
    }

    /// Note files that moved.
    pub(super) fn add(&self, files: &[TargetId]) {
        let planned = files.iter().filter(|file| self.planned.contains(*file));
        lock(&self.moved).extend(planned);
    }

    /// Tell why a file was left alone that had moved along.
    pub(super) fn tell(&self, result: &mut FileResult) {
        result.tell_along(&lock(&self.moved));
    }
}

impl FileResult {
    /// Tell why the file was left alone, if it looked as if nothing were to be gained, or as if somebody had changed it,
    /// because it had moved along with another one: `along` has those that did, in this run
    /// ([`super::RunEvent::MovedAlong`]) or in an earlier one of the same plan.
    pub fn tell_along(&mut self, along: &HashSet<TargetId>) {
        let looks_so = matches!(
            self.reason,
            Some(Reason::Skip(
                SkipReason::Contiguous | SkipReason::NoGain | SkipReason::Changed
            ))
        );
        if self.status == Status::Skipped && looks_so && along.contains(&self.id) {
            self.reason = Some(Reason::Skip(SkipReason::MovedAlong));
        }
    }
}
