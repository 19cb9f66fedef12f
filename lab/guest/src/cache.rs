//! Where kernels are kept between runs.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use rustix::fs::FlockOperation;

use crate::LabError;

/// A folder that survives the run: kernels, and facts about this machine.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// This folder; made when it is first needed.
    #[must_use]
    pub fn at(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
        }
    }

    /// The folder that `INDEF_LAB` names, else `lab` in cargo's target folder; where this program's
    /// source tree is not on this machine, the folder of [`Self::of_user`].
    #[must_use]
    pub fn of_project() -> Self {
        if let Some(folder) = std::env::var_os("INDEF_LAB") {
            return Self::at(Path::new(&folder));
        }
        match Self::of_user() {
            Some(cache) if !source_tree::is_there() => cache,
            _ => Self::at(&source_tree::target().join("lab")),
        }
    }

    /// The folder that `INDEF_LAB` names, else `indef/lab` in this user's cache folder; `None`
    /// where that is unknown. For an installed program.
    #[must_use]
    pub fn of_user() -> Option<Self> {
        if let Some(folder) = std::env::var_os("INDEF_LAB") {
            return Some(Self::at(Path::new(&folder)));
        }
        let caches = std::env::var_os("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .filter(|folder| folder.is_absolute())
            .or_else(|| Some(std::env::home_dir()?.join(".cache")))?;
        Some(Self::at(&caches.join("indef/lab")))
    }

    /// The path of the cache folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Lock out every other process until the returned file is dropped, so that packages are
    /// fetched once.
    pub(crate) fn lock(&self) -> Result<File, LabError> {
        fs::create_dir_all(&self.folder).map_err(LabError::at(&self.folder))?;
        let path = self.folder.join("lock");
        let file = lock_file(&path)?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive)
            .map_err(|error| LabError::at(&path)(error.into()))?;
        Ok(file)
    }

    /// A temporary folder for unfinished content: a rename turns it into the folder to keep, else
    /// it is removed.
    pub(crate) fn scratch(&self, prefix: &str) -> Result<tempfile::TempDir, LabError> {
        fs::create_dir_all(&self.folder).map_err(LabError::at(&self.folder))?;
        tempfile::Builder::new()
            .prefix(prefix)
            .tempdir_in(&self.folder)
            .map_err(LabError::at(&self.folder))
    }
}

/// Take the lock of this file by an operation that does not wait; `None` if another process has it.
pub(crate) fn try_lock(path: &Path, how: FlockOperation) -> Result<Option<File>, LabError> {
    let file = lock_file(path)?;
    match rustix::fs::flock(&file, how) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(LabError::at(path)(error.into())),
    }
}

/// Open a lock file; create it if it does not exist.
fn lock_file(path: &Path) -> Result<File, LabError> {
    File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .map_err(LabError::at(path))
}
