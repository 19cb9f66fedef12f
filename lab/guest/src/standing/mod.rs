//! A guest that stays, for many commands: `indef-lab up`.
//!
//! A *keeper* process ([`keep`]) owns QEMU and, where there is one, flashd; everything ends with
//! it, however it ends (QEMU by the parent-death signal, flashd as it is part of it). It also ends
//! by itself, after a time without any client or at a maximum age.
//!
//! Whether a keeper is running is known only from the lock on `NAME.lock` in the cache: a process
//! id may belong to another process by now. `NAME.json` names its socket; without the lock it is
//! stale, and is removed together with the folder that it names.
//!
//! [`Session`] is the same within a process, for tests and experiments.
//!
//! Up to four commands run at the same time, each with ports of its own; one client is at the terminal.

mod client;
mod command;
mod keeper;
mod session;
mod wire;

use std::{
    fs::{self, File},
    io,
    path::PathBuf,
};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

pub use client::{Ended, Said, Standing};
pub use keeper::{Limits, keep};
pub use session::Session;
pub use wire::Command;

use crate::{Accelerator, Cache, LabError, cache::try_lock, scratch::is_ours};

/// The known facts about a standing guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The keeper's process id.
    pub pid: u32,
    /// Its socket.
    pub socket: PathBuf,
    /// The folder of its sockets and disks.
    pub folder: PathBuf,
    /// The output of `uname -r`.
    pub kernel: String,
    /// The description of its zoned SSD, if it has one.
    pub device: Option<String>,
    /// The accelerator that it runs on.
    pub accelerator: Accelerator,
}

/// The files in the cache of the standing guest with a name.
#[derive(Clone, Debug)]
struct Place {
    folder: PathBuf,
    name: String,
}

impl Place {
    fn of(cache: &Cache, name: &str) -> Result<Self, LabError> {
        let fine = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || !name.chars().all(fine) {
            return Err(LabError::Request(format!(
                "{name}: a guest's name has letters, digits, - and _"
            )));
        }
        let folder = cache.folder().join("standing");
        fs::create_dir_all(&folder).map_err(LabError::at(&folder))?;
        Ok(Self {
            folder,
            name: name.to_owned(),
        })
    }

    fn state(&self) -> PathBuf {
        self.folder.join(format!("{}.json", self.name))
    }

    /// Take the lock, if nobody has it.
    fn lock(&self, how: FlockOperation) -> Result<Option<File>, LabError> {
        let path = self.folder.join(format!("{}.lock", self.name));
        try_lock(&path, how)
    }

    fn read(&self) -> Result<Option<State>, LabError> {
        let path = self.state();
        match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text)
                .map(Some)
                .map_err(|error| LabError::at(&path)(error.into())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(LabError::at(&path)(error)),
        }
    }

    fn write(&self, state: &State) -> Result<(), LabError> {
        let path = self.state();
        let new = path.with_extension("new");
        serde_json::to_vec(state)
            .map_err(io::Error::other)
            .and_then(|text| fs::write(&new, text))
            .and_then(|()| fs::rename(&new, &path))
            .map_err(LabError::at(&path))
    }

    /// Remove the remains of a killed keeper. The lock must be held.
    fn clear(&self) {
        // An unreadable state is of no use to any other process, either.
        if let Ok(Some(state)) = self.read()
            && is_ours(&state.folder)
        {
            let _ = fs::remove_dir_all(&state.folder);
        }
        let _ = fs::remove_file(self.state());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_keeper_left_goes() {
        let cache = tempfile::tempdir().unwrap();
        let cache = Cache::at(cache.path());
        let place = Place::of(&cache, "some").unwrap();
        let left = tempfile::Builder::new()
            .prefix(crate::scratch::PREFIX)
            .tempdir()
            .unwrap();
        let others = tempfile::tempdir().unwrap();
        for (folder, goes) in [(left.path(), true), (others.path(), false)] {
            let state = State {
                pid: 1,
                socket: folder.join("socket"),
                folder: folder.to_owned(),
                kernel: "6.1".into(),
                device: None,
                accelerator: Accelerator::Tcg,
            };
            place.write(&state).unwrap();
            // As long as the lock is held, the state is not stale.
            let held = place
                .lock(FlockOperation::NonBlockingLockExclusive)
                .unwrap();
            assert!(held.is_some());
            assert!(Standing::find(&cache, "some").unwrap().is_some());
            drop(held);
            assert!(Standing::find(&cache, "some").unwrap().is_none());
            assert_eq!(folder.exists(), !goes);
            assert!(!place.state().exists());
        }
        assert!(Place::of(&cache, "../x").is_err());
    }
}
