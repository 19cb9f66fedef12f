//! Forgetting times: those of a layout that is gone.

use rusqlite::params;
use units::FileRange;

use super::{
    error::{Result, meaning},
    handle::Store,
    read::{files, traced},
    tables::user_version,
};
use crate::tally::TracedFile;

/// Reads stay: they are those of a program, wherever the data lies. A damaged row gets no checksum, which the table refuses.
const FORGET: &str = "UPDATE ranges SET timed = 0, time_ns = 0, ahead = 0, \
     checksum = iif(checksum = row_checksum(file, start, len, reads, writes, requests, timed, time_ns, ahead), \
     row_checksum(file, start, len, reads, writes, requests, 0.0, 0.0, 0.0), NULL) \
     WHERE file = ?1 AND start < ?3 AND start + len > ?2 AND timed > 0";

impl Store {
    /// Forget the times of reads of the ranges that `moved` gives for a file: these have new places. All of it, or nothing with an
    /// error.
    ///
    /// # Errors
    ///
    /// The store is locked or damaged, or the disk is full.
    pub fn forget_times(
        &mut self,
        mut moved: impl FnMut(&TracedFile) -> Vec<FileRange>,
    ) -> Result<()> {
        let files = {
            let read = || {
                let version = user_version(&self.connection)?;
                let mut statement = self.connection.prepare(&files(version))?;
                let files = statement.query_map([], |row| Ok((row.get(8)?, traced(row)?)))?;
                files.collect::<rusqlite::Result<Vec<(i64, TracedFile)>>>()
            };
            read().map_err(|error| meaning(&self.path, error))?
        };
        let ranges: Vec<(i64, FileRange)> = { files.iter() }
            .flat_map(|(id, file)| moved(file).into_iter().map(|range| (*id, range)))
            .collect();
        if ranges.is_empty() {
            return Ok(());
        }
        self.write(|transaction| {
            let mut forget = transaction.prepare_cached(FORGET)?;
            for (file, range) in &ranges {
                let [begin, end] = [range.start, range.end()].map(|at| at.0.min(i64::MAX as u64));
                forget.execute(params![file, begin.cast_signed(), end.cast_signed()])?;
            }
            Ok(())
        })
    }
}
