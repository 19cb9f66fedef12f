//! The result of a run.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use indef_core::SkipReason;
use indef_fs::{FsError, Moved, NotTakenBack, Refusal, TargetId};
use units::{Bytes, Nanos};

use super::{ExtentMaps, FileError};

/// How a file ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// All or a part of the planned ranges has new blocks; a reason, if there is one, is why not
    /// all.
    Moved,
    /// Left where it was, which is all right.
    Skipped,
    /// Something went wrong. The contents are whole all the same ([`FileError`]).
    Failed,
}

impl Status {
    /// The word that stands in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Moved => "moved",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Why a file, or a part of it, was not moved.
#[derive(Clone, Debug)]
pub enum Reason {
    /// A skip. Displayed as its word.
    Skip(SkipReason),
    /// An error. Displayed as one line.
    Failed(Arc<FileError>),
    /// Nothing is moved in a dry run.
    DryRun,
}

impl PartialEq for Reason {
    /// Skips are equal by value. An error is equal to itself alone, and to its clones.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Skip(one), Self::Skip(other)) => one == other,
            (Self::Failed(one), Self::Failed(other)) => Arc::ptr_eq(one, other),
            (Self::DryRun, Self::DryRun) => true,
            _ => false,
        }
    }
}

impl Eq for Reason {}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Skip(reason) => reason.fmt(f),
            Self::Failed(error) => error.fmt(f),
            Self::DryRun => f.pad("dry-run"),
        }
    }
}

impl From<Refusal> for Reason {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Skip(reason) => Self::Skip(reason),
            Refusal::Failed(error) => error.into(),
        }
    }
}

impl From<FsError> for Reason {
    fn from(error: FsError) -> Self {
        FileError::from(error).into()
    }
}

impl From<FileError> for Reason {
    fn from(error: FileError) -> Self {
        Self::Failed(Arc::new(error))
    }
}

/// The result of one file.
#[derive(Clone, Debug)]
pub struct FileResult {
    /// Its path, as planned.
    pub path: PathBuf,
    /// The identity of the file.
    pub id: TargetId,
    /// Its file system's name.
    pub fs: Arc<str>,
    /// The engine that moved it, or would have.
    pub engine: Option<&'static str>,
    /// How it ended.
    pub status: Status,
    /// Why not, or why not all of it.
    pub reason: Option<Reason>,
    /// Fragments before: as found right before moving, or as planned if it did not come to that.
    pub extents_before: u64,
    /// Fragments afterwards.
    pub extents_after: u64,
    /// Bytes that a move of all ranges that are worth moving writes, as found right before.
    pub bytes_planned: Bytes,
    /// Bytes that have new blocks.
    pub bytes_relocated: Bytes,
    /// Bytes read through the host.
    pub bytes_host_read: Bytes,
    /// Bytes written through the host.
    pub bytes_host_written: Bytes,
    /// Bytes copied inside the device.
    pub bytes_offloaded: Bytes,
    /// Where space was to be given back: unreachable bytes of the extents that the file let go.
    pub bytes_reclaimed: Bytes,
    /// Other files that share the moved bytes, as before.
    pub holders: u64,
    /// Bytes that another file does not share any more.
    pub bytes_unshared: Bytes,
}

impl FileResult {
    /// Whether the run was stopped before the file was finished.
    #[must_use]
    pub fn is_unfinished(&self) -> bool {
        self.reason == Some(Reason::Skip(SkipReason::Stopped))
    }

    /// Whether what was moved of it could not be written: it may be in memory alone, or in a cache of the device.
    #[must_use]
    pub fn is_unwritten(&self) -> bool {
        match self.error() {
            Some(FileError::Unwritten(_)) => true,
            Some(FileError::Fs(error)) => {
                let source = error.source.get_ref();
                source.is_some_and(|source| source.is::<NotTakenBack>())
            }
            _ => false,
        }
    }

    /// Whether that came out only after the file was done ([`RunEvent::FileDone`](super::RunEvent::FileDone)).
    #[must_use]
    pub fn has_failed_late(&self) -> bool {
        let late =
            |error: &FileError| matches!(error, FileError::Unwritten(_) | FileError::NotDurable(_));
        self.error().is_some_and(late)
    }

    fn error(&self) -> Option<&FileError> {
        match &self.reason {
            Some(Reason::Failed(error)) => Some(error),
            _ => None,
        }
    }
}

/// Sums over all files of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Files of which something moved.
    pub files_moved: u64,
    /// Files left alone.
    pub files_skipped: u64,
    /// Files with an error.
    pub files_failed: u64,
    /// Of these, files of which what was moved may not be durable.
    pub files_unwritten: u64,
    /// Bytes that have new blocks.
    pub bytes_relocated: Bytes,
    /// Bytes read through the host.
    pub bytes_host_read: Bytes,
    /// Bytes written through the host.
    pub bytes_host_written: Bytes,
    /// Bytes copied inside the device.
    pub bytes_offloaded: Bytes,
    /// Unreachable bytes of the extents that were let go.
    pub bytes_reclaimed: Bytes,
}

impl Totals {
    /// Bytes that were written: by us, by the device, or by the kernel itself, which does not tell.
    #[must_use]
    pub fn bytes_written(&self) -> Bytes {
        (self.bytes_host_written + self.bytes_offloaded).max(self.bytes_relocated)
    }

    pub(super) fn add(&mut self, file: &FileResult) {
        *match file.status {
            Status::Moved => &mut self.files_moved,
            Status::Skipped => &mut self.files_skipped,
            Status::Failed => &mut self.files_failed,
        } += 1;
        self.files_unwritten += u64::from(file.is_unwritten());
        self.bytes_relocated += file.bytes_relocated;
        self.bytes_host_read += file.bytes_host_read;
        self.bytes_host_written += file.bytes_host_written;
        self.bytes_offloaded += file.bytes_offloaded;
        self.bytes_reclaimed += file.bytes_reclaimed;
    }
}

/// The cause that ended a run with work left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopCause {
    /// Somebody asked, by a signal for example.
    Cancelled,
    /// The time limit.
    TimeLimit,
    /// The device has no space for data that the file system has space for: nothing more is moved on that file system. The
    /// files for which there was none have failed.
    DeviceFull,
    /// What it does could not be noted for a run that goes on with it
    /// ([`StoredRun::failure`](crate::resume::StoredRun::failure)). Whoever stores a run finds that out, not the run itself.
    Journal,
}

impl StopCause {
    /// The word that stands in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cancelled => "signal",
            Self::TimeLimit => "time-limit",
            Self::DeviceFull => "device-full",
            Self::Journal => "journal",
        }
    }
}

impl fmt::Display for StopCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Cancelled => "stopped on request",
            Self::TimeLimit => "the time limit was reached",
            Self::DeviceFull => "the device has no space left",
            Self::Journal => "its journal could not be written",
        })
    }
}

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct RunResult {
    /// One for each plan, in the order in which they ended.
    pub files: Vec<FileResult>,
    /// Sums over them.
    pub totals: Totals,
    /// How long it took.
    pub duration: Duration,
    /// Set if work is left that another run could do.
    pub stopped: Option<StopCause>,
    /// The longest time for which a step held a file's locks.
    pub longest_lock: Nanos,
    /// Steps that held them longer than they should have.
    pub stalls_over_limit: u64,
    /// The longest time from a change of place to its commit while others had the file open.
    pub longest_uncommitted: Nanos,
    /// Where space was given back: by how many bytes the free space of the file systems grew, after
    /// a sync, whoever else worked there. Whoever runs plans measures it, not the run itself.
    pub free_growth: Option<i64>,
    /// Before and after of the most fragmented files, worst first.
    pub maps: Vec<ExtentMaps>,
}

/// The bytes that were written according to `moved`: by us, by the device, or by the kernel itself.
pub(super) fn written(moved: &Moved) -> Bytes {
    (moved.host_written + moved.offloaded).max(moved.relocated)
}
