//! The places of control sockets: one for each daemon, in a directory that only its user may enter.

use std::{
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

/// The directory of control sockets: below `$XDG_RUNTIME_DIR`, for root `/run`, else the temporary
/// directory.
#[must_use]
pub fn runtime_dir() -> PathBuf {
    if let Some(dir) = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty()) {
        return PathBuf::from(dir).join("flashd");
    }
    let uid = rustix::process::geteuid();
    if uid.is_root() {
        PathBuf::from("/run/flashd")
    } else {
        std::env::temp_dir().join(format!("flashd-{}", uid.as_raw()))
    }
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
    let metadata = fs::symlink_metadata(&dir).map_err(failed(&dir))?;
    if metadata.uid() != rustix::process::geteuid().as_raw() || !metadata.is_dir() {
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

/// The socket of the daemon with this name, or of the only one.
///
/// # Errors
///
/// There is none, or several and no name.
pub fn find_socket(name: Option<&str>) -> Result<PathBuf, RuntimeError> {
    let dir = runtime_dir();
    let mut there: Vec<String> = fs::read_dir(&dir)
        .map(|entries| entries.flatten().collect())
        .unwrap_or_else(|_| Vec::new())
        .iter()
        .filter_map(|entry: &fs::DirEntry| {
            let name = entry.file_name().into_string().ok()?;
            let name = name.strip_suffix(".sock")?;
            UnixStream::connect(entry.path()).ok()?;
            Some(name.to_owned())
        })
        .collect();
    there.sort();
    let chosen = match (name, &there[..]) {
        (_, []) => return Err(RuntimeError::NoDaemon(dir)),
        (Some(name), _) if there.iter().any(|other| other == name) => name,
        (Some(name), _) => {
            return Err(RuntimeError::NoSuchDaemon {
                name: name.to_owned(),
                there,
            });
        }
        (None, [only]) => only,
        (None, _) => return Err(RuntimeError::Several(there)),
    };
    Ok(dir.join(format!("{chosen}.sock")))
}
