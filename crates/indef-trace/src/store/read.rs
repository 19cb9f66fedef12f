//! Reading the contents of a store, decayed to a moment.

use std::{
    ffi::OsString,
    os::unix::ffi::OsStringExt,
    time::{Duration, SystemTime},
};

use indef_core::access::{AccessRange, Observed};
use rusqlite::{Connection, Row, types::Type};
use units::{Bytes, FileRange, Nanos};

use super::{
    checksum::{self, COUNTS, COUNTS_2},
    decay::Decay,
    error::{Result, StoreError, meaning},
    handle::Store,
    model::{Heat, Session, SessionId, SessionInfo},
    tables::{CHECKED, RANGES_SEALED, SAMPLED, Sealed, UNCHECKED, UNKNOWN_AHEAD, user_version},
    time::{at_nanos, since_1970},
};
use crate::tally::{FileKey, FsId, TracedFile};

/// A range with less heat than this part of an access is forgotten: one of a single access after ten
/// half-lives.
const FORGOTTEN: f64 = 1.0 / 1024.0;

/// The settings of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// After this time, an access counts half; zero: heat never decays.
    pub half_life: Duration,
    /// The file never grows beyond this.
    pub max_size: Bytes,
}

/// The settings as the store keeps them.
pub(super) struct Held {
    pub(super) decay: Decay,
    pub(super) max_size: Bytes,
}

pub(super) fn settings(connection: &Connection) -> rusqlite::Result<Held> {
    let version = user_version(connection)?;
    let epoch = match version {
        ..=RANGES_SEALED => "epoch_ns",
        _ => "as_of_ns",
    };
    let is_whole = Sealed::Settings.is_whole(version);
    let mut statement = connection.prepare_cached(&format!(
        "SELECT half_life_ns, {epoch}, max_size, {is_whole} FROM settings"
    ))?;
    statement.query_row([], |row| {
        whole(row, 3)?;
        Ok(Held {
            decay: Decay {
                half_life_ns: row.get::<_, i64>(0)?.max(0),
                epoch_ns: row.get(1)?,
            },
            max_size: Bytes(row.get::<_, i64>(2)?.max(0).cast_unsigned()),
        })
    })
}

impl Store {
    /// The contents of the store, with the heat that is left at `now`.
    ///
    /// # Errors
    ///
    /// The store is locked or damaged.
    pub fn load(&self, now: SystemTime) -> Result<Heat> {
        self.load_by(now, counted)
    }

    /// The same in parts of an access; see [`counted_in_parts`].
    ///
    /// # Errors
    ///
    /// As [`Self::load`].
    pub fn load_in_parts(&self, now: SystemTime, parts: u64) -> Result<Heat> {
        self.load_by(now, |range, counts| counted_in_parts(range, counts, parts))
    }

    fn load_by(
        &self,
        now: SystemTime,
        counted: impl Fn(FileRange, [f64; COUNTS]) -> Option<AccessRange>,
    ) -> Result<Heat> {
        let mut heat = Heat::default();
        let mut latest = None;
        self.visit_by(now, counted, |number, file, range| {
            if latest != Some(number) {
                latest = Some(number);
                heat.files.push(file.clone());
            }
            heat.ranges.push((heat.files.len() as u32 - 1, range));
        })?;
        Ok(heat)
    }

    /// Call `see` with each range, by file, then offset, and the file's number in the store, without
    /// holding them all in memory. Other programs cannot write meanwhile.
    ///
    /// # Errors
    ///
    /// The store is locked or damaged.
    pub fn visit(
        &self,
        now: SystemTime,
        see: impl FnMut(i64, &TracedFile, AccessRange),
    ) -> Result<()> {
        self.visit_by(now, counted, see)
    }

    fn visit_by(
        &self,
        now: SystemTime,
        counted: impl Fn(FileRange, [f64; COUNTS]) -> Option<AccessRange>,
        mut see: impl FnMut(i64, &TracedFile, AccessRange),
    ) -> Result<()> {
        self.rows::<StoreError>(|file, range, counts, decay| {
            let left = 1.0 / decay.weight(since_1970(now));
            if let Some(range) = counted(range, counts.map(|count| count * left)) {
                see(file.0, &file.1, range);
            }
            Ok(())
        })
    }

    /// The sessions, oldest first.
    ///
    /// # Errors
    ///
    /// The store is locked or damaged.
    pub fn sessions(&self) -> Result<Vec<Session>> {
        let read = || {
            let version = user_version(&self.connection)?;
            let is_whole = Sealed::Sessions.is_whole(version);
            let sampled = match version {
                // Each access was counted.
                UNCHECKED | CHECKED => "1.0, 0.0",
                SAMPLED => "one_in, iif(one_in > 1, NULL, 0.0)",
                // A session that counted nothing of what was made has an error all the same.
                _ => "one_in, iif(one_in > 1, common_error, ifnull(common_error, 0.0))",
            };
            let mut statement = self.connection.prepare(&format!(
                "SELECT id, layer, command, kernel, began_ns, latest_ns, ended_ns, reads, writes, lost, \
                 {sampled}, {is_whole} FROM sessions ORDER BY began_ns, id",
            ))?;
            let sessions = statement.query_map([], |row| {
                whole(row, 12)?;
                Ok(Session {
                    id: SessionId(row.get(0)?),
                    info: SessionInfo {
                        layer: row.get(1)?,
                        command: row.get(2)?,
                        kernel: row.get(3)?,
                    },
                    began: at_nanos(row.get(4)?),
                    latest: at_nanos(row.get(5)?),
                    ended: row.get::<_, Option<i64>>(6)?.map(at_nanos),
                    reads: row.get::<_, i64>(7)?.max(0).cast_unsigned(),
                    writes: row.get::<_, i64>(8)?.max(0).cast_unsigned(),
                    lost: row.get::<_, i64>(9)?.max(0).cast_unsigned(),
                    one_in: row.get::<_, f64>(10)?.max(1.0),
                    common_error: row.get::<_, Option<f64>>(11)?.map(|error| error.max(0.0)),
                })
            })?;
            sessions.collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(|error| meaning(&self.path, error))
    }

    /// The settings of the store.
    ///
    /// # Errors
    ///
    /// The store is locked or damaged.
    pub fn settings(&self) -> Result<Settings> {
        let held = settings(&self.connection).map_err(|error| meaning(&self.path, error))?;
        Ok(Settings {
            half_life: Duration::from_nanos(held.decay.half_life_ns.unsigned_abs()),
            max_size: held.max_size,
        })
    }

    /// Call `see` with each file (number, file), range and its counts as they are stored.
    pub(super) fn rows<E: From<StoreError>>(
        &self,
        mut see: impl FnMut(
            &(i64, TracedFile),
            FileRange,
            [f64; COUNTS],
            &Decay,
        ) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let fail = |error| E::from(meaning(&self.path, error));
        // One transaction, so that all rows are of one state.
        let transaction = self.connection.unchecked_transaction().map_err(fail)?;
        let decay = settings(&transaction).map_err(fail)?.decay;
        let version = user_version(&transaction).map_err(fail)?;
        let mut one_file = transaction
            .prepare(&format!("{} WHERE id = ?1", files(version)))
            .map_err(fail)?;
        let (ahead, checksum, checked) = match version {
            UNCHECKED => (UNKNOWN_AHEAD, "NULL", 0),
            CHECKED => (UNKNOWN_AHEAD, "checksum", COUNTS_2),
            _ => ("ahead", "checksum", COUNTS),
        };
        let mut ranges = transaction
            .prepare(&format!(
                "SELECT file, start, len, reads, writes, requests, timed, time_ns, {ahead}, {checksum} \
                 FROM ranges ORDER BY file, start, len"
            ))
            .map_err(fail)?;
        let mut rows = ranges.query([]).map_err(fail)?;
        let mut file: Option<(i64, TracedFile)> = None;
        while let Some(row) = rows.next().map_err(fail)? {
            let (number, range, counts) = range(row, checked).map_err(fail)?;
            let current = match file.take() {
                Some(current) if current.0 == number => current,
                _ => (number, one_file.query_row([number], traced).map_err(fail)?),
            };
            see(file.insert(current), range, counts, &decay)?;
        }
        Ok(())
    }
}

/// The files of a store of this version, for [`traced`], with their numbers last.
pub(super) fn files(version: i64) -> String {
    let is_whole = Sealed::Files.is_whole(version);
    format!(
        "SELECT dev, inode, generation, subvolume, uuid, magic, path, {is_whole}, id FROM files"
    )
}

/// Check that a row has its checksum, as this column tells.
fn whole(row: &Row<'_>, at: usize) -> rusqlite::Result<()> {
    match row.get(at)? {
        true => Ok(()),
        false => Err(changed("a file, session or setting that was changed")),
    }
}

/// A row does not hold what was written.
fn changed(what: &'static str) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(1, Type::Integer, what.into())
}

pub(super) fn traced(row: &Row<'_>) -> rusqlite::Result<TracedFile> {
    whole(row, 7)?;
    let number = |at| Ok::<_, rusqlite::Error>(row.get::<_, i64>(at)?.cast_unsigned());
    let path: Option<Vec<u8>> = row.get(6)?;
    Ok(TracedFile {
        key: FileKey {
            dev: number(0)?,
            inode: number(1)?,
            generation: row.get(2)?,
            subvolume: number(3)?,
        },
        fs: FsId {
            uuid: row.get(4)?,
            magic: number(5)?,
        },
        path: path.map(|bytes| OsString::from_vec(bytes).into()),
    })
}

/// A row's file, range and counts, if they are possible and are those that were written; its checksum
/// covers the first `checked` of them.
fn range(row: &Row<'_>, checked: usize) -> rusqlite::Result<(i64, FileRange, [f64; COUNTS])> {
    let (file, start, len): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
    let mut counts = [0.0_f64; COUNTS];
    for (at, count) in counts.iter_mut().enumerate() {
        let value: Option<f64> = row.get(3 + at)?;
        *count = value.unwrap_or(f64::NAN);
    }
    let written: Option<i64> = row.get(3 + COUNTS)?;
    let sum = || checksum::of([file, start, len], &counts[..checked]);
    let unchanged = written.is_none_or(|written| written == sum());
    let sound = unchanged && start >= 0 && len > 0 && start.checked_add(len).is_some();
    let (needed, ahead) = counts.split_at(COUNTS_2);
    if !sound
        || !needed
            .iter()
            .chain(ahead.iter().filter(|ahead| !ahead.is_nan()))
            .all(|count| count.is_finite() && *count >= 0.0)
    {
        return Err(changed("a range or count that was changed or cannot be"));
    }
    let range = FileRange::new(start.cast_unsigned(), len.cast_unsigned());
    Ok((file, range, counts))
}

/// As [`counted`], but with reads, writes and requests in so many parts each: what has faded below one access stays a fraction
/// of one.
#[must_use]
pub fn counted_in_parts(
    range: FileRange,
    counts: [f64; COUNTS],
    parts: u64,
) -> Option<AccessRange> {
    let mut access = counted(range, counts)?;
    let fine = |count: f64| (count * parts as f64).round() as u64;
    let [reads, writes, requests, ..] = counts.map(fine);
    // What is left of a range is at least as much as can be told.
    access.reads = reads.max(u64::from(access.reads > 0));
    access.writes = writes.max(u64::from(access.writes > 0));
    access.observed.requests = requests.max(u64::from(access.observed.requests > 0));
    Some(access)
}

/// Rounded counts (reads, writes, requests, timed reads, their time in ns, requests ahead of them); `None` if the range
/// is forgotten. If less than one access is left, it counts as
/// one, and the observations grow with it, so that their means hold.
#[must_use]
pub fn counted(range: FileRange, counts: [f64; COUNTS]) -> Option<AccessRange> {
    let most = counts[0].max(counts[1]);
    if counts[0] + counts[1] < FORGOTTEN {
        return None;
    }
    let known = !counts[COUNTS_2].is_nan();
    let [reads, writes, requests, timed, time, ahead] =
        counts.map(|count| (count / most.min(1.0)).round() as u64);
    Some(AccessRange {
        range,
        reads,
        writes,
        observed: Observed {
            requests,
            timed,
            time: Nanos(time),
            ahead: (known && timed > 0).then_some(ahead),
        },
    })
}
