//! Opening a store.

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use rusqlite::Connection;

use super::{
    error::{Result, StoreError},
    model::{DEFAULT_HALF_LIFE, DEFAULT_MAX_SIZE, StoreOptions},
    schema,
    time::{nanos, since_1970},
};
use crate::tally::FileKey;

/// One store, open.
#[derive(Debug)]
pub struct Store {
    pub(super) path: PathBuf,
    pub(super) connection: Connection,
    /// Applied when a session begins.
    pub(super) options: StoreOptions,
    /// Numbers of the files that were added through this connection.
    pub(super) files: HashMap<FileKey, i64>,
}

impl Store {
    /// Open a store for adding; create it if it does not exist.
    ///
    /// # Errors
    ///
    /// The file is no store, of another version, damaged or locked; or it cannot be created.
    pub fn create(path: &Path, options: &StoreOptions) -> Result<Self> {
        let half_life = options.half_life.unwrap_or(DEFAULT_HALF_LIFE);
        let max_size = options.max_size.unwrap_or(DEFAULT_MAX_SIZE);
        let new = [
            nanos(half_life),
            since_1970(SystemTime::now()),
            i64::try_from(max_size.0).unwrap_or(i64::MAX),
        ];
        Self::opened(path, *options, Some(new))
    }

    /// Open a store for reading.
    ///
    /// # Errors
    ///
    /// The file does not exist, is no store, of another version, damaged or locked.
    pub fn open(path: &Path) -> Result<Self> {
        Self::opened(path, StoreOptions::default(), None)
    }

    /// Whether the file is a store and no profile of lines, judging by its first bytes.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub fn is_store(path: &Path) -> io::Result<bool> {
        schema::is_store(path)
    }

    fn opened(path: &Path, options: StoreOptions, new: Option<[i64; 3]>) -> Result<Self> {
        // Absolute, because SQLite gives some names a special meaning.
        let path = std::path::absolute(path).map_err(|error| StoreError::io(path, error))?;
        Ok(Self {
            connection: schema::open(&path, new)?,
            path,
            options,
            files: HashMap::new(),
        })
    }
}
