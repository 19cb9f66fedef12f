//! What the service keeps: the profile and the ledger, in `watch` in indef's state directory. One service at a time
//! has it.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use indef_engine::resume::{find_state_directory, state_directory};
use rustix::{
    fs::{FlockOperation, Mode, OFlags, flock, openat},
    io::Errno,
};

use super::ledger::{Budgets, Ledger, LedgerError, Moment};
use crate::stored::own_folder;

const FOLDER: &str = "watch";
const PROFILE: &str = "profile";
const LEDGER: &str = "ledger.json";

/// The state cannot be kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CannotKeep {
    /// There is no directory for it.
    #[error("no directory for indef's state: {0}")]
    NoDirectory(#[source] io::Error),
    /// Somebody else could write it.
    #[error("{path}: it is not ours alone; remove it, or make it writable by its owner only", path = path.display())]
    NotOurs {
        /// The folder.
        path: PathBuf,
    },
    /// Another service has it.
    #[error("another indef watch is running; `systemctl status indef-watch` or `ps` shows it")]
    Held,
    /// A file operation failed.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The ledger cannot be read.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// The folder of the service, which is ours as long as this lives.
#[derive(Debug)]
pub struct Kept {
    folder: PathBuf,
    /// Locked.
    _lock: File,
}

impl Kept {
    /// Make or find the folder, and take it.
    ///
    /// # Errors
    ///
    /// Another service has it, or it cannot be kept safely.
    pub fn take() -> Result<Self, CannotKeep> {
        let state = state_directory().map_err(CannotKeep::NoDirectory)?;
        Self::take_in(&state)
    }

    fn take_in(state: &Path) -> Result<Self, CannotKeep> {
        let folder = state.join(FOLDER);
        let io = |source| CannotKeep::Io {
            path: folder.clone(),
            source,
        };
        let Some(opened) = own_folder(&folder).map_err(io)? else {
            return Err(CannotKeep::NotOurs { path: folder });
        };
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = openat(&opened, "lock", flags, Mode::RUSR | Mode::WUSR)
            .map_err(|errno| io(errno.into()))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self {
                folder,
                _lock: lock.into(),
            }),
            Err(Errno::WOULDBLOCK) => Err(CannotKeep::Held),
            Err(errno) => Err(io(errno.into())),
        }
    }

    /// The profile, in which all traces add up.
    #[must_use]
    pub fn profile(&self) -> PathBuf {
        self.folder.join(PROFILE)
    }

    /// The profile, where there is one; nothing is made.
    #[must_use]
    pub fn find_profile() -> Option<PathBuf> {
        let path = find_state_directory()?.join(FOLDER).join(PROFILE);
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(flags.bits() as i32)
            .open(&path);
        file.ok()?.metadata().ok()?.is_file().then_some(path)
    }

    /// The ledger, and whether it was damaged.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub fn ledger(&self, now: Moment, budgets: &Budgets) -> Result<(Ledger, bool), CannotKeep> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let path = self.folder.join(LEDGER);
        Ok(Ledger::open(path, boot.trim(), now, budgets)?)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    #[test]
    fn one_service_has_the_state_and_nobody_else_may_write_it() {
        let state = tempfile::tempdir().unwrap();
        let one = Kept::take_in(state.path()).unwrap();
        let mode = |name: &str| fs::metadata(state.path().join(name)).unwrap().mode() & 0o777;
        assert_eq!((mode("watch"), mode("watch/lock")), (0o700, 0o600));
        assert!(matches!(Kept::take_in(state.path()), Err(CannotKeep::Held)));
        drop(one);
        drop(Kept::take_in(state.path()).unwrap());
        let folder = state.path().join("watch");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o770)).unwrap();
        let refused = Kept::take_in(state.path());
        assert!(matches!(refused, Err(CannotKeep::NotOurs { .. })));
        fs::remove_dir_all(&folder).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        symlink(elsewhere.path(), &folder).unwrap();
        assert!(Kept::take_in(state.path()).is_err());
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }
}
