//! Keeping a store small: the coldest ranges go first, then the files without any.
//!
//! Deleting rows all over a table leaves holes in its pages, but hardly a free page. So after dropping
//! ranges the whole file is rewritten (SQLite's VACUUM); as a third of the room is freed each time,
//! that cost is spread over as many new ranges.

use std::time::{Duration, SystemTime};

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use super::{
    error::{Result, meaning},
    handle::Store,
    pages::{limit_pages, used_pages},
    time::{nanos, since_1970},
    transaction::Stop,
};

/// The share of the largest size that is used afterwards.
const KEPT: f64 = 0.66;

/// A session that has not added for this long is over, even if it has not ended.
const ABANDONED: Duration = Duration::from_secs(24 * 3600);

impl Store {
    /// Run a transaction that adds ranges. If the store grows too large, it is rolled back, the coldest
    /// ranges are dropped, and it runs again; if that is not enough, it may only update rows.
    pub(super) fn bounded<T>(
        &mut self,
        work: impl Fn(&Transaction<'_>, bool) -> std::result::Result<T, Stop>,
    ) -> Result<T> {
        for attempt in 0.. {
            let done = self
                .connection
                .transaction_with_behavior(TransactionBehavior::Immediate)
                .map_err(Stop::Error)
                .and_then(|transaction| {
                    let done = work(&transaction, attempt > 0)?;
                    transaction.commit()?;
                    Ok(done)
                });
            match done {
                Ok(done) => return Ok(done),
                Err(Stop::TooLarge) => self.shrink()?,
                Err(Stop::Error(error)) => return Err(meaning(&self.path, error)),
                Err(Stop::Other(error)) => return Err(error),
            }
        }
        unreachable!("the loop ends by returning")
    }

    /// Make room for new ranges.
    fn shrink(&mut self) -> Result<()> {
        let now = since_1970(SystemTime::now());
        self.write(|transaction| {
            // Another process may have done it already.
            let (used, limit) = (used_pages(transaction)?, limit_pages(transaction)?);
            let kept = limit as f64 * KEPT / used as f64;
            if kept < 1.0 {
                drop_coldest(transaction, kept)?;
            }
            drop_files(transaction, now.saturating_sub(nanos(ABANDONED)))
        })?;
        // If it fails, the ranges are dropped all the same, but new ones find less room.
        self.connection
            .execute_batch("VACUUM")
            .map_err(|error| meaning(&self.path, error))
    }
}

/// Keep this share of the ranges, the hottest ones.
fn drop_coldest(connection: &Connection, kept: f64) -> rusqlite::Result<()> {
    let all: i64 = connection.query_row("SELECT count(*) FROM ranges", [], |row| row.get(0))?;
    let dropped = all - (all as f64 * kept) as i64;
    // The heat of the hottest range that is dropped. Many ranges may have the same.
    let edge: Option<f64> = connection
        .query_row(
            "SELECT reads + writes AS heat FROM ranges ORDER BY heat LIMIT 1 OFFSET ?1",
            [dropped - 1],
            |row| row.get(0),
        )
        .optional()?;
    let Some(edge) = edge.filter(|_| dropped > 0) else {
        return Ok(());
    };
    let colder = connection.execute("DELETE FROM ranges WHERE reads + writes < ?1", [edge])?;
    let left = dropped - i64::try_from(colder).unwrap_or(dropped);
    connection.execute(
        "DELETE FROM ranges WHERE (file, start, len) IN \
         (SELECT file, start, len FROM ranges WHERE reads + writes = ?1 LIMIT ?2)",
        params![edge, left],
    )?;
    Ok(())
}

/// Drop files without ranges, except those that a running session may still use by their number.
fn drop_files(connection: &Connection, abandoned_ns: i64) -> rusqlite::Result<()> {
    connection.execute(
        "DELETE FROM files WHERE NOT EXISTS (SELECT 1 FROM ranges WHERE file = files.id) \
         AND session NOT IN (SELECT id FROM sessions WHERE ended_ns IS NULL AND latest_ns > ?1)",
        [abandoned_ns],
    )?;
    Ok(())
}
