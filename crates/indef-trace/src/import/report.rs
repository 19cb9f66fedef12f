//! The options of an import, its results and errors.

use std::{io, path::PathBuf};

use indef_core::profile::ProfileError;

use super::{block_map::BlockMap, format::Format};

/// The facts that an importer needs besides the trace.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// The folder in which the traced program was started: relative paths begin there.
    pub folder: PathBuf,
    /// Which file lies where on the device, for traces of devices.
    pub blocks: BlockMap,
}

/// The result of importing a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Lines read.
    pub lines: u64,
    /// Accesses and ranges handed out.
    pub accesses: u64,
    /// Lines that were not understood.
    pub unknown: u64,
    /// The first of them: its number and its text, short and printable.
    pub first_unknown: Option<(u64, String)>,
    /// Accesses whose file or offset the trace does not tell.
    pub unplaced: u64,
}

/// A trace cannot be imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// Reading it failed.
    #[error("cannot be read: {0}")]
    Read(#[from] io::Error),
    /// It has another format.
    #[error("this is no {0} trace; name what it is with --format")]
    Foreign(Format),
    /// A version that is not known.
    #[error("fio iolog version {0}, but versions 2 and 3 can be read; write it with another fio")]
    FioVersion(String),
    /// A damaged profile of lines: its lines are never skipped, as they are exact.
    #[error("{0}")]
    Profile(#[from] ProfileError),
}
