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
mod format;
mod handle;
mod merge;
mod model;
mod pages;
mod read;
mod schema;
mod shrink;
#[cfg(test)]
mod tests;
mod time;
mod transaction;

pub use error::{StoreError, StoreProblem};
pub use handle::Store;
pub use model::{
    DEFAULT_HALF_LIFE, DEFAULT_MAX_SIZE, Heat, SMALLEST, Session, SessionId, SessionInfo,
    StoreOptions,
};
pub use read::Settings;
