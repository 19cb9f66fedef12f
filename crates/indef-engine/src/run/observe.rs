//! Events that a run reports while it goes on.

use std::path::Path;

use indef_fs::{EngineKind, TargetId};
use units::Bytes;

use super::{FileResult, Reason, StopCause};

/// Something happened.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum RunEvent<'a> {
    /// First of all: the amount of work.
    Planned {
        /// Files.
        files: u64,
        /// Bytes that will be written at most.
        bytes: Bytes,
    },
    /// An engine cannot work on a file system, and another one does.
    Fallback {
        /// Where it is mounted, if that is known.
        place: Option<&'a Path>,
        /// The engine that would be better.
        engine: EngineKind,
        /// The one that is used.
        instead: &'static str,
        /// Why.
        reason: &'a Reason,
    },
    /// An engine writes more in one go than the rate allows in a second: the rate holds on average.
    InGoes {
        /// The engine.
        engine: EngineKind,
        /// So many bytes.
        bytes: Bytes,
        /// Why.
        why: &'static str,
    },
    /// A worker looks at a file.
    FileStarted {
        /// The path of the file.
        path: &'a Path,
    },
    /// From now on up to this many bytes may be written for the file.
    Reserved {
        /// The identity of the file.
        id: TargetId,
        /// How many.
        bytes: Bytes,
    },
    /// Of the reserved bytes, `spent` were really spent; the rest is free again.
    Settled {
        /// The identity of the file.
        id: TargetId,
        /// As in [`Self::Reserved`].
        reserved: Bytes,
        /// How many bytes were written, or may have been.
        spent: Bytes,
    },
    /// More bytes were written.
    Progress {
        /// How many since the last time, over all files.
        bytes: Bytes,
    },
    /// Other files, perhaps of no plan, got new blocks together with one of the run, as they share them.
    MovedAlong(&'a [TargetId]),
    /// Nothing more of a file is moved. What was moved may still be on its way to the device.
    FileDone(&'a FileResult),
    /// The result of a file, once what was moved of all files was written back: one that was done has failed after all where
    /// that could not be done ([`FileError::Unwritten`](super::FileError::Unwritten)). Last of all, once for each plan.
    Result(&'a FileResult),
    /// No new work is begun any more.
    Stopping(StopCause),
    /// The device of a file system has no space for data: nothing more is moved there.
    DeviceFull {
        /// Where it is mounted, if that is known.
        place: Option<&'a Path>,
    },
}

/// A receiver of events. Called from all workers, so it should be quick.
pub trait Observer: Sync {
    /// Something happened.
    fn on(&self, event: RunEvent<'_>);
}

/// Ignores all events.
impl Observer for () {
    fn on(&self, _: RunEvent<'_>) {}
}

impl<F: Fn(RunEvent<'_>) + Sync> Observer for F {
    fn on(&self, event: RunEvent<'_>) {
        self(event);
    }
}
