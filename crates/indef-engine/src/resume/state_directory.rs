//! Where runs are stored.

use std::{
    env, fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

/// Nothing tells where the user's state belongs.
#[derive(Debug, thiserror::Error)]
#[error("there is no home directory")]
struct NoHome;

/// Root's.
const SYSTEM: &str = "/var/lib/indef";

/// The same as [`state_directory`], where it is there already: nothing is made.
#[must_use]
pub fn find_state_directory() -> Option<PathBuf> {
    let given = env::var_os("STATE_DIRECTORY").map(PathBuf::from);
    if let Some(given) = given.filter(|path| path.is_absolute()) {
        return Some(given);
    }
    let (system, own) = (Path::new(SYSTEM), of_user().ok());
    if rustix::process::geteuid().is_root() && system.is_dir() {
        // Where it may not be written, runs are stored in root's home.
        let is_used = is_writable(system).is_ok();
        if is_used || own.as_ref().is_none_or(|own| !own.is_dir()) {
            return Some(system.to_owned());
        }
    }
    own
}

/// The directory for the remaining work of runs, made if it is not there: `$STATE_DIRECTORY` where
/// a service manager gives one (systemd.exec(5)), `/var/lib/indef` for root where that is writable,
/// else `$XDG_STATE_HOME/indef` or `~/.local/state/indef` (XDG Base Directory Specification 0.8).
///
/// # Errors
///
/// There is no home, or the directory cannot be made.
pub fn state_directory() -> io::Result<PathBuf> {
    let given = env::var_os("STATE_DIRECTORY").map(PathBuf::from);
    if let Some(given) = given.filter(|path| path.is_absolute()) {
        make(&given)?;
        return Ok(given);
    }
    if rustix::process::geteuid().is_root() {
        let system = Path::new(SYSTEM);
        if make(system).is_ok() {
            return Ok(system.to_owned());
        }
    }
    let directory = of_user()?;
    make(&directory)?;
    Ok(directory)
}

fn of_user() -> io::Result<PathBuf> {
    let state = env::var_os("XDG_STATE_HOME")
        .map(PathBuf::from)
        // The specification wants relative ones ignored.
        .filter(|path| path.is_absolute())
        .or_else(|| env::home_dir().map(|home| home.join(".local/state")))
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, NoHome))?;
    Ok(state.join("indef"))
}

fn make(directory: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    is_writable(directory)
}

fn is_writable(directory: &Path) -> io::Result<()> {
    let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    rustix::fs::access(directory, access).map_err(io::Error::from)
}
