//! Opening a store, and how it is told from everything else.

use std::{
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::FileExt,
    path::Path,
    time::Duration,
};

use rusqlite::{Connection, OpenFlags, TransactionBehavior, params};

use super::{
    checksum,
    error::{Cause, Damage, Foreign, Result, StoreError, StoreProblem, meaning},
    format::{APPLICATION, SQLITE, VERSION},
    migrate::migrate,
    tables::{CHECKED, Sealed, UNCHECKED, tables, user_version},
};

/// How long to wait for another program's transaction.
const PATIENCE: Duration = Duration::from_secs(15);

/// Whether the file begins like an SQLite database. A profile of lines does not.
pub(super) fn is_store(path: &Path) -> io::Result<bool> {
    let mut begin = [0; SQLITE.len()];
    match File::open(path)?.read_exact(&mut begin) {
        Ok(()) => Ok(begin == *SQLITE),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// Open the store at `path`, an absolute path; `new` are the half-life, the epoch and the size of a
/// store that is created.
pub(super) fn open(path: &Path, new: Option<[i64; 3]>) -> Result<Connection> {
    examine(path, new.is_some())?;
    let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    flags.set(OpenFlags::SQLITE_OPEN_CREATE, new.is_some());
    let fail = |error| meaning(path, error);
    let mut connection = Connection::open_with_flags(path, flags).map_err(fail)?;
    prepare(&connection).map_err(fail)?;
    if let Some(new) = new
        && is_empty(&connection).map_err(fail)?
    {
        create_tables(&mut connection, new).map_err(fail)?;
    }
    let version = check(path, &connection)?;
    if new.is_none() {
        connection
            .pragma_update(None, "query_only", true)
            .map_err(fail)?;
        return Ok(connection);
    }
    check_contents(path, &connection, version)?;
    if version != VERSION {
        migrate(&mut connection).map_err(fail)?;
        check(path, &connection)?;
    }
    Ok(connection)
}

/// Look at the file without touching it.
fn examine(path: &Path, may_be_new: bool) -> Result<()> {
    let status = match fs::metadata(path) {
        Err(error) if may_be_new && error.kind() == io::ErrorKind::NotFound => {
            return folder_exists(path);
        }
        other => other.map_err(|error| StoreError::io(path, error))?,
    };
    let wrong = |problem| {
        Err(StoreError {
            path: path.to_owned(),
            problem,
        })
    };
    if !status.is_file() {
        return wrong(StoreProblem::Foreign(Foreign::NoFile));
    }
    if status.len() == 0 && may_be_new {
        return Ok(());
    }
    // The parts of the header that identify the file (SQLite file format, §1.3).
    let mut header = [0; 100];
    let file = File::open(path).map_err(|error| StoreError::io(path, error))?;
    match file.read_exact_at(&mut header, 0) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            let begun = file.read_at(&mut header, 0).unwrap_or(0).min(SQLITE.len());
            return wrong(match header[..begun] == SQLITE[..begun] && begun > 0 {
                true => StoreProblem::Damaged(Damage::CutOff.into()),
                false => StoreProblem::Foreign(Foreign::TooShort),
            });
        }
        Err(error) => return Err(StoreError::io(path, error)),
    }
    if header[..SQLITE.len()] != *SQLITE {
        return wrong(StoreProblem::Foreign(Foreign::NoDatabase));
    }
    let word = |at: usize| i32::from_be_bytes([0, 1, 2, 3].map(|byte| header[at + byte]));
    // A store whose first transaction is not complete, or was broken off, is not marked either.
    if word(68) != APPLICATION && word(68) != 0 {
        return wrong(StoreProblem::Foreign(Foreign::OtherProgram));
    }
    Ok(())
}

/// Check the folder of a new store: SQLite reports a missing one like a lack of permission.
fn folder_exists(path: &Path) -> Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    match fs::metadata(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(StoreError {
            path: path.to_owned(),
            problem: StoreProblem::NoFolder(folder.to_owned()),
        }),
        _ => Ok(()),
    }
}

/// Configure a connection.
fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(PATIENCE)?;
    checksum::define(connection)?;
    // Nothing of a file that somebody else may have made is executed.
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    // 4 MiB: a collector stays small, and rows are added in order.
    connection.pragma_update(None, "cache_size", -4096)?;
    connection.set_prepared_statement_cache_capacity(32);
    Ok(())
}

fn is_empty(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| {
        row.get(0)
    })
}

/// Create the tables, unless another process just did.
fn create_tables(connection: &mut Connection, new: [i64; 3]) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if is_empty(&transaction)? {
        for (_, create) in tables(VERSION).into_iter().flatten() {
            transaction.execute(create, [])?;
        }
        transaction.execute(
            "INSERT INTO settings VALUES (1, ?1, ?2, ?3, values_checksum(?1, ?2, ?3))",
            params![new[0], new[1], new[2]],
        )?;
        transaction.pragma_update(None, "application_id", APPLICATION)?;
        transaction.pragma_update(None, "user_version", VERSION)?;
    }
    transaction.commit()
}

/// Check every page and row: a trace of days should not be added to a store that cannot be read afterwards.
fn check_contents(path: &Path, connection: &Connection, version: i64) -> Result<()> {
    let wrong = |found| {
        Err(StoreError {
            path: path.to_owned(),
            problem: StoreProblem::Damaged(Cause::Found(found)),
        })
    };
    let found: String = connection
        .query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))
        .map_err(|error| meaning(path, error))?;
    if found != "ok" {
        return wrong(Damage::Pages);
    }
    if version == UNCHECKED {
        return Ok(());
    }
    let ahead = match version {
        CHECKED => "",
        _ => ", ahead",
    };
    let changed = connection.query_row(
        &format!(
            "SELECT EXISTS (SELECT 1 FROM ranges WHERE checksum IS NOT \
             row_checksum(file, start, len, reads, writes, requests, timed, time_ns{ahead}))"
        ),
        [],
        |row| row.get(0),
    );
    if changed.map_err(|error| meaning(path, error))? {
        return wrong(Damage::Count);
    }
    for table in Sealed::ALL {
        let (name, is_whole) = (table.name(), table.is_whole(version));
        let exists = format!("SELECT EXISTS (SELECT 1 FROM {name} WHERE NOT {is_whole})");
        let changed = connection.query_row(&exists, [], |row| row.get(0));
        if changed.map_err(|error| meaning(path, error))? {
            return wrong(Damage::Row(name));
        }
    }
    Ok(())
}

/// Check that this is a store with its tables and nothing else; returns its version.
fn check(path: &Path, connection: &Connection) -> Result<i64> {
    let fail = |error| meaning(path, error);
    let wrong = |problem| {
        Err(StoreError {
            path: path.to_owned(),
            problem,
        })
    };
    let number = |name: &str| {
        connection
            .pragma_query_value(None, name, |row| row.get::<_, i64>(0))
            .map_err(fail)
    };
    if number("application_id")? != i64::from(APPLICATION) {
        return wrong(StoreProblem::Foreign(Foreign::OtherProgram));
    }
    // While this reads, nobody writes.
    let transaction = connection.unchecked_transaction().map_err(fail)?;
    let version = user_version(&transaction).map_err(fail)?;
    let Some(of_version) = tables(version) else {
        return wrong(StoreProblem::Version { found: version });
    };
    let mut statement = transaction
        .prepare("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL")
        .map_err(fail)?;
    let found = statement
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .and_then(Iterator::collect::<rusqlite::Result<Vec<(String, String)>>>)
        .map_err(fail)?;
    let ours = |(name, create): &(&str, &str)| found.iter().any(|(n, c)| n == name && c == create);
    if found.len() != of_version.len() || !of_version.iter().all(ours) {
        return wrong(StoreProblem::Damaged(Damage::Tables.into()));
    }
    let promised = number("page_count")?.saturating_mul(number("page_size")?);
    let length = fs::metadata(path).map_err(|error| StoreError::io(path, error))?;
    match length.len() < promised.unsigned_abs() {
        true => wrong(StoreProblem::Damaged(Damage::CutOff.into())),
        false => Ok(version),
    }
}
