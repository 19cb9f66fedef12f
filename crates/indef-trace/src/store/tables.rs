//! The tables of this version and of earlier ones.

use rusqlite::Connection;

/// The version without checksums.
pub(super) const UNCHECKED: i64 = 1;

/// The version without requests ahead of timed reads, in which every session had counted each access,
/// or did not tell.
pub(super) const CHECKED: i64 = 2;

/// The version without the error that all counts of a session share.
pub(super) const SAMPLED: i64 = 3;

/// The requests ahead of the timed reads of a range of those versions, as SQL: they are not known.
pub(super) const UNKNOWN_AHEAD: &str = "iif(timed > 0, NULL, 0.0)";

/// SQLite keeps each statement literally, so that a store is recognised by them.
///
/// - `files.identity` never changes (see `identity` in the module `add`).
/// - The counts of `ranges` are as of the epoch in `settings` (see the module `decay`).
/// - A session without an end is running, or was killed.
pub(super) const TABLES: [(&str, &str); 4] = [
    (
        "settings",
        "CREATE TABLE settings (one INTEGER PRIMARY KEY CHECK (one = 1), half_life_ns INTEGER NOT NULL, \
         epoch_ns INTEGER NOT NULL, max_size INTEGER NOT NULL)",
    ),
    ("sessions", SESSIONS),
    (
        "files",
        "CREATE TABLE files (id INTEGER PRIMARY KEY, identity BLOB NOT NULL UNIQUE, dev INTEGER NOT NULL, \
         inode INTEGER NOT NULL, generation INTEGER NOT NULL, subvolume INTEGER NOT NULL, uuid BLOB NOT NULL, \
         magic INTEGER NOT NULL, path BLOB, session INTEGER NOT NULL)",
    ),
    ("ranges", RANGES),
];

pub(super) const RANGES: &str = "CREATE TABLE ranges (file INTEGER NOT NULL, start INTEGER NOT NULL, \
     len INTEGER NOT NULL, reads REAL NOT NULL, writes REAL NOT NULL, requests REAL NOT NULL, \
     timed REAL NOT NULL, time_ns REAL NOT NULL, ahead REAL, checksum INTEGER NOT NULL, \
     PRIMARY KEY (file, start, len)) WITHOUT ROWID";

/// The same table in version 2.
pub(super) const RANGES_CHECKED: &str = "CREATE TABLE ranges (file INTEGER NOT NULL, start INTEGER NOT NULL, \
     len INTEGER NOT NULL, reads REAL NOT NULL, writes REAL NOT NULL, requests REAL NOT NULL, \
     timed REAL NOT NULL, time_ns REAL NOT NULL, checksum INTEGER NOT NULL, \
     PRIMARY KEY (file, start, len)) WITHOUT ROWID";

/// One in `one_in` accesses was counted (1: each), as a mean over the accesses. `common_error` is the part
/// of the relative standard error that all counts of the session share; null: not known.
pub(super) const SESSIONS: &str = "CREATE TABLE sessions (id INTEGER PRIMARY KEY, began_ns INTEGER NOT NULL, \
     latest_ns INTEGER NOT NULL, ended_ns INTEGER, layer TEXT NOT NULL, command TEXT NOT NULL, \
     kernel TEXT NOT NULL, reads INTEGER NOT NULL, writes INTEGER NOT NULL, lost INTEGER NOT NULL, \
     one_in REAL NOT NULL DEFAULT 1, common_error REAL)";

/// The same table in version 3.
pub(super) const SESSIONS_SAMPLED: &str = "CREATE TABLE sessions (id INTEGER PRIMARY KEY, began_ns INTEGER NOT NULL, \
     latest_ns INTEGER NOT NULL, ended_ns INTEGER, layer TEXT NOT NULL, command TEXT NOT NULL, \
     kernel TEXT NOT NULL, reads INTEGER NOT NULL, writes INTEGER NOT NULL, lost INTEGER NOT NULL, \
     one_in REAL NOT NULL DEFAULT 1)";

/// The same table in versions 1 and 2.
pub(super) const SESSIONS_EXACT: &str = "CREATE TABLE sessions (id INTEGER PRIMARY KEY, began_ns INTEGER NOT NULL, \
     latest_ns INTEGER NOT NULL, ended_ns INTEGER, layer TEXT NOT NULL, command TEXT NOT NULL, \
     kernel TEXT NOT NULL, reads INTEGER NOT NULL, writes INTEGER NOT NULL, lost INTEGER NOT NULL)";

/// The table of ranges in version 1.
pub(super) const RANGES_UNCHECKED: &str = "CREATE TABLE ranges (file INTEGER NOT NULL, start INTEGER NOT NULL, \
     len INTEGER NOT NULL, reads REAL NOT NULL, writes REAL NOT NULL, requests REAL NOT NULL, \
     timed REAL NOT NULL, time_ns REAL NOT NULL, PRIMARY KEY (file, start, len)) WITHOUT ROWID";

/// The version that a store is marked with.
pub(super) fn user_version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}
