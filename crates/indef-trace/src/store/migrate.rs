//! From the tables of earlier versions to those of this one.
//!
//! A store of an earlier version is read as it is. The first process that opens it for adding changes
//! it, in one transaction: killed, or on a full disk, it stays of the earlier version, with all that it
//! holds. Meanwhile the disk needs room for the ranges once more for versions 1 and 2, for files and sessions for the others.

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::{
    format::VERSION,
    tables::{RANGES, RANGES_SEALED, SAMPLED, SETTINGS, Sealed, UNKNOWN_AHEAD, user_version},
};

/// Bring the store to this version. It has the tables of the version that it is marked with.
pub(super) fn migrate(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have done it.
    let version = user_version(&transaction)?;
    if version == VERSION {
        return Ok(());
    }
    if version < SAMPLED {
        remake_ranges(&transaction)?;
        add_column(
            &transaction,
            Sealed::Sessions,
            "one_in REAL NOT NULL DEFAULT 1",
        )?;
    }
    if version < RANGES_SEALED {
        add_column(&transaction, Sealed::Sessions, "common_error REAL")?;
    }
    renumber_running(&transaction)?;
    add_checksums(&transaction)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()?;
    if version < SAMPLED {
        // The old table's pages are free now. If the file cannot be rewritten, they are used later.
        let _ = connection.execute_batch("VACUUM");
    }
    Ok(())
}

/// SQLite adds a column to the statement of the table as it is written in the schema.
fn add_column(transaction: &Transaction<'_>, table: Sealed, column: &str) -> rusqlite::Result<()> {
    let add = format!("ALTER TABLE {} ADD COLUMN {column}", table.name());
    transaction.execute_batch(&add)
}

/// Make the table of ranges anew, with new checksums. Those that it had were checked.
fn remake_ranges(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    let counts = format!("reads, writes, requests, timed, time_ns, {UNKNOWN_AHEAD}");
    transaction.execute_batch(&format!(
        "ALTER TABLE ranges RENAME TO ranges_before; {RANGES}; \
         INSERT INTO ranges SELECT file, start, len, {counts}, \
         row_checksum(file, start, len, {counts}) FROM ranges_before \
         ORDER BY file, start, len; \
         DROP TABLE ranges_before"
    ))
}

/// Give sessions that have not ended another number, which no session had. A program of an earlier version that has the store open
/// cannot add to it any more, as the settings have other columns; but it would end its session, or note what it sampled, without a
/// checksum. So it finds none of that number.
fn renumber_running(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    let most = "SELECT ifnull(max(id), 0) FROM sessions";
    let most: i64 = transaction.query_row(most, [], |row| row.get(0))?;
    let running = "SELECT id FROM sessions WHERE ended_ns IS NULL";
    let files = format!("UPDATE files SET session = session + ?1 WHERE session IN ({running})");
    transaction.execute(&files, [most])?;
    transaction.execute(
        "UPDATE sessions SET id = id + ?1 WHERE ended_ns IS NULL",
        [most],
    )?;
    Ok(())
}

/// Give the other tables theirs. What their rows held until now is believed.
fn add_checksums(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    transaction.execute_batch(&format!(
        "ALTER TABLE settings RENAME TO settings_before; {SETTINGS}; \
         INSERT INTO settings SELECT one, half_life_ns, epoch_ns, max_size, \
         values_checksum(half_life_ns, epoch_ns, max_size) FROM settings_before; \
         DROP TABLE settings_before"
    ))?;
    for table in [Sealed::Sessions, Sealed::Files] {
        add_column(transaction, table, "checksum INTEGER NOT NULL DEFAULT 0")?;
        let (name, checksum) = (table.name(), table.checksum());
        transaction.execute(&format!("UPDATE {name} SET checksum = {checksum}"), [])?;
    }
    Ok(())
}
