//! What was learned, kept: one SQLite database for all traces.
//!
//! Files, the ranges of each with their heat, and the sessions in which they were seen. Traces add
//! up: an equal range of the same file is one row. Heat decays with a half-life. The file on disk
//! never grows beyond a size; the coldest ranges go first, then files without any.
//!
//! **What it withstands.** A store is one file, with a rollback journal beside it only while a
//! transaction runs; that journal, and not a write-ahead log, because
//! - one file can be copied, moved and read at any time, also by a user who may not write where it
//!   lies (a log's index must be writable by its readers, and a log that was left behind holds
//!   transactions that the file alone lacks),
//! - the size bound holds for all of it, which a log that readers keep from being cleared breaks,
//! - adding takes place every few seconds, so a log's speed gains nothing.
//!
//! Killed at any moment, it holds all transactions that were complete: the next one that opens it
//! rolls back the rest (it must be allowed to write for that). On a full disk a transaction is
//! rolled back at once, and may be given again. Writers take turns, readers see a state between two
//! transactions; each waits some seconds for the others, then says that the store is locked.
//!
//! **What it takes for a file.** File system UUID, inode, generation and subvolume: the device number
//! may change with every boot. Where there is no UUID, the device number. Two mounted file systems
//! that are bytewise copies of each other are taken for one.
//!
//! **What it ignores.** How ranges overlap: they are merged when they are loaded for a plan, where
//! the size of a request is known.

mod add;
mod decay;
mod error;
mod merge;
mod read;
mod schema;
mod shrink;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use indef_core::access::AccessRange;
use rusqlite::Connection;
use units::Bytes;

pub use error::{StoreError, StoreProblem};
pub use read::Settings;

use crate::{FileKey, TracedFile};
use error::Result;

/// How a store behaves. What is `None` stays as it is in a store that is there already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreOptions {
    /// After this time, an access counts half; zero: heat never decays. A new store gets
    /// [`DEFAULT_HALF_LIFE`].
    pub half_life: Option<Duration>,
    /// The file never grows beyond this; at least [`SMALLEST`]. A new store gets
    /// [`DEFAULT_MAX_SIZE`].
    pub max_size: Option<Bytes>,
}

/// Half-life of a new store: a week, so that what is read on workdays outlives the weekend.
pub const DEFAULT_HALF_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);

/// Largest size of a new store: some four million ranges.
pub const DEFAULT_MAX_SIZE: Bytes = Bytes::mib(256);

/// The smallest [`StoreOptions::max_size`]; less is taken for it.
pub const SMALLEST: Bytes = Bytes::kib(256);

/// Where accesses were seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionInfo {
    /// The layer, by name: `fs`, `syscall`, or where an import came from.
    pub layer: String,
    /// What was traced, for people.
    pub command: String,
    /// Release of the kernel that it ran on.
    pub kernel: String,
}

/// A session's number in its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub i64);

/// A session that a store remembers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Its number.
    pub id: SessionId,
    /// What it was.
    pub info: SessionInfo,
    /// When it began.
    pub began: SystemTime,
    /// When it last added something.
    pub latest: SystemTime,
    /// When it ended; `None` while it runs, or if it was killed.
    pub ended: Option<SystemTime>,
    /// Reads that it added, as they were counted then.
    pub reads: u64,
    /// Writes likewise.
    pub writes: u64,
    /// Events that it knows it missed.
    pub lost: u64,
}

/// What a store holds at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heat {
    /// Every file that has ranges.
    pub files: Vec<TracedFile>,
    /// Each range with the index of its file; by file, then start, then length. Counts are rounded,
    /// and none has neither reads nor writes.
    pub ranges: Vec<(u32, AccessRange)>,
}

/// One store, open.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    connection: Connection,
    /// To be set when a session begins.
    options: StoreOptions,
    /// Numbers of the files that were added through this connection.
    files: HashMap<FileKey, i64>,
}

impl Store {
    /// Open a store for adding; make it if it is not there.
    ///
    /// # Errors
    ///
    /// What is there is no store, another version's, damaged or locked; it cannot be made.
    pub fn create(path: &Path, options: &StoreOptions) -> Result<Self> {
        let half_life = options.half_life.unwrap_or(DEFAULT_HALF_LIFE);
        let max_size = options.max_size.unwrap_or(DEFAULT_MAX_SIZE);
        let new = [
            nanos(half_life),
            since_1970(SystemTime::now()),
            i64::try_from(max_size.0).unwrap_or(i64::MAX),
        ];
        Self::opened(path, *options, Some(new))
    }

    /// Open a store for reading.
    ///
    /// # Errors
    ///
    /// There is none, or something else, or it is another version's, damaged or locked.
    pub fn open(path: &Path) -> Result<Self> {
        Self::opened(path, StoreOptions::default(), None)
    }

    /// Whether the file is a store and no profile of lines, as far as its first bytes tell.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub fn is_store(path: &Path) -> io::Result<bool> {
        schema::is_store(path)
    }

    fn opened(path: &Path, options: StoreOptions, new: Option<[i64; 3]>) -> Result<Self> {
        // Absolute, because SQLite gives some names a meaning of their own.
        let path = std::path::absolute(path).map_err(|error| StoreError::io(path, &error))?;
        Ok(Self {
            connection: schema::open(&path, new)?,
            path,
            options,
            files: HashMap::new(),
        })
    }
}

/// Nanoseconds since 1970; the ends of the number line for what lies behind them.
fn since_1970(time: SystemTime) -> i64 {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => nanos(after),
        Err(before) => -nanos(before.duration()),
    }
}

fn at_nanos(since_1970: i64) -> SystemTime {
    let span = Duration::from_nanos(since_1970.unsigned_abs());
    match since_1970 {
        0.. => SystemTime::UNIX_EPOCH + span,
        _ => SystemTime::UNIX_EPOCH - span,
    }
}

fn nanos(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}
