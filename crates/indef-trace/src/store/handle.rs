//! A store that is open.

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
    /// To be set when a session begins.
    pub(super) options: StoreOptions,
    /// Numbers of the files that were added through this connection.
    pub(super) files: HashMap<FileKey, i64>,
}

impl Store {
    /// Open a store for adding; make it if it is not there.
    ///
    /// # Errors
    ///
    /// What is there is no store, another version's, damaged or locked; it cannot be made.
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
    /// There is none, or something else, or it is another version's, damaged or locked.
    pub fn open(path: &Path) -> Result<Self> {
        Self::opened(path, StoreOptions::default(), None)
    }

    /// Whether the file is a store and no profile of lines, as far as its first bytes tell.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub fn is_store(path: &Path) -> io::Result<bool> {
        schema::is_store(path)
    }

    fn opened(path: &Path, options: StoreOptions, new: Option<[i64; 3]>) -> Result<Self> {
        // Absolute, because SQLite gives some names a meaning of their own.
        let path = std::path::absolute(path).map_err(|error| StoreError::io(path, &error))?;
        Ok(Self {
            connection: schema::open(&path, new)?,
            path,
            options,
            files: HashMap::new(),
        })
    }
}
