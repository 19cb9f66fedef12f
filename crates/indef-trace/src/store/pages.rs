//! How many pages a store has, may have, and has left.

use rusqlite::{Connection, OptionalExtension};

use super::{read::settings, transaction::Stop};

/// How many rows are certain to fit. It is counted, as asking for the file's size costs as much as
/// adding a row.
pub(super) struct Room {
    limit: i64,
    rows: i64,
}

/// Pages that one row may add at most: splits of a leaf and of the three levels above, and a root.
const SPLITS: i64 = 5;

impl Room {
    pub(super) fn new(connection: &Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            limit: limit_pages(connection)?,
            rows: 0,
        })
    }

    pub(super) fn take(&mut self, connection: &Connection) -> Result<(), Stop> {
        if self.rows == 0 {
            self.check(connection)?;
        }
        self.rows -= 1;
        Ok(())
    }

    pub(super) fn check(&mut self, connection: &Connection) -> Result<(), Stop> {
        let free = self.limit - used_pages(connection)?;
        self.rows = free / SPLITS;
        match self.rows > 0 {
            true => Ok(()),
            false => Err(Stop::TooLarge),
        }
    }
}

/// The largest number of pages.
pub(super) fn limit_pages(connection: &Connection) -> rusqlite::Result<i64> {
    let page: i64 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
    let max_size = settings(connection)?.max_size.0;
    Ok(i64::try_from(max_size).unwrap_or(i64::MAX) / page.max(1))
}

/// The number of pages in use.
pub(super) fn used_pages(connection: &Connection) -> rusqlite::Result<i64> {
    let mut page_count = connection.prepare_cached("PRAGMA page_count")?;
    let mut free = connection.prepare_cached("PRAGMA freelist_count")?;
    let all: i64 = page_count.query_row([], |row| row.get(0))?;
    let free: Option<i64> = free.query_row([], |row| row.get(0)).optional()?;
    Ok(all - free.unwrap_or(0))
}
