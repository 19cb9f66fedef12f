//! Adding tallies to a store.

use std::{collections::HashMap, os::unix::ffi::OsStrExt, time::SystemTime};

use rusqlite::{Connection, Params, Statement, Transaction, params};

use super::{
    checksum::{COUNTS, seal},
    decay::Decay,
    error::Result,
    handle::Store,
    model::{SMALLEST, SessionId, SessionInfo, StoreOptions},
    pages::Room,
    read::settings,
    tables::Sealed,
    time::{nanos, since_1970},
    transaction::Stop,
};
use crate::tally::{FileKey, FsId, Tally, TracedFile};

/// A row of `ranges`, its counts weighted for the store's epoch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) file: i64,
    pub(super) start: i64,
    pub(super) len: i64,
    /// Reads, writes, requests, timed reads, their time, requests ahead of these: not a number (NULL)
    /// where that is not known of all.
    pub(super) counts: [f64; COUNTS],
}

impl Row {
    pub(super) fn heat(&self) -> f64 {
        self.counts[0] + self.counts[1]
    }
}

/// A row with a wrong checksum gets none, which the table refuses: the transaction fails.
const ADD: &str = "INSERT INTO ranges VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, \
     row_checksum(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)) \
     ON CONFLICT DO UPDATE SET reads = reads + ?4, writes = writes + ?5, \
     requests = requests + ?6, timed = timed + ?7, time_ns = time_ns + ?8, ahead = ahead + ?9, \
     checksum = iif(checksum = row_checksum(file, start, len, reads, writes, requests, timed, time_ns, ahead), \
     row_checksum(file, start, len, reads + ?4, writes + ?5, requests + ?6, timed + ?7, time_ns + ?8, ahead + ?9), NULL)";

const GROW: &str = "UPDATE ranges SET reads = reads + ?4, writes = writes + ?5, \
     requests = requests + ?6, timed = timed + ?7, time_ns = time_ns + ?8, ahead = ahead + ?9, \
     checksum = iif(checksum = row_checksum(file, start, len, reads, writes, requests, timed, time_ns, ahead), \
     row_checksum(file, start, len, reads + ?4, writes + ?5, requests + ?6, timed + ?7, time_ns + ?8, ahead + ?9), NULL) \
     WHERE file = ?1 AND start = ?2 AND len = ?3";

/// Multiply all counts.
const SCALE: &str = "UPDATE ranges SET reads = reads * ?1, writes = writes * ?1, \
     requests = requests * ?1, timed = timed * ?1, time_ns = time_ns * ?1, ahead = ahead * ?1, \
     checksum = iif(checksum = row_checksum(file, start, len, reads, writes, requests, timed, time_ns, ahead), \
     row_checksum(file, start, len, reads * ?1, writes * ?1, requests * ?1, timed * ?1, time_ns * ?1, ahead * ?1), NULL)";

const FILE: &str = "INSERT INTO files \
     (identity, dev, inode, generation, subvolume, uuid, magic, path, session) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) \
     ON CONFLICT (identity) DO UPDATE SET dev = excluded.dev, path = ifnull(excluded.path, path), \
     session = max(session, excluded.session)";

/// Of a session that ended so many half-lives ago, less than a millionth of each count is left.
const FORGOTTEN: i64 = 20;

impl Store {
    /// Begin a session, and apply the store's options. Sessions of which nothing is left are forgotten, so that
    /// a store with a session every hour stays bounded.
    ///
    /// # Errors
    ///
    /// Nothing is changed in that case; see [`super::StoreError::may_pass`].
    pub fn begin(&mut self, session: &SessionInfo, now: SystemTime) -> Result<SessionId> {
        let options = self.options;
        // Files of sessions that ended may be dropped at any time.
        self.files.clear();
        let now = since_1970(now);
        self.write(|transaction| {
            configure(transaction, &options, now)?;
            forget_sessions(transaction, now)?;
            transaction.execute(
                "INSERT INTO sessions (began_ns, latest_ns, layer, command, kernel, reads, writes, lost, \
                 common_error) VALUES (?1, ?1, ?2, ?3, ?4, 0, 0, 0, 0)",
                params![now, session.layer, session.command, session.kernel],
            )?;
            let id = transaction.last_insert_rowid();
            seal(transaction, Sealed::Sessions, id)?;
            Ok(SessionId(id))
        })
    }

    /// Add the tallies of a session at `now`, in one transaction: all of them, or none and an error.
    ///
    /// Each file needs to be given once since [`begin`](Self::begin), and may be given again; a tally
    /// whose file was not given is kept under its key alone. The cost follows the number of tallies that
    /// lie far apart in the store, so collect the tallies of some seconds. Where the file would grow beyond
    /// its size, the coldest ranges are dropped, those of this call included.
    ///
    /// # Errors
    ///
    /// Keep the tallies and give them again later if [`super::StoreError::may_pass`].
    pub fn add(
        &mut self,
        session: SessionId,
        files: &[TracedFile],
        tallies: &[Tally],
        now: SystemTime,
    ) -> Result<()> {
        let now = since_1970(now);
        let mut known = std::mem::take(&mut self.files);
        let added = self.bounded(|transaction, updates_only| {
            let mut fresh = HashMap::new();
            for file in files {
                fresh.insert(file.key, put_file(transaction, file, session)?);
            }
            let mut rows = Vec::with_capacity(tallies.len());
            let weight = settings(transaction)?.decay.weight(now);
            for tally in tallies {
                let key = &tally.file;
                let number = match fresh.get(key).or_else(|| known.get(key)) {
                    Some(number) => *number,
                    None => {
                        let number = put_file(transaction, &nameless(*key), session)?;
                        fresh.insert(*key, number);
                        number
                    }
                };
                rows.extend(row(number, tally, weight));
            }
            put_rows(transaction, &mut rows, updates_only)?;
            let sum = |count: fn(&Tally) -> u64| {
                let sum = tallies.iter().map(count).fold(0, u64::saturating_add);
                i64::try_from(sum).unwrap_or(i64::MAX)
            };
            change_session(
                transaction,
                session,
                "reads = min(reads + ?2, 9e18), writes = min(writes + ?3, 9e18), latest_ns = max(latest_ns, ?4)",
                params![session.0, sum(|t| t.reads), sum(|t| t.writes), now],
            )?;
            Ok(fresh)
        });
        // Files that were rolled back have no numbers.
        let added = added.map(|fresh: HashMap<FileKey, i64>| known.extend(fresh));
        self.files = known;
        added
    }

    /// Note that one in so many of a session's accesses is counted, and the others are estimated, and the
    /// relative standard error that all its counts share.
    ///
    /// # Errors
    ///
    /// As in [`begin`](Self::begin).
    pub fn set_sampling(
        &mut self,
        session: SessionId,
        one_in: f64,
        common_error: f64,
    ) -> Result<()> {
        self.write(|transaction| {
            change_session(
                transaction,
                session,
                "one_in = ?2, common_error = ?3",
                params![session.0, one_in.max(1.0), common_error.max(0.0)],
            )
        })
    }

    /// End a session.
    ///
    /// # Errors
    ///
    /// As in [`begin`](Self::begin).
    pub fn finish(&mut self, session: SessionId, lost: u64, now: SystemTime) -> Result<()> {
        let lost = i64::try_from(lost).unwrap_or(i64::MAX);
        self.write(|transaction| {
            change_session(
                transaction,
                session,
                "lost = ?2, ended_ns = ?3, latest_ns = max(latest_ns, ?3)",
                params![session.0, lost, since_1970(now)],
            )
        })
    }
}

/// Change the session whose number is the first parameter.
fn change_session(
    transaction: &Transaction<'_>,
    session: SessionId,
    set: &str,
    params: impl Params,
) -> rusqlite::Result<()> {
    let checked = Sealed::Sessions.checked();
    let change = format!("UPDATE sessions SET {set}, {checked} WHERE id = ?1");
    transaction.execute(&change, params)?;
    seal(transaction, Sealed::Sessions, session.0)
}

/// Apply the options, and move the epoch if it is far.
fn configure(
    transaction: &Transaction<'_>,
    options: &StoreOptions,
    now: i64,
) -> rusqlite::Result<()> {
    let held = settings(transaction)?;
    let half_life = options.half_life.map(nanos);
    let (mut decay, factor) = match half_life {
        // The values that are there have decayed by the old half-life up to now.
        Some(other) if other != held.decay.half_life_ns => held.decay.restarted(now),
        _ => held.decay.moved(now).unwrap_or((held.decay, 1.0)),
    };
    decay.half_life_ns = half_life.unwrap_or(held.decay.half_life_ns);
    let max_size = options.max_size.unwrap_or(held.max_size).max(SMALLEST).0;
    if factor != 1.0 {
        transaction.execute(SCALE, [factor])?;
    }
    let Decay {
        half_life_ns,
        epoch_ns,
    } = decay;
    transaction.execute(
        "UPDATE settings SET half_life_ns = ?1, as_of_ns = ?2, max_size = ?3, \
         checksum = values_checksum(?1, ?2, ?3)",
        params![
            half_life_ns,
            epoch_ns,
            i64::try_from(max_size).unwrap_or(i64::MAX)
        ],
    )?;
    Ok(())
}

/// A file of which only the key is known.
fn nameless(key: FileKey) -> TracedFile {
    TracedFile {
        key,
        fs: FsId::default(),
        path: None,
    }
}

/// The identity of a file, which never changes.
fn identity(file: &TracedFile) -> Vec<u8> {
    let key = &file.key;
    let mut identity = Vec::with_capacity(44);
    // Without a UUID, only the device number distinguishes file systems.
    if file.fs.uuid == [0; 16] {
        identity.extend(key.dev.to_be_bytes());
    } else {
        identity.extend(file.fs.uuid);
    }
    identity.extend(file.fs.magic.to_be_bytes());
    identity.extend(key.subvolume.to_be_bytes());
    identity.extend(key.inode.to_be_bytes());
    identity.extend(key.generation.to_be_bytes());
    identity
}

/// Forget sessions that ended long ago.
fn forget_sessions(connection: &Connection, now_ns: i64) -> rusqlite::Result<()> {
    let half_life_ns = settings(connection)?.decay.half_life_ns;
    if half_life_ns > 0 {
        let before = now_ns.saturating_sub(half_life_ns.saturating_mul(FORGOTTEN));
        let over = "DELETE FROM sessions WHERE ended_ns IS NOT NULL AND latest_ns < ?1";
        connection.execute(over, [before])?;
    }
    Ok(())
}

/// Insert or refresh a file; returns its number.
pub(super) fn put_file(
    connection: &Connection,
    file: &TracedFile,
    session: SessionId,
) -> rusqlite::Result<i64> {
    let key = &file.key;
    let path = file.path.as_ref().map(|path| path.as_os_str().as_bytes());
    let put = format!("{FILE}, {} RETURNING id", Sealed::Files.checked());
    let id = connection.prepare_cached(&put)?.query_row(
        params![
            identity(file),
            key.dev.cast_signed(),
            key.inode.cast_signed(),
            key.generation,
            key.subvolume.cast_signed(),
            file.fs.uuid,
            file.fs.magic.cast_signed(),
            path,
            session.0
        ],
        |row| row.get(0),
    )?;
    seal(connection, Sealed::Files, id)?;
    Ok(id)
}

/// A tally as a row; `None` where no file can have such a range, or nothing was counted.
fn row(file: i64, tally: &Tally, weight: f64) -> Option<Row> {
    let range = tally.range;
    i64::try_from(range.end().0).ok()?;
    let observed = tally.observed;
    let [reads, writes] = [tally.reads, tally.writes].map(|count| count as f64);
    let [requests, timed, time] =
        [observed.requests, observed.timed, observed.time.0].map(|count| count as f64);
    let ahead = match (observed.timed, observed.ahead) {
        (0, _) => 0.0,
        (_, Some(ahead)) => ahead as f64,
        (_, None) => f64::NAN,
    };
    let row = Row {
        file,
        start: range.start.0.cast_signed(),
        len: range.len.0.cast_signed(),
        counts: [reads, writes, requests, timed, time, ahead].map(|count| count * weight),
    };
    (!range.is_empty() && row.heat() > 0.0).then_some(row)
}

/// Add rows, in the order of the table, or the hottest first where only some may find room.
pub(super) fn put_rows(
    connection: &Connection,
    rows: &mut [Row],
    updates_only: bool,
) -> std::result::Result<(), Stop> {
    if updates_only {
        rows.sort_unstable_by(|a, b| b.heat().total_cmp(&a.heat()));
    } else {
        rows.sort_unstable_by_key(|row| (row.file, row.start, row.len));
    }
    let mut add = connection.prepare_cached(ADD)?;
    let mut grow = connection.prepare_cached(GROW)?;
    let mut room = Room::new(connection)?;
    for row in rows {
        match room.take(connection) {
            Ok(()) => put(&mut add, row)?,
            Err(Stop::TooLarge) if updates_only => put(&mut grow, row)?,
            Err(stop) => return Err(stop),
        }
    }
    // The rows of files and sessions take room, too.
    match updates_only {
        true => Ok(()),
        false => room.check(connection),
    }
}

fn put(statement: &mut Statement<'_>, row: &Row) -> rusqlite::Result<()> {
    let [reads, writes, requests, timed, time, ahead] = row.counts;
    // SQLite takes what is not a number as NULL, to which nothing can be added.
    statement.execute(params![
        row.file, row.start, row.len, reads, writes, requests, timed, time, ahead
    ])?;
    Ok(())
}
