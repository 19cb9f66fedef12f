//! One run at a time on each file system.
//!
//! Two at once would write everything twice: both map a file before either has moved it. So a run
//! claims the file systems that it works on, and a second one learns who has them.
//!
//! A lock that a user may take is one that a user may keep, and root's nightly run must not depend on
//! users. So there are two places:
//!
//! - Root claims in `/run/indef`, which only root may write. Users read there who works on a file
//!   system, and begin nothing while that process lives. If root begins while a user's run goes on,
//!   root's goes ahead, and the user's stops in order and can be resumed.
//! - A user claims in a directory of their own, which keeps their own runs apart. Runs of different
//!   users do not see each other: files that one may write, the other seldom may.
//!
//! A claim is a locked file (flock(2)), which ends with its process, however that ends, and beside it
//! one that tells who has it. Both are removed at the end.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use indef_fs::{FileSystemKey, FsError};
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
    process::geteuid,
};

use crate::{
    process::{self, is_alive, is_ending, printable},
    resume::state_directory,
};

/// Where root claims.
const SYSTEM: &str = "/run/indef";

/// How long a killed process may take to end.
const ENDING: Duration = Duration::from_secs(60);

/// How long the process that has a lock may take to write who it is.
const SAYING: Duration = Duration::from_secs(1);

/// How often a user's run looks whether root's has begun.
const LOOK: Duration = Duration::from_millis(200);

/// The holder of a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The process; 0 if it is not known.
    pub pid: u32,
    /// When it began (`/proc/PID/stat`).
    since: Option<u64>,
    /// Its command line.
    pub command: String,
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.pid {
            0 => f.write_str("another process"),
            pid => write!(f, "process {pid} ({})", self.command),
        }
    }
}

/// A file system could not be claimed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Another run has it.
    #[error("another run works on this file system: {0}; wait for it, or stop it")]
    Held(Holder),
    /// A file operation failed.
    #[error(transparent)]
    Io(#[from] FsError),
}

/// File systems that are ours until this is dropped.
#[derive(Debug)]
pub struct Claim {
    keys: Vec<FileSystemKey>,
    locks: Vec<Lock>,
    watcher: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
    places: Places,
}

/// Where claims are kept.
#[derive(Clone, Debug)]
struct Places {
    /// Our directory.
    own: PathBuf,
    /// Root's directory, if we are not root.
    system: Option<PathBuf>,
}

impl Places {
    fn find() -> Result<Self, ClaimError> {
        let system = PathBuf::from(SYSTEM);
        if geteuid().is_root() && make_system(&system).is_ok() {
            return Ok(Self {
                own: system,
                system: None,
            });
        }
        let own =
            own_directory().map_err(|error| FsError::new("runtime directory", "find", error))?;
        Ok(Self {
            own,
            system: Some(system),
        })
    }
}

impl Claim {
    /// Claim file systems.
    ///
    /// # Errors
    ///
    /// [`ClaimError::Held`], or the failure; then none of them is claimed.
    pub fn take(keys: impl IntoIterator<Item = FileSystemKey>) -> Result<Self, ClaimError> {
        Self::take_in(Places::find()?, keys)
    }

    fn take_in(
        places: Places,
        keys: impl IntoIterator<Item = FileSystemKey>,
    ) -> Result<Self, ClaimError> {
        let mut keys: Vec<_> = keys.into_iter().collect();
        // The same order for everybody: of two runs, one gets all.
        keys.sort();
        keys.dedup();
        let mut claim = Self {
            locks: Vec::with_capacity(keys.len()),
            keys,
            watcher: None,
            places,
        };
        if let Some(holder) = claim.overruled() {
            return Err(ClaimError::Held(holder));
        }
        for key in &claim.keys {
            let lock = Lock::take(&claim.places.own, key)?;
            claim.locks.push(lock);
        }
        Ok(claim)
    }

    /// Root's run on one of these file systems, if we are not root.
    fn overruled(&self) -> Option<Holder> {
        overruled(&self.places, &self.keys)
    }

    /// Call `lost` once if root's run begins on one of these file systems. Never for root.
    pub fn watch(&mut self, lost: impl FnOnce(&Holder) + Send + 'static) {
        if self.places.system.is_none() {
            return;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (places, keys, stopped) = (self.places.clone(), self.keys.clone(), Arc::clone(&stop));
        let watching = thread::Builder::new().name("claim".into()).spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                if let Some(holder) = overruled(&places, &keys) {
                    return lost(&holder);
                }
                thread::park_timeout(LOOK);
            }
        });
        match watching {
            Ok(thread) => self.watcher = Some((stop, thread)),
            Err(error) => tracing::warn!(%error, "no thread to look whether root's run begins"),
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some((stop, watcher)) = self.watcher.take() {
            stop.store(true, Ordering::Relaxed);
            watcher.thread().unpark();
            let _ = watcher.join();
        }
    }
}

/// The holder of one of these file systems, as far as it can be seen without claiming it.
///
/// # Errors
///
/// No directory for claims.
pub fn holder(keys: &[FileSystemKey]) -> Result<Option<Holder>, ClaimError> {
    let places = Places::find()?;
    let own = || keys.iter().find_map(|key| living(&places.own, key));
    Ok(overruled(&places, keys).or_else(own))
}

fn overruled(places: &Places, keys: &[FileSystemKey]) -> Option<Holder> {
    let system = places.system.as_deref().filter(|path| is_system(path))?;
    keys.iter().find_map(|key| living(system, key))
}

/// The holder that the claim's file names, if its process lives and is not ending.
fn living(directory: &Path, key: &FileSystemKey) -> Option<Holder> {
    let holder = read_holder(&directory.join(format!("{key}.run")))?;
    (is_alive(holder.pid, holder.since) && !is_ending(holder.pid)).then_some(holder)
}

/// One locked file, with one beside it that tells who has it.
#[derive(Debug)]
struct Lock {
    path: PathBuf,
    told: PathBuf,
    /// Locked as long as it is open.
    _file: File,
}

impl Lock {
    fn take(directory: &Path, key: &FileSystemKey) -> Result<Self, ClaimError> {
        let path = directory.join(format!("{key}.lock"));
        let told = directory.join(format!("{key}.run"));
        let begun = Instant::now();
        loop {
            match try_lock(&path).map_err(|error| FsError::new(&path, "lock", error))? {
                Some(file) => {
                    let lock = Self {
                        path,
                        told,
                        _file: file,
                    };
                    lock.tell()
                        .map_err(|error| FsError::new(&lock.told, "write", error))?;
                    return Ok(lock);
                }
                None => match read_holder(&told) {
                    // It has just ended, or has not written yet who it is.
                    None if begun.elapsed() < SAYING => {}
                    None => return Err(ClaimError::Held(Holder::unknown())),
                    Some(holder) if is_ending(holder.pid) && begun.elapsed() < ENDING => {}
                    Some(holder) if is_alive(holder.pid, holder.since) => {
                        return Err(ClaimError::Held(holder));
                    }
                    // The file of an earlier process, which was killed: the new one writes its own
                    // in a moment.
                    Some(_) if begun.elapsed() < SAYING => {}
                    Some(_) => return Err(ClaimError::Held(Holder::unknown())),
                },
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Write who has the lock, in one step for whoever reads it.
    fn tell(&self) -> io::Result<()> {
        let pid = std::process::id();
        let since = process::started(pid).map_or_else(|| "-".to_owned(), |ticks| ticks.to_string());
        // Nobody else writes it: it is ours while the lock is.
        let path = self.told.with_extension("new");
        let mut new = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o644)
            .open(&path)?;
        writeln!(new, "{pid} {since} {}", process::command())?;
        // Whatever the mask of this process is.
        new.set_permissions(fs::Permissions::from_mode(0o644))?;
        fs::rename(&path, &self.told)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Before it is unlocked: the next one makes its own.
        let _ = fs::remove_file(&self.told);
        let _ = fs::remove_file(&self.path);
    }
}

/// Lock the file with this name; `None` if another has it.
fn try_lock(path: &Path) -> io::Result<Option<File>> {
    loop {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
        // Removed between being opened and being locked: it is nobody's lock any more.
        if file.metadata()?.nlink() > 0 {
            return Ok(Some(file));
        }
    }
}

impl Holder {
    fn unknown() -> Self {
        Self {
            pid: 0,
            since: None,
            command: String::new(),
        }
    }
}

/// `PID STARTED COMMAND…`.
fn read_holder(path: &Path) -> Option<Holder> {
    let text = fs::read_to_string(path).ok()?;
    let mut words = text.trim_end().splitn(3, ' ');
    let pid = words.next()?.parse().ok().filter(|pid| *pid > 0)?;
    let since = words.next()?.parse().ok();
    let command = printable(words.next().unwrap_or_default());
    Some(Holder {
        pid,
        since,
        command,
    })
}

/// Make root's directory, readable by everybody.
fn make_system(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o755).create(path) {
        // The mask of this process may have taken something from it.
        Ok(()) => fs::set_permissions(path, fs::Permissions::from_mode(0o755))?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    match is_system(path) {
        true => Ok(()),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// Whether a directory is root's, and nobody else may write it.
fn is_system(path: &Path) -> bool {
    fs::symlink_metadata(path)
        .is_ok_and(|status| status.is_dir() && status.uid() == 0 && status.mode() & 0o022 == 0)
}

/// A directory of this user: for as long as they are logged in, or where runs are stored.
///
/// The usual place comes first, whatever the environment says: a run that cron starts has none.
fn own_directory() -> io::Result<PathBuf> {
    let me = geteuid().as_raw();
    let usual = PathBuf::from(format!("/run/user/{me}"));
    let named = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let is_mine = |path: &PathBuf| {
        path.is_absolute() && fs::metadata(path).is_ok_and(|status| status.uid() == me)
    };
    for runtime in [usual].into_iter().chain(named).filter(is_mine) {
        let path = runtime.join("indef");
        if DirBuilder::new()
            .mode(0o700)
            .recursive(true)
            .create(&path)
            .is_ok()
        {
            return Ok(path);
        }
    }
    state_directory()
}

#[cfg(test)]
mod tests;
