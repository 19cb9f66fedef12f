//! The tables of this version and of earlier ones.

use rusqlite::Connection;

use super::format::VERSION;

/// The version without checksums.
pub(super) const UNCHECKED: i64 = 1;

/// The version without requests ahead of timed reads, in which every session had counted each access,
/// or did not tell.
pub(super) const CHECKED: i64 = 2;

/// The version without the error that all counts of a session share.
pub(super) const SAMPLED: i64 = 3;

/// The version with checksums of ranges alone.
pub(super) const RANGES_SEALED: i64 = 4;

/// The requests ahead of the timed reads of a range of those versions, as SQL: they are not known.
pub(super) const UNKNOWN_AHEAD: &str = "iif(timed > 0, NULL, 0.0)";

/// The tables of a version. SQLite keeps each statement literally, so that a store is recognised by them. `None`: there is no such
/// version.
///
/// - `files.identity` never changes (see `identity` in the module `add`).
/// - The counts of `ranges` are as of `as_of_ns` in `settings` (see the module `decay`). Earlier versions have another name for it, so
///   that a program of one of these that has the store open when it is changed adds nothing without checksums.
/// - A session without an end is running, or was killed.
pub(super) fn tables(version: i64) -> Option<[(&'static str, &'static str); 4]> {
    let (settings, sessions, files, ranges) = match version {
        VERSION => (SETTINGS, SESSIONS, FILES, RANGES),
        RANGES_SEALED => (SETTINGS_PLAIN, SESSIONS_PLAIN, FILES_PLAIN, RANGES),
        SAMPLED => (SETTINGS_PLAIN, SESSIONS_SAMPLED, FILES_PLAIN, RANGES),
        CHECKED => (SETTINGS_PLAIN, SESSIONS_EXACT, FILES_PLAIN, RANGES_CHECKED),
        UNCHECKED => (
            SETTINGS_PLAIN,
            SESSIONS_EXACT,
            FILES_PLAIN,
            RANGES_UNCHECKED,
        ),
        _ => return None,
    };
    Some([
        ("settings", settings),
        ("sessions", sessions),
        ("files", files),
        ("ranges", ranges),
    ])
}

/// A table whose rows have values of all types, and a checksum since version 5.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sealed {
    Settings,
    Sessions,
    Files,
}

impl Sealed {
    pub(super) const ALL: [Self; 3] = [Self::Settings, Self::Sessions, Self::Files];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Settings => "settings",
            Self::Sessions => "sessions",
            Self::Files => "files",
        }
    }

    /// The checksum that a row has to have, as SQL.
    pub(super) fn checksum(self) -> &'static str {
        match self {
            Self::Settings => "values_checksum(half_life_ns, as_of_ns, max_size)",
            Self::Sessions => {
                "values_checksum(id, began_ns, latest_ns, ended_ns, layer, command, kernel, reads, writes, lost, \
                 one_in, common_error)"
            }
            Self::Files => {
                "values_checksum(id, identity, dev, inode, generation, subvolume, uuid, magic, path, session)"
            }
        }
    }

    /// Whether a row of a store of this version has it, as SQL.
    pub(super) fn is_whole(self, version: i64) -> String {
        match version {
            VERSION => format!("checksum = {}", self.checksum()),
            _ => "1".to_owned(),
        }
    }

    /// What a statement that changes a row sets beside: a damaged row gets no checksum, which the table refuses, and any other
    /// one that of [`seal`](super::checksum::seal).
    pub(super) fn checked(self) -> String {
        format!("checksum = iif(checksum = {}, 0, NULL)", self.checksum())
    }
}

pub(super) const SETTINGS: &str = "CREATE TABLE settings (one INTEGER PRIMARY KEY CHECK (one = 1), half_life_ns INTEGER NOT NULL, \
     as_of_ns INTEGER NOT NULL, max_size INTEGER NOT NULL, checksum INTEGER NOT NULL)";

/// The same table in versions 1 to 4.
const SETTINGS_PLAIN: &str = "CREATE TABLE settings (one INTEGER PRIMARY KEY CHECK (one = 1), half_life_ns INTEGER NOT NULL, \
     epoch_ns INTEGER NOT NULL, max_size INTEGER NOT NULL)";

const FILES: &str = "CREATE TABLE files (id INTEGER PRIMARY KEY, identity BLOB NOT NULL UNIQUE, dev INTEGER NOT NULL, \
     inode INTEGER NOT NULL, generation INTEGER NOT NULL, subvolume INTEGER NOT NULL, uuid BLOB NOT NULL, \
     magic INTEGER NOT NULL, path BLOB, session INTEGER NOT NULL, checksum INTEGER NOT NULL DEFAULT 0)";

/// The same table in versions 1 to 4.
const FILES_PLAIN: &str = "CREATE TABLE files (id INTEGER PRIMARY KEY, identity BLOB NOT NULL UNIQUE, dev INTEGER NOT NULL, \
     inode INTEGER NOT NULL, generation INTEGER NOT NULL, subvolume INTEGER NOT NULL, uuid BLOB NOT NULL, \
     magic INTEGER NOT NULL, path BLOB, session INTEGER NOT NULL)";

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
const SESSIONS: &str = "CREATE TABLE sessions (id INTEGER PRIMARY KEY, began_ns INTEGER NOT NULL, \
     latest_ns INTEGER NOT NULL, ended_ns INTEGER, layer TEXT NOT NULL, command TEXT NOT NULL, \
     kernel TEXT NOT NULL, reads INTEGER NOT NULL, writes INTEGER NOT NULL, lost INTEGER NOT NULL, \
     one_in REAL NOT NULL DEFAULT 1, common_error REAL, checksum INTEGER NOT NULL DEFAULT 0)";

/// The same table in version 4.
const SESSIONS_PLAIN: &str = "CREATE TABLE sessions (id INTEGER PRIMARY KEY, began_ns INTEGER NOT NULL, \
     latest_ns INTEGER NOT NULL, ended_ns INTEGER, layer TEXT NOT NULL, command TEXT NOT NULL, \
     kernel TEXT NOT NULL, reads INTEGER NOT NULL, writes INTEGER NOT NULL, lost INTEGER NOT NULL, \
     one_in REAL NOT NULL DEFAULT 1, common_error REAL)";

/// The same table in version 3.
const SESSIONS_SAMPLED: &str = "CREATE TABLE sessions (id INTEGER PRIMARY KEY, began_ns INTEGER NOT NULL, \
     latest_ns INTEGER NOT NULL, ended_ns INTEGER, layer TEXT NOT NULL, command TEXT NOT NULL, \
     kernel TEXT NOT NULL, reads INTEGER NOT NULL, writes INTEGER NOT NULL, lost INTEGER NOT NULL, \
     one_in REAL NOT NULL DEFAULT 1)";

/// The same table in versions 1 and 2.
const SESSIONS_EXACT: &str = "CREATE TABLE sessions (id INTEGER PRIMARY KEY, began_ns INTEGER NOT NULL, \
     latest_ns INTEGER NOT NULL, ended_ns INTEGER, layer TEXT NOT NULL, command TEXT NOT NULL, \
     kernel TEXT NOT NULL, reads INTEGER NOT NULL, writes INTEGER NOT NULL, lost INTEGER NOT NULL)";

/// The table of ranges in version 1.
const RANGES_UNCHECKED: &str = "CREATE TABLE ranges (file INTEGER NOT NULL, start INTEGER NOT NULL, \
     len INTEGER NOT NULL, reads REAL NOT NULL, writes REAL NOT NULL, requests REAL NOT NULL, \
     timed REAL NOT NULL, time_ns REAL NOT NULL, PRIMARY KEY (file, start, len)) WITHOUT ROWID";

/// The version that a store is marked with.
pub(super) fn user_version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}
