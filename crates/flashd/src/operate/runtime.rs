//! The places of control sockets: one for each daemon, in a directory that only its user may enter.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, Permissions},
    io,
    os::unix::{
        fs::{DirBuilderExt, MetadataExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
};

/// A socket cannot be made or found.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The directory or socket.
    #[error("{}: {source}", path.display())]
    Io {
        /// The directory or socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The directory is somebody else's.
    #[error("{}: it belongs to another user; remove it or set XDG_RUNTIME_DIR", path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
    },
    /// A name that makes no file name.
    #[error("'{0}' is no name for a daemon; use letters, digits, '-', '_' and '.'")]
    Name(String),
    /// The name is taken.
    #[error("a daemon named '{0}' runs already; give this one another --name")]
    Taken(String),
    /// There is no daemon.
    #[error("no flashd runs here (looked in {})", .0.display())]
    NoDaemon(PathBuf),
    /// There is none of that name.
    #[error("no flashd named '{name}' runs here; there are: {}", there.join(", "))]
    NoSuchDaemon {
        /// The name that was asked for.
        name: String,
        /// Those that run.
        there: Vec<String>,
    },
    /// There are several.
    #[error("several flashd run here; say which one with --name: {}", .0.join(", "))]
    Several(Vec<String>),
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> RuntimeError {
    let path = path.to_owned();
    |source| RuntimeError::Io { path, source }
}

/// Where root's daemons have their sockets if nothing else is said, as those that systemd starts.
const OF_ROOT: &str = "/run/flashd";

/// The directory of control sockets: below `$XDG_RUNTIME_DIR`, for root `/run`, else the temporary
/// directory.
#[must_use]
pub fn runtime_dir() -> PathBuf {
    if let Some(dir) = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty()) {
        return PathBuf::from(dir).join("flashd");
    }
    let uid = rustix::process::geteuid();
    if uid.is_root() {
        PathBuf::from(OF_ROOT)
    } else {
        std::env::temp_dir().join(format!("flashd-{}", uid.as_raw()))
    }
}

/// A directory of this user.
fn is_own(dir: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    fs::symlink_metadata(dir).is_ok_and(|it| it.is_dir() && it.uid() == own)
}

/// Make the socket of a daemon.
pub(super) fn listen(name: &str) -> Result<(UnixListener, PathBuf), RuntimeError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > 64 || name.starts_with('.') || !name.chars().all(fits) {
        return Err(RuntimeError::Name(name.to_owned()));
    }
    let dir = runtime_dir();
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&dir)
        .map_err(failed(&dir))?;
    if !is_own(&dir) {
        return Err(RuntimeError::Foreign { path: dir });
    }
    let path = dir.join(format!("{name}.sock"));
    if UnixStream::connect(&path).is_ok() {
        return Err(RuntimeError::Taken(name.to_owned()));
    }
    // A daemon that was killed has left its socket.
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(failed(&path)(error));
        }
        _ => {}
    }
    let listener = UnixListener::bind(&path).map_err(failed(&path))?;
    fs::set_permissions(&path, Permissions::from_mode(0o600)).map_err(failed(&path))?;
    Ok((listener, path))
}

/// The socket of the daemon with this name, or of the only one. Root finds those that systemd has started from a session with a
/// `$XDG_RUNTIME_DIR`, too.
///
/// # Errors
///
/// There is none, or several and no name.
pub fn find_socket(name: Option<&str>) -> Result<PathBuf, RuntimeError> {
    let mut dirs = vec![runtime_dir()];
    if rustix::process::geteuid().is_root() && dirs[0] != Path::new(OF_ROOT) {
        dirs.push(OF_ROOT.into());
    }
    find_in(&dirs, name)
}

/// The same among the sockets of these directories; of two with a name, that of the first. Those in a directory of somebody else
/// (`su` may keep its user's `$XDG_RUNTIME_DIR`) are not asked.
fn find_in(dirs: &[PathBuf], name: Option<&str>) -> Result<PathBuf, RuntimeError> {
    let mut there = BTreeMap::new();
    let entries = (dirs.iter().filter(|dir| is_own(dir))).filter_map(|dir| fs::read_dir(dir).ok());
    for entry in entries.flatten().flatten() {
        let file = entry.file_name();
        let Some(name) = file.to_str().and_then(|file| file.strip_suffix(".sock")) else {
            continue;
        };
        if UnixStream::connect(entry.path()).is_ok() {
            there.entry(name.to_owned()).or_insert(entry.path());
        }
    }
    let names = |there: BTreeMap<String, PathBuf>| there.into_keys().collect();
    match name {
        _ if there.is_empty() => Err(RuntimeError::NoDaemon(dirs[0].clone())),
        Some(name) => match there.remove(name) {
            Some(path) => Ok(path),
            None => Err(RuntimeError::NoSuchDaemon {
                name: name.to_owned(),
                there: names(there),
            }),
        },
        None if there.len() > 1 => Err(RuntimeError::Several(names(there))),
        None => Ok(there.into_values().next().expect("there is one")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_is_found_in_either_directory_and_the_first_one_goes_first() {
        let (near, far) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let dirs = [near.path().to_owned(), far.path().to_owned()];
        let none = find_in(&dirs, None);
        assert!(matches!(none, Err(RuntimeError::NoDaemon(dir)) if dir == dirs[0]));

        let of_systemd = far.path().join("disk.sock");
        let _listener = UnixListener::bind(&of_systemd).unwrap();
        // One that was killed.
        drop(UnixListener::bind(far.path().join("gone.sock")).unwrap());
        assert_eq!(find_in(&dirs, None).unwrap(), of_systemd);
        assert_eq!(find_in(&dirs, Some("disk")).unwrap(), of_systemd);
        let other = find_in(&dirs, Some("gone"));
        assert!(
            matches!(other, Err(RuntimeError::NoSuchDaemon { there, .. }) if there == ["disk"])
        );

        // A way to a directory is none of this user's own.
        let link = near.path().join("link");
        std::os::unix::fs::symlink(far.path(), &link).unwrap();
        assert!(matches!(
            find_in(&[link], None),
            Err(RuntimeError::NoDaemon(_))
        ));

        let own = near.path().join("disk.sock");
        let _own = UnixListener::bind(&own).unwrap();
        assert_eq!(find_in(&dirs, None).unwrap(), own);
        let _second = UnixListener::bind(near.path().join("second.sock")).unwrap();
        let several = find_in(&dirs, None);
        assert!(
            matches!(several, Err(RuntimeError::Several(there)) if there == ["disk", "second"])
        );
    }
}
