//! What can go wrong with the store.

use std::{
    io,
    path::{Path, PathBuf},
};

use units::Bytes;

/// The store cannot be opened, or an access failed.
#[derive(Debug, thiserror::Error)]
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
    #[error("{}: {operation} at {offset_bytes}: {source}{}", path.display(), advice(source))]
    Io {
        /// The backing file.
        path: PathBuf,
        /// What was done.
        operation: &'static str,
        /// Where in the file.
        offset_bytes: u64,
        /// What the system said.
        source: io::Error,
    },
    /// Another daemon has it.
    #[error("{}: another flashd uses this store; `flashd status` shows it, stop that one first", path.display())]
    Locked {
        /// The backing file.
        path: PathBuf,
    },
    /// The file is something else.
    #[error("{}: {reason}", path.display())]
    Unusable {
        /// The backing file.
        path: PathBuf,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// The namespace is out of service since the store was opened.
    #[error("namespace {namespace} is out of service: {reason}")]
    OutOfService {
        /// 1-based identifier.
        namespace: u32,
        /// What is damaged.
        reason: String,
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
            source,
        }
    }

    /// What a host should be told.
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

fn advice(error: &io::Error) -> &'static str {
    if is_full(error) {
        "; make room on that file system, then flush again: nothing that was accepted is forgotten"
    } else if error.kind() == io::ErrorKind::UnexpectedEof {
        "; the file is shorter than it was: something else has truncated it"
    } else {
        ""
    }
}
