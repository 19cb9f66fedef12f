//! A probe that failed.

use std::{
    io,
    path::{Path, PathBuf},
};

use indef_fs::FsKind;
use units::Bytes;

/// A probe failed as a whole.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// A file operation failed.
    #[error("{path}: cannot {operation}: {source}", path = path.display())]
    Failed {
        /// The path that was given, or the drive.
        path: PathBuf,
        /// The operation.
        operation: &'static str,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// tmpfs, overlay, network.
    #[error(
        "{path}: {kind} is on no block device that can be found, so there is no drive to probe",
        path = path.display()
    )]
    NoDrive {
        /// The path that was given.
        path: PathBuf,
        /// The kind of the file system.
        kind: FsKind,
    },
    /// Nothing can be written there.
    #[error(
        "{path}: mounted read-only; a probe writes a file of its own (root may name the block device instead, which is only read)",
        path = path.display()
    )]
    ReadOnly {
        /// The path that was given.
        path: PathBuf,
    },
    /// Too full.
    #[error(
        "{path}: {free} are free, and a probe needs {needed} and leaves 5 % of the file system free; make room, or name the block device as root, which is only read",
        path = path.display()
    )]
    Full {
        /// The path that was given.
        path: PathBuf,
        /// Free bytes.
        free: Bytes,
        /// Bytes that are needed.
        needed: Bytes,
    },
    /// No direct I/O.
    #[error(
        "{path}: {kind} does not take direct I/O here, so reads would be of the page cache, not of the drive",
        path = path.display()
    )]
    NotDirect {
        /// The path that was given.
        path: PathBuf,
        /// The kind of the file system.
        kind: String,
    },
    /// Direct I/O was taken, but the drive did not see it.
    #[error(
        "{path}: {device} counted {counted} of the {read} that were read, so reads were of the page cache or of another device",
        path = path.display(), device = device.display()
    )]
    NotOfDrive {
        /// The path that was given.
        path: PathBuf,
        /// The drive.
        device: PathBuf,
        /// Bytes that it counted.
        counted: Bytes,
        /// Bytes that were read.
        read: Bytes,
    },
    /// io_uring is missing.
    #[error(
        "io_uring is not available ({0}), and without it reads cannot be timed; see kernel.io_uring_disabled"
    )]
    NoRing(#[source] io::Error),
    /// A character device, a socket …
    #[error("{path}: is neither a file, a directory nor a block device", path = path.display())]
    NoTarget {
        /// The path that was given.
        path: PathBuf,
    },
    /// Somebody stopped it.
    #[error("stopped")]
    Stopped,
}

/// The error of an operation on this path.
pub(super) fn failed(path: &Path, operation: &'static str) -> impl Fn(io::Error) -> ProbeError {
    let path = path.to_owned();
    move |source| ProbeError::Failed {
        path: path.clone(),
        operation,
        source,
    }
}
