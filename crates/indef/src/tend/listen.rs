//! The metrics as a file, and over HTTP.

use std::{
    ffi::OsString,
    fs,
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use indef_pipeline::tend::metrics::MEDIA_TYPE;
use metrics_server::{Address, ServeError, Server};

/// Write the text beside its place and rename it, so that a reader gets a whole one.
pub(super) fn write_file(path: &Path, text: &str) -> io::Result<()> {
    let wrong =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let write = || {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        // The name of node_exporter's files ends in .prom, this one's does not. It is always the same, so that a kill
        // leaves one at most.
        let mut beside = OsString::from(".");
        beside.push(name);
        beside.push(".new");
        let beside = path.with_file_name(beside);
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // Neither a link nor a file that somebody else made in the meantime is written to.
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&beside)?;
        let placed = file
            .write_all(text.as_bytes())
            .and_then(|()| file.set_permissions(fs::Permissions::from_mode(0o644)))
            .and_then(|()| fs::rename(&beside, path));
        if placed.is_err() {
            // A full disk is not to be filled with it.
            let _ = fs::remove_file(&beside);
        }
        placed
    };
    write().map_err(wrong)
}

/// The line for numbers that cannot be given out.
pub(super) fn unwritten(error: &io::Error) -> String {
    format!("the metrics are not written: {error}")
}

/// Serves the last text: a walk through a large file system can take longer than a scraper waits.
#[derive(Debug)]
pub(super) struct Listener {
    text: Arc<Mutex<String>>,
    _server: Server,
}

impl Listener {
    /// Listen from now on, and serve this text: whoever asks before there is another one gets a whole one, too.
    pub(super) fn begin(address: &Address, text: String) -> Result<Self, ServeError> {
        let text = Arc::new(Mutex::new(text));
        let served = Arc::clone(&text);
        let last = move || {
            Some(
                served
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .clone(),
            )
        };
        Ok(Self {
            text,
            _server: Server::start(address, MEDIA_TYPE, last)?,
        })
    }

    /// Serve this text from now on.
    pub(super) fn set(&self, text: String) {
        *self.text.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read, os::unix::net::UnixStream};

    use super::*;

    #[test]
    fn the_last_text_is_served() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let (first, second) = ("a 1\n# EOF\n", "b 2\n# EOF\n");
        let listener = Listener::begin(&Address::Unix(path.clone()), first.to_owned()).unwrap();
        for text in [first, second] {
            if text == second {
                listener.set(text.to_owned());
            }
            let mut stream = UnixStream::connect(&path).unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(
                answer.contains("openmetrics-text; version=1.0.0"),
                "{answer}"
            );
            assert!(answer.ends_with(text), "{answer}");
        }
    }

    #[test]
    fn a_file_is_whole_and_for_all_to_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("indef.prom");
        for text in ["one\n", "two\n"] {
            write_file(&path, text).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o644);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        // What a kill or somebody else left beside it is no obstacle, and not written to.
        let victim = folder.path().join("victim");
        fs::write(&victim, "x").unwrap();
        std::os::unix::fs::symlink(&victim, folder.path().join(".indef.prom.new")).unwrap();
        write_file(&path, "three\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "three\n");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "x");
        // Where it cannot be put in its place, nothing stays beside that.
        let taken = folder.path().join("taken.prom");
        fs::create_dir(&taken).unwrap();
        assert!(write_file(&taken, "four\n").is_err());
        assert!(!folder.path().join(".taken.prom.new").exists());
        let error = write_file(Path::new("/no/such/x.prom"), "").unwrap_err();
        assert!(error.to_string().contains("/no/such"), "{error}");
    }
}
