//! Messages of a stage while it works, as values: whoever calls it decides what becomes text.

use std::path::{Path, PathBuf};

use indef_core::{SkipReason, calibrate::CannotCalibrate, plan::FilePlan};
use indef_engine::{claim::ClaimError, resume::ResumeError};
use indef_fs::{NoGeometry, Refusal};
use indef_trace::collect::Source;

use crate::error::Error;

/// Something that a person may want to know.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Note<'a> {
    /// The accesses of these files of a profile are left out.
    LeftOut {
        /// One or more.
        paths: &'a [PathBuf],
        /// Why.
        why: LeftOut,
    },
    /// The inside of a device is unknown, and so is the DoPF on it.
    NoGeometry {
        /// A path on it.
        path: &'a Path,
        /// Why.
        why: &'a NoGeometry,
        /// Whether the device was to be asked, or this is only the default.
        asked_for: bool,
    },
    /// The read times of the profile give no weights.
    NoWeights(&'a CannotCalibrate),
    /// A walk begins.
    Walk,
    /// The walk met a file. Comes before what there is to say of it.
    File,
    /// A path, given or met, cannot be looked at.
    Refused {
        /// Which.
        path: &'a Path,
        /// Why.
        refusal: &'a Refusal,
    },
    /// Nothing of this file moves.
    Untouched {
        /// With its chunks.
        plan: &'a FilePlan,
        /// The most telling reason.
        reason: SkipReason,
        /// The file itself was given, not only a directory above it.
        named: bool,
    },
    /// A source of accesses, with why it is not seen, if so.
    Source(&'a Source),
    /// No other run can be kept off the file systems of this one.
    Unclaimed(&'a ClaimError),
    /// The run cannot be stored, so it cannot be resumed.
    NotStored(&'a Error),
    /// The run is done, but what was stored of it cannot be removed.
    StaysStored(&'a ResumeError),
}

/// Why accesses of a profile are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOut {
    /// Another file has the name now.
    Replaced,
    /// No file has it.
    Gone,
}

/// Whoever wants to know. Called from all workers, so it should be quick.
pub trait Notes: Sync {
    /// Take a note.
    fn note(&self, note: Note<'_>);
}

/// Nobody wants to know.
impl Notes for () {
    fn note(&self, _: Note<'_>) {}
}

impl<F: Fn(Note<'_>) + Sync> Notes for F {
    fn note(&self, note: Note<'_>) {
        self(note);
    }
}
