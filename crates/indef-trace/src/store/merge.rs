//! Adding one store to another.

use std::{collections::HashMap, time::SystemTime};

use rusqlite::{Transaction, params};

use super::{
    add::{Row, put_file, put_rows},
    checksum::seal,
    error::Result,
    handle::Store,
    model::{Session, SessionId},
    read::settings,
    tables::Sealed,
    time::since_1970,
    transaction::Stop,
};

/// Rows that are held at a time.
const BATCH: usize = 64 << 10;

impl Store {
    /// Add the contents of another store, with the heat that is left at `now`, and its sessions: all
    /// of them or, with an error, nothing.
    ///
    /// # Errors
    ///
    /// Either store is locked or damaged; this one cannot be written.
    pub fn merge(&mut self, other: &Self, now: SystemTime) -> Result<()> {
        let now = since_1970(now);
        let sessions = other.sessions()?;
        self.bounded(|transaction, updates_only| {
            let latest = put_sessions(transaction, &sessions)?;
            let weight = settings(transaction)?.decay.weight(now);
            let mut numbers = HashMap::new();
            let mut part = Vec::with_capacity(BATCH);
            other.rows::<Stop>(|(number, file), range, counts, decay| {
                let file = match numbers.get(number) {
                    Some(ours) => *ours,
                    None => {
                        let ours = put_file(transaction, file, latest)?;
                        numbers.insert(*number, ours);
                        ours
                    }
                };
                let left = weight / decay.weight(now);
                part.push(Row {
                    file,
                    start: range.start.0.cast_signed(),
                    len: range.len.0.cast_signed(),
                    counts: counts.map(|count| count * left),
                });
                if part.len() == BATCH {
                    put_rows(transaction, &mut part, updates_only)?;
                    part.clear();
                }
                Ok(())
            })?;
            put_rows(transaction, &mut part, updates_only)
        })
    }
}

/// Insert the sessions of another store; returns the number of the last one.
fn put_sessions(
    transaction: &Transaction<'_>,
    sessions: &[Session],
) -> rusqlite::Result<SessionId> {
    let mut statement = transaction.prepare_cached(
        "INSERT INTO sessions (began_ns, latest_ns, ended_ns, layer, command, kernel, reads, writes, lost, \
         one_in, common_error) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    )?;
    for session in sessions {
        let count = |count| i64::try_from(count).unwrap_or(i64::MAX);
        let latest = since_1970(session.latest);
        statement.execute(params![
            since_1970(session.began),
            latest,
            // A session that runs there does not run here.
            session.ended.map_or(latest, since_1970),
            session.info.layer,
            session.info.command,
            session.info.kernel,
            count(session.reads),
            count(session.writes),
            count(session.lost),
            session.one_in,
            session.common_error
        ])?;
        seal(
            transaction,
            Sealed::Sessions,
            transaction.last_insert_rowid(),
        )?;
    }
    Ok(SessionId(transaction.last_insert_rowid()))
}
