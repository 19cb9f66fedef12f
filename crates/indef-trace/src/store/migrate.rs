//! From the tables of earlier versions to those of this one.
//!
//! A store of an earlier version is read as it is. The first process that opens it for adding changes
//! it, in one transaction: killed, or on a full disk, it stays of the earlier version, with all that it
//! holds. The disk needs room for the ranges once more meanwhile.

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::{
    format::VERSION,
    schema::{RANGES, user_version},
};

/// The version without checksums.
pub(super) const UNCHECKED: i64 = 1;

/// The version in which every session had counted each access, or did not tell.
pub(super) const EXACT: i64 = 2;

/// Bring the store to this version. It has the tables of the version that it is marked with.
pub(super) fn migrate(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have done it.
    let version = user_version(&transaction)?;
    if version == VERSION {
        return Ok(());
    }
    if version == UNCHECKED {
        add_checksums(&transaction)?;
    }
    // SQLite adds the column to the statement of the table as it is written in the schema.
    transaction.execute(
        "ALTER TABLE sessions ADD COLUMN one_in REAL NOT NULL DEFAULT 1",
        [],
    )?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()?;
    if version == UNCHECKED {
        // The old table's pages are free now. If the file cannot be rewritten, they are used later.
        let _ = connection.execute_batch("VACUUM");
    }
    Ok(())
}

fn add_checksums(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    transaction.execute_batch(&format!(
        "ALTER TABLE ranges RENAME TO ranges_1; {RANGES}; \
         INSERT INTO ranges SELECT file, start, len, reads, writes, requests, timed, time_ns, \
         row_checksum(file, start, len, reads, writes, requests, timed, time_ns) FROM ranges_1 \
         ORDER BY file, start, len; \
         DROP TABLE ranges_1"
    ))
}
