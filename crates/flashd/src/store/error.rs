//! Errors of the store.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use units::Bytes;

use super::kind::StoreKind;

/// Waiting for the host's disk, as an operation of [`StoreError::Io`].
pub(super) const SYNC: &str = "sync";

/// The store cannot be opened, or an access failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// No memory for a namespace.
    #[error(
        "no memory for a namespace of {}; make it smaller, or give it a file with --store",
        Bytes(*bytes)
    )]
    Memory {
        /// Size that was asked for.
        bytes: u64,
    },
    /// An operation on the backing file failed.
    #[error("{}: {operation} at {offset_bytes}: {source}{}", path.display(), advice(operation, source))]
    Io {
        /// The backing file.
        path: PathBuf,
        /// The operation.
        operation: &'static str,
        /// The offset in the file.
        offset_bytes: u64,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// Another daemon has it.
    #[error("{}: another flashd uses this store; `flashd status` shows it, stop that one first", path.display())]
    Locked {
        /// The backing file.
        path: PathBuf,
    },
    /// The file cannot be this store.
    #[error("{}: {reason}", path.display())]
    Unusable {
        /// The backing file.
        path: PathBuf,
        /// The reason, and the remedy.
        reason: Box<Unusable>,
    },
    /// The file ends within a namespace.
    #[error(
        "the store ends at byte {file_len}, this namespace at {end}: something has truncated the \
         file; restore it from a copy"
    )]
    Truncated {
        /// Bytes of the file.
        file_len: u64,
        /// One past the last byte of the namespace.
        end: u64,
    },
    /// Records of zones are damaged.
    #[error(
        "the records of {count} zones are damaged, from zone {first} on: these zones are offline"
    )]
    ZoneRecords {
        /// How many.
        count: usize,
        /// The first one, from 0.
        first: usize,
    },
    /// The namespace is out of service since the store was opened.
    #[error("namespace {namespace} is out of service: {damage}")]
    OutOfService {
        /// 1-based identifier.
        namespace: u32,
        /// The damage that was found then.
        damage: Arc<StoreError>,
    },
}

/// Why a file cannot be the store that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// The file is empty.
    #[error("it is empty")]
    Empty,
    /// It is a directory, a device or the like.
    #[error("a store must be a regular file")]
    NoRegularFile,
    /// Foreign, or both superblocks are damaged.
    #[error(
        "this is no flashd store, or both of its superblocks are damaged; it was left as it is"
    )]
    NoStore,
    /// Made by another version.
    #[error("format {found} of the store is not known to this flashd (it knows {known})")]
    OtherFormat {
        /// The format that it has.
        found: u32,
        /// The format of this version.
        known: u32,
    },
    /// Their description does not fit into a superblock.
    #[error("{count} namespaces are more than a store can have")]
    TooMany {
        /// Namespaces.
        count: usize,
    },
    /// It has another number of namespaces.
    #[error(
        "it holds {there} namespaces and {asked} were asked for; leave out --namespace to take its \
         own, or use another file"
    )]
    OtherCount {
        /// Namespaces in the file.
        there: usize,
        /// Namespaces that were asked for.
        asked: usize,
    },
    /// A namespace has another kind or size.
    #[error(
        "namespace {number} there is {there}, and {asked} was asked for; use the same --namespace, \
         --block-size and zone sizes, or another file"
    )]
    OtherKind {
        /// 1-based identifier.
        number: u32,
        /// The namespace in the file.
        there: StoreKind,
        /// The namespace that was asked for.
        asked: StoreKind,
    },
}

/// Kind of a failed access, for the status that a host gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFault {
    /// No space left for data below.
    Full,
    /// Reading or writing failed.
    Media,
}

impl StoreError {
    pub(super) fn unusable(path: &Path, reason: Unusable) -> Self {
        Self::Unusable {
            path: path.to_owned(),
            reason: Box::new(reason),
        }
    }

    pub(super) fn io(
        path: &Path,
        operation: &'static str,
        offset_bytes: u64,
        source: io::Error,
    ) -> Self {
        Self::Io {
            path: path.to_owned(),
            operation,
            offset_bytes,
            source: Arc::new(source),
        }
    }

    /// The kind of failure, for a host.
    #[must_use]
    pub fn fault(&self) -> StoreFault {
        match self {
            Self::Io { source, .. } if is_full(source) => StoreFault::Full,
            _ => StoreFault::Media,
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

fn advice(operation: &str, error: &io::Error) -> &'static str {
    if operation == SYNC {
        "; the host may have dropped data that it had taken, so nothing is told as flushed until flashd starts again"
    } else if is_full(error) {
        "; make room on that file system, then flush again: nothing that was accepted is forgotten"
    } else if error.kind() == io::ErrorKind::UnexpectedEof {
        "; the file is shorter than it was: something else has truncated it"
    } else {
        ""
    }
}
