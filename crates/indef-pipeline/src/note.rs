//! Messages of a stage while it works, as values: the caller decides which of them become
//! text.

use std::path::{Path, PathBuf};

use indef_core::{SkipReason, calibrate::CannotCalibrate, plan::FilePlan};
use indef_engine::{claim::ClaimError, resume::ResumeError};
use indef_fs::{FsError, FsKind, NoGeometry, PartKind, Refusal};
use indef_trace::collect::Source;

use units::Bytes;

use crate::error::Error;

/// Information for a person.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Note<'a> {
    /// The accesses of these files of a profile are left out.
    LeftOut {
        /// One or more.
        paths: &'a [PathBuf],
        /// The reason.
        why: LeftOut,
    },
    /// The internal geometry of a device is unknown, and so is the DoPF on it.
    NoGeometry {
        /// A path on it.
        path: &'a Path,
        /// The reason.
        why: &'a NoGeometry,
        /// Whether the query of the device was requested, or is only the default.
        asked_for: bool,
    },
    /// The read times of the profile give no weights.
    NoWeights {
        /// The reason.
        why: &'a CannotCalibrate,
        /// The times that probes of the drives found serve in their place, not the paper's weights.
        probed: bool,
    },
    /// The times of reads are those that a probe of the drive found.
    Probed {
        /// A path on it.
        path: &'a Path,
        /// The drive.
        device: &'a Path,
    },
    /// The read times of the profile show no cost of fragments, so nothing is planned.
    NothingToGain(&'a CannotCalibrate),
    /// Space is to be given back on a file system where no file holds any that it does not reach.
    NothingUnreachable {
        /// A path on it.
        path: &'a Path,
        /// Its kind.
        kind: FsKind,
    },
    /// What is shared is left out of a plan, since a run works there: kernels are reported to loop where holders are
    /// asked for beside one that moves them.
    HoldersNotAsked(&'a Error),
    /// Files move with those that share blocks with them among the given ones, where the file system does not tell
    /// whether these are all.
    SharedAmongPaths {
        /// At least one.
        files: u64,
    },
    /// The kernel begins to empty a part of a file system.
    Emptying {
        /// What it is there.
        part: PartKind,
        /// Its number among those of the region, from 1 on.
        number: u64,
        /// Their number.
        of: u64,
        /// Bytes to move.
        used: Bytes,
    },
    /// A walk begins.
    Walk,
    /// The walk met a file. Precedes all notes about it.
    File,
    /// A path, given or met, cannot be examined.
    Refused {
        /// The path.
        path: &'a Path,
        /// The reason.
        refusal: &'a Refusal,
    },
    /// Nothing of this file moves.
    Untouched {
        /// Its plan, with its chunks.
        plan: &'a FilePlan,
        /// The most informative reason.
        reason: SkipReason,
        /// The file itself was given, not only a directory above it.
        named: bool,
    },
    /// A source of accesses, with the reason if it cannot be observed.
    Source(&'a Source),
    /// A layer of an overlay in which accesses are not seen.
    HiddenLayer(&'a Path),
    /// Other runs cannot be kept off the file systems of this one.
    Unclaimed(&'a ClaimError),
    /// The run cannot be stored, so it cannot be resumed.
    NotStored(&'a Error),
    /// The run has stopped, since its journal cannot be written. What is left stays stored.
    JournalFailed(&'a FsError),
    /// The run is done, but its stored state cannot be removed.
    StaysStored(&'a ResumeError),
}

impl Note<'_> {
    /// Whether it tells of a path that could not be looked at: a failure, and not only a skip.
    #[must_use]
    pub const fn is_problem(&self) -> bool {
        matches!(
            self,
            Self::Refused {
                refusal: Refusal::Failed(_),
                ..
            }
        )
    }
}

/// The reason for which accesses of a profile are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOut {
    /// Another file has the name now.
    Replaced,
    /// No file has the name.
    Gone,
}

/// The receiver of notes. Called from all workers, so it should be quick.
pub trait Notes: Sync {
    /// Take a note.
    fn note(&self, note: Note<'_>);
}

/// Ignores all notes.
impl Notes for () {
    fn note(&self, _: Note<'_>) {}
}

impl<F: Fn(Note<'_>) + Sync> Notes for F {
    fn note(&self, note: Note<'_>) {
        self(note);
    }
}
