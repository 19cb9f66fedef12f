//! The profile store: one SQLite database for all traces.
//!
//! It holds files, the ranges of each with their heat, and the sessions in which they were seen.
//! Traces add up: an equal range of the same file is one row. Heat decays with a half-life. The file
//! on disk never grows beyond a size; the coldest ranges go first, then files without any.
//!
//! **Failures.** A store is one file, with a rollback journal beside it only while a transaction runs;
//! it uses that journal, and not a write-ahead log, because
//! - one file can be copied, moved and read at any time, also by a user who may not write to its
//!   folder (a log's index must be writable by its readers, and a log that was left behind holds
//!   transactions that the file alone lacks),
//! - the size bound holds for all of it, but not for a log that readers keep from being cleared,
//! - tallies are added every few seconds, so a log's speed gains nothing.
//!
//! If a writer is killed at any moment, the store holds all transactions that were complete: the next
//! process that opens it rolls back the rest (and needs permission to write for that). On a full disk
//! a transaction is rolled back at once, and may be repeated. Writers take turns, readers see a state
//! between two transactions; each waits some seconds for the others, then reports that the store is
//! locked.
//!
//! **Identity.** A file is known by file system UUID, inode, generation and subvolume, as the device
//! number may change with every boot; where there is no UUID, by the device number. Two mounted file
//! systems that are bytewise copies of each other count as one.
//!
//! **Damage.** Each row has a checksum. All of a store is examined when it is opened for adding, and
//! what is loaded is examined when it is loaded; a damaged one is refused, and left as it is.
//!
//! **Not done here.** Overlapping ranges are merged when they are loaded for a plan, where the size of
//! a request is known.

mod add;
mod checksum;
mod decay;
mod error;
mod forget;
mod format;
mod handle;
mod merge;
mod migrate;
mod model;
mod pages;
mod read;
mod schema;
mod shrink;
mod tables;
#[cfg(test)]
mod tests;
mod time;
mod transaction;

pub use error::{Cause, Damage, Foreign, StoreError, StoreProblem};
pub use handle::Store;
pub use model::{
    DEFAULT_HALF_LIFE, DEFAULT_MAX_SIZE, Heat, SMALLEST, Session, SessionId, SessionInfo,
    StoreOptions,
};
pub use read::{Settings, counted, counted_in_parts};
