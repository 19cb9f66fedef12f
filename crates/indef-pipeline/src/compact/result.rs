//! The result of making free space whole.

use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

use indef_core::{SkipReason, layout::Region};
use indef_engine::{
    collect::Excluded,
    run::{Reason, RunResult, StopCause},
};
use indef_fs::{FsKind, PartKind};
use units::Bytes;

use crate::error::Error;

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactEnd {
    /// There was a free run of the wanted length already.
    Whole,
    /// There is one now.
    Reached,
    /// Nothing was moved, as asked.
    DryRun,
    /// No longer free run can be had: what stays is in the way, there is too little room for what would have to
    /// move, or a limit does not allow as many bytes.
    NoRegion,
    /// The budget is spent.
    Budget,
    /// Others needed the space: what was held was let go.
    Short,
    /// Somebody asked to stop, or the time is over.
    Stopped(StopCause),
    /// An error ended it after a round: [`Compacted::error`].
    Failed,
}

impl CompactEnd {
    /// The word in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Reached => "reached",
            Self::DryRun => "dry-run",
            Self::NoRegion => "no-region",
            Self::Budget => "budget",
            Self::Short => "space-short",
            Self::Stopped(_) => "stopped",
            Self::Failed => "failed",
        }
    }
}

/// Files, or parts of them, that stay, with their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Staying {
    /// Fragments or files.
    pub pieces: u64,
    /// Their bytes.
    pub bytes: Bytes,
}

/// Data that cannot be moved on the file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InTheWay {
    /// Space of the file system's own, as far as it tells.
    pub metadata: Bytes,
    /// Space of which neither the file system nor the walk tells an owner: files outside of the path, deleted ones
    /// that are open, directories; on XFS without `rmapbt` metadata, too.
    pub unknown: Bytes,
    /// By reason; where the kernel empties parts, these.
    pub files: BTreeMap<SkipReason, Staying>,
}

/// The result.
#[derive(Debug)]
pub struct Compacted {
    /// The file system's kind.
    pub kind: FsKind,
    /// The wanted length.
    pub wanted: Bytes,
    /// All free space, before.
    pub free: Bytes,
    /// The longest free run, before.
    pub largest_before: Bytes,
    /// And afterwards; in a dry run the one that is expected, and after an error the one that was seen last.
    pub largest_after: Bytes,
    /// The region that was chosen first.
    pub region: Option<Region>,
    /// Files with data in it.
    pub files: u64,
    /// Files of which something moved.
    pub files_moved: u64,
    /// Bytes that have new blocks.
    pub bytes_relocated: Bytes,
    /// Bytes that were written.
    pub bytes_written: Bytes,
    /// Bytes of the region's free space that were held the last time; `None` where it cannot be held.
    pub held: Option<Bytes>,
    /// Rounds in which something was moved, or was to be.
    pub rounds: u32,
    /// What the kernel empties as a whole there, and how many of them lie in the region; `None` where files move one by
    /// one.
    pub parts: Option<(PartKind, u64)>,
    /// How many were emptied.
    pub parts_emptied: u64,
    /// Data that stayed in place.
    pub in_the_way: InTheWay,
    /// Files and folders that were left where they are, as asked; they are of [`InTheWay::unknown`].
    pub excluded: Excluded,
    /// How it ended.
    pub end: CompactEnd,
    /// The error that ended it.
    pub error: Option<Error>,
    /// Files with an error.
    pub files_failed: u64,
    /// How long it took.
    pub duration: Duration,
}

impl Compacted {
    /// Bytes written for each byte by which the longest free run grew; `None` if it did not.
    #[must_use]
    pub fn written_per_byte(&self) -> Option<f64> {
        let gained = self.largest_after.saturating_sub(self.largest_before);
        (!gained.is_zero()).then(|| self.bytes_written.get() as f64 / gained.get() as f64)
    }

    /// Add a round, and note the files that refuse for good. Returns whether there are new ones.
    pub(super) fn add(
        &mut self,
        round: &RunResult,
        stuck: &mut HashSet<(u64, SkipReason)>,
    ) -> bool {
        let totals = &round.totals;
        self.rounds += 1;
        self.files_moved += totals.files_moved;
        self.files_failed += totals.files_failed;
        self.bytes_relocated += totals.bytes_relocated;
        self.bytes_written += totals.bytes_written();
        let known = stuck.len();
        for file in &round.files {
            match &file.reason {
                // Another round may have more luck.
                Some(Reason::Skip(
                    SkipReason::Stopped
                    | SkipReason::OverBudget
                    | SkipReason::NoPlace
                    | SkipReason::NoSpace
                    | SkipReason::Changed
                    | SkipReason::Gone,
                ))
                | Some(Reason::DryRun)
                | None => {}
                Some(Reason::Skip(reason)) => {
                    stuck.insert((file.id.inode, *reason));
                }
                Some(Reason::Failed(_)) => {
                    stuck.insert((file.id.inode, SkipReason::Changed));
                }
            }
        }
        stuck.len() > known
    }
}
