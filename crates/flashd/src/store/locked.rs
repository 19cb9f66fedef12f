//! The lock on a backing file.

use std::{
    fs::{File, OpenOptions},
    io,
    path::Path,
    sync::{Mutex, OnceLock, PoisonError},
};

use rustix::fs::FlockOperation;

use super::{StoreError, error::Unusable};

/// The backing file, locked for this process until the last owner drops it.
#[derive(Debug)]
pub(super) struct Locked {
    file: File,
    /// The first failure to bring data to the host's disk, as the system's number or its kind.
    unsynced: OnceLock<Unsynced>,
    /// Held while data is brought there.
    syncing: Mutex<()>,
}

#[derive(Clone, Copy, Debug)]
struct Unsynced {
    number: Option<i32>,
    kind: io::ErrorKind,
}

impl Locked {
    pub(super) fn new(file: File) -> Self {
        Self {
            file,
            unsynced: OnceLock::new(),
            syncing: Mutex::default(),
        }
    }

    /// Wait until the host's disk has the data. Once this has failed it always does: the kernel tells
    /// it once, and may have dropped what it could not write, of whichever namespace.
    pub(super) fn sync(&self) -> io::Result<()> {
        // One after the other: of two at the same time the kernel would tell one of a failure, whose data it ever was.
        let _alone = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = self.unsynced.get() {
            return Err(before.error());
        }
        self.file.sync_data().inspect_err(|error| {
            let (number, kind) = (error.raw_os_error(), error.kind());
            let _ = self.unsynced.set(Unsynced { number, kind });
        })
    }
}

impl Unsynced {
    fn error(self) -> io::Error {
        self.number
            .map_or_else(|| self.kind.into(), io::Error::from_raw_os_error)
    }
}

impl std::ops::Deref for Locked {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // Closing it is not enough while a child is being started: until it executes its program it
        // has the descriptor, too, and with it the lock.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
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
        Ok(()) => Ok(Locked::new(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(StoreError::Locked {
            path: path.to_owned(),
        }),
        Err(source) => Err(StoreError::io(path, "lock", 0, source.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_synced_once_is_never_told_as_synced() {
        // It cannot be synced; then a file that can takes its place.
        let null = OpenOptions::new().write(true).open("/dev/null").unwrap();
        let mut locked = Locked::new(null);
        let first = locked.sync().unwrap_err();
        locked.file = tempfile::tempfile().unwrap();
        let second = locked.sync().unwrap_err();
        assert_eq!(first.raw_os_error(), second.raw_os_error());
    }
}
