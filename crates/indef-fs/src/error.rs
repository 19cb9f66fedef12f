//! Errors that name the operation that failed, the file and the place; and refusals, which are
//! results.

use std::{io, path::PathBuf};

use indef_core::SkipReason;
use units::{Bytes, FileOffset};

/// An operation on a file failed.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {operation} failed{place}: {source}", path = path.display(), place = place(*offset))]
pub struct FsError {
    /// The file.
    pub path: PathBuf,
    /// The operation, as a person would name it: `map extents`, `move extents`.
    pub operation: &'static str,
    /// Where in the file, if it matters.
    pub offset: Option<FileOffset>,
    /// The kernel's error.
    #[source]
    pub source: io::Error,
}

impl FsError {
    /// An error that does not belong to a place in the file.
    pub fn new(
        path: impl Into<PathBuf>,
        operation: &'static str,
        source: impl Into<io::Error>,
    ) -> Self {
        Self {
            path: path.into(),
            operation,
            offset: None,
            source: source.into(),
        }
    }

    /// The finding that is its source, or that of data that was not taken back, where that has no errno.
    #[must_use]
    pub fn finding(&self) -> Option<Finding> {
        finding(&self.source)
    }
}

pub(crate) fn finding(error: &io::Error) -> Option<Finding> {
    let source = error.get_ref()?;
    match source.downcast_ref::<NotTakenBack>() {
        Some(left) => finding(&left.source),
        None => source.downcast_ref().copied(),
    }
}

/// A finding that has no errno: the source of an [`FsError`], as a value inside of its
/// [`io::Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Finding {
    /// A directory cannot be opened again by its descriptor.
    #[error("/proc is not mounted")]
    NoProc,
    /// The path names something else.
    #[error("it is no block device")]
    NoBlockDevice,
    /// The device of a mounted F2FS.
    #[error("it has no superblock of F2FS")]
    NoF2fs,
    /// A file is not where its first request was.
    #[error("it is on another device")]
    OtherDevice,
    /// A status that is not in the header.
    #[error("the kernel gave the unknown status {0}")]
    UnknownStatus(u32),
    /// F2FS writes no checkpoint that would make moved data durable.
    #[error(
        "the file system is mounted with checkpoint=disable: what moved since the last checkpoint is durable when checkpoints \
         are on again"
    )]
    CheckpointsOff,
    /// The same, for another reason.
    #[error("the file system is read-only now: whether the moved data is durable is not known")]
    ReadOnlyNow,
    /// ENOSPC for data that has its blocks.
    #[error(
        "the device has no space left for what the file system has space for: is the pool of a thin volume full?"
    )]
    DeviceFull,
    /// Nobody has the answer of a call.
    #[error("the worker that made the call panicked")]
    Panicked,
    /// The donor has other holes than the file.
    #[error("it does not cover the same ranges")]
    OtherRanges,
    /// The device copied to where the donor was before.
    #[error(
        "the donor's blocks were moved by somebody else during the copy; blocks of other files may have \
         been overwritten: check them"
    )]
    DonorMoved,
}

/// Data that had moved could not be written, and is perhaps not back where it was, either: its pages could not be pinned and
/// were reclaimed, somebody took them out of the file, or the way back failed. The source of an [`FsError`].
#[derive(Debug, thiserror::Error)]
#[error(
    "{source}; up to {bytes} may be in memory alone, or lost: compare the file with a backup, or copy it elsewhere \
     before the machine is switched off"
)]
pub struct NotTakenBack {
    /// All that this may concern.
    pub bytes: Bytes,
    /// Why it could not be written.
    pub source: io::Error,
}

impl From<NotTakenBack> for io::Error {
    fn from(left: NotTakenBack) -> Self {
        Self::other(left)
    }
}

/// F2FS could not write the checkpoint that makes moved data durable. The last one has the blocks from before, which nothing
/// else is written to until there is another one. The source of an [`FsError`].
#[derive(Debug, thiserror::Error)]
#[error(
    "{source}; what moved since the last checkpoint may be back at its old place after the next mount, and has its contents there"
)]
pub struct NoCheckpoint {
    /// Why it could not.
    pub source: io::Error,
}

impl From<NoCheckpoint> for io::Error {
    fn from(none: NoCheckpoint) -> Self {
        Self::other(none)
    }
}

impl From<Finding> for io::Error {
    fn from(finding: Finding) -> Self {
        Self::other(finding)
    }
}

fn place(offset: Option<FileOffset>) -> String {
    offset.map_or_else(String::new, |offset| format!(" at byte {offset}"))
}

/// A file or a range stays where it is: a reason to skip it, or an error.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// Not moved, and that is all right.
    #[error("{0}")]
    Skip(SkipReason),
    /// Not moved because something failed.
    #[error(transparent)]
    Failed(#[from] FsError),
}

impl From<SkipReason> for Refusal {
    fn from(reason: SkipReason) -> Self {
        Self::Skip(reason)
    }
}
