//! The lock on a backing file.

use std::{
    fs::{File, OpenOptions},
    path::Path,
};

use rustix::fs::FlockOperation;

use super::{StoreError, error::Unusable};

/// The backing file, locked for this process until the last owner drops it.
#[derive(Debug)]
pub(super) struct Locked(File);

impl std::ops::Deref for Locked {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // Closing it is not enough while a child is being started: until it executes its program it
        // has the descriptor, too, and with it the lock.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

/// Open the file, made if need be, and lock it for this process.
pub(super) fn lock(path: &Path) -> Result<Locked, StoreError> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(|source| StoreError::io(path, "open", 0, source))?;
    let metadata = file
        .metadata()
        .map_err(|source| StoreError::io(path, "stat", 0, source))?;
    if !metadata.is_file() {
        return Err(StoreError::unusable(path, Unusable::NoRegularFile));
    }
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Locked(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(StoreError::Locked {
            path: path.to_owned(),
        }),
        Err(source) => Err(StoreError::io(path, "lock", 0, source.into())),
    }
}
