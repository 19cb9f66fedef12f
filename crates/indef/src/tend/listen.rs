//! The metrics as a file, and over HTTP.
//!
//! The server is our own: it answers `GET /metrics` on this machine and nothing else, one client at a time, in a
//! thread of its own, since a walk through a large file system can take longer than a scraper waits. A request has
//! two seconds and 4 KiB in all; whoever is slower, or asks for more, is refused. The work never waits for it.

use std::{
    ffi::OsString,
    fs,
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::{
        fs::{FileTypeExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use indef_pipeline::tend::metrics::MEDIA_TYPE;

use crate::args::Listen;

/// The time of a request and its answer, each.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest request.
const LONGEST: usize = 4096;

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
        file.write_all(text.as_bytes())?;
        file.set_permissions(fs::Permissions::from_mode(0o644))?;
        fs::rename(&beside, path)
    };
    write().map_err(wrong)
}

/// Serves the last text.
#[derive(Debug)]
pub(super) struct Listener {
    text: Arc<Mutex<String>>,
    /// To be removed at the end.
    socket: Option<PathBuf>,
}

impl Listener {
    /// Listen from now on.
    pub(super) fn begin(address: &Listen) -> Result<Self> {
        let text = Arc::new(Mutex::new(String::new()));
        let served = Arc::clone(&text);
        let (mut accept, socket): (Accept, _) = match address {
            Listen::Unix(path) => {
                let listener = bind_unix(path)?;
                let accept = move || listener.accept().map(|(one, _)| Client::Unix(one));
                (Box::new(accept), Some(path.clone()))
            }
            Listen::Loopback(address) => {
                let listener = TcpListener::bind(address)
                    .with_context(|| format!("cannot listen at {address}"))?;
                let accept = move || listener.accept().map(|(one, _)| Client::Tcp(one));
                (Box::new(accept), None)
            }
        };
        let serve = move || {
            loop {
                match accept() {
                    Ok(mut client) => {
                        let text = || {
                            served
                                .lock()
                                .unwrap_or_else(PoisonError::into_inner)
                                .clone()
                        };
                        // A client that is gone has no use for an error.
                        if let Err(error) = answer(&mut client, text) {
                            tracing::debug!(%error, "a scraper was not served");
                        }
                    }
                    // No descriptor is left, say: not at full speed.
                    Err(_) => thread::sleep(Duration::from_millis(200)),
                }
            }
        };
        thread::Builder::new()
            .name("metrics".into())
            .spawn(serve)
            .context("no thread for the metrics")?;
        Ok(Self { text, socket })
    }

    /// Serve this text from now on.
    pub(super) fn set(&self, text: String) {
        *self.text.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(path) = &self.socket {
            let _ = fs::remove_file(path);
        }
    }
}

type Accept = Box<dyn FnMut() -> io::Result<Client> + Send>;

/// A client, with time limits.
enum Client {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Client {
    /// Give the next read or write so much time.
    fn limit(&self, time: Duration) -> io::Result<()> {
        let time = Some(time.max(Duration::from_millis(1)));
        match self {
            Self::Unix(stream) => {
                stream.set_read_timeout(time)?;
                stream.set_write_timeout(time)
            }
            Self::Tcp(stream) => {
                stream.set_read_timeout(time)?;
                stream.set_write_timeout(time)
            }
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(buffer),
            Self::Tcp(stream) => stream.read(buffer),
        }
    }

    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(buffer),
            Self::Tcp(stream) => stream.write(buffer),
        }
    }
}

/// Bind a socket in the file system, in place of one that nobody listens at any more.
fn bind_unix(path: &Path) -> Result<UnixListener> {
    let shown = path.display();
    if let Ok(status) = fs::symlink_metadata(path) {
        if !status.file_type().is_socket() {
            bail!("{shown}: there is something else than a socket");
        }
        if UnixStream::connect(path).is_ok() {
            bail!("{shown}: another process listens there");
        }
        fs::remove_file(path).with_context(|| format!("{shown}: cannot remove the old socket"))?;
    }
    let listener = UnixListener::bind(path).with_context(|| format!("cannot listen at {shown}"))?;
    // For its owner and group.
    fs::set_permissions(path, fs::Permissions::from_mode(0o660))
        .with_context(|| format!("{shown}: cannot set its permissions"))?;
    Ok(listener)
}

/// Read a request, and answer it.
fn answer(client: &mut Client, text: impl FnOnce() -> String) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    let mut request = Vec::new();
    let mut buffer = [0; 1024];
    let is_whole = |request: &[u8]| request.windows(4).any(|end| end == b"\r\n\r\n");
    while !is_whole(&request) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return respond(client, "408 Request Timeout", "text/plain", "too slow\n");
        }
        client.limit(left)?;
        match client.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => request.extend_from_slice(&buffer[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                ) => {}
            Err(error) => return Err(error),
        }
        if request.len() > LONGEST {
            let too_long = "431 Request Header Fields Too Large";
            return respond(client, too_long, "text/plain", "too long\n");
        }
    }
    let line = request
        .split(|byte| *byte == b'\r')
        .next()
        .unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let words: Vec<&str> = line.split(' ').collect();
    match *words.as_slice() {
        [method, target, version] if version.starts_with("HTTP/1.") => {
            let path = target.split('?').next().unwrap_or_default();
            match (method, path) {
                ("GET", "/metrics") => respond(client, "200 OK", MEDIA_TYPE, &text()),
                ("GET", _) => respond(client, "404 Not Found", "text/plain", "GET /metrics\n"),
                _ => respond(
                    client,
                    "405 Method Not Allowed",
                    "text/plain",
                    "GET /metrics\n",
                ),
            }
        }
        _ => respond(client, "400 Bad Request", "text/plain", "GET /metrics\n"),
    }
}

fn respond(client: &mut Client, status: &str, media: &str, body: &str) -> io::Result<()> {
    let allow = if status.starts_with("405") {
        "Allow: GET\r\n"
    } else {
        ""
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {media}\r\nContent-Length: {}\r\n{allow}Connection: close\r\n\r\n",
        body.len()
    );
    let until = Instant::now() + PATIENCE;
    let answer = [head.as_bytes(), body.as_bytes()].concat();
    let mut left = answer.as_slice();
    while !left.is_empty() {
        let time = until.saturating_duration_since(Instant::now());
        if time.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        client.limit(time)?;
        match client.write(left) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => left = &left[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer to these bytes.
    fn ask(path: &Path, request: &[u8]) -> String {
        let mut stream = UnixStream::connect(path).unwrap();
        stream.write_all(request).unwrap();
        let mut answer = String::new();
        // A request that is refused in its midst may be answered with a reset.
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    fn listener() -> (tempfile::TempDir, PathBuf, Listener) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = Listener::begin(&Listen::Unix(path.clone())).unwrap();
        listener.set("a 1\n# EOF\n".to_owned());
        (folder, path, listener)
    }

    #[test]
    fn metrics_are_served_and_nothing_else() {
        let (_folder, path, listener) = listener();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o660);
        let good = ask(&path, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(good.starts_with("HTTP/1.1 200 OK\r\n"), "{good}");
        assert!(good.contains("openmetrics-text; version=1.0.0"), "{good}");
        assert!(good.ends_with("\r\n\r\na 1\n# EOF\n"), "{good}");
        listener.set("b 2\n# EOF\n".to_owned());
        assert!(ask(&path, b"GET /metrics?x=1 HTTP/1.0\r\n\r\n").ends_with("b 2\n# EOF\n"));
        for (request, status) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], "404"),
            (b"GET /../metrics HTTP/1.1\r\n\r\n", "404"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
            (b"GET /metrics\r\n\r\n", "400"),
            (b"\xFF\x00\r\n\r\n", "400"),
            (&[b'x'; 3 * LONGEST], "431"),
        ] {
            let answer = ask(&path, request);
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status} ")),
                "{status}: {answer}"
            );
        }
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn a_slow_client_is_sent_away_and_holds_nobody_for_long() {
        let (_folder, path, listener) = listener();
        let begun = Instant::now();
        let mut slow = UnixStream::connect(&path).unwrap();
        slow.write_all(b"GET /met").unwrap();
        // The next one is served when its time is over.
        assert!(ask(&path, b"GET /metrics HTTP/1.1\r\n\r\n").contains("200 OK"));
        assert!(begun.elapsed() >= PATIENCE);
        // Whoever sets the text waits for nobody, whatever a client does.
        listener.set(String::new());
        let mut answer = String::new();
        slow.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    }

    #[test]
    fn a_socket_of_a_killed_service_is_replaced_and_other_files_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        drop(UnixListener::bind(&path).unwrap());
        let listener = Listener::begin(&Listen::Unix(path.clone())).unwrap();
        let second = Listener::begin(&Listen::Unix(path.clone())).unwrap_err();
        assert!(second.to_string().contains("another process"), "{second}");
        drop(listener);
        fs::write(&path, "x").unwrap();
        assert!(Listener::begin(&Listen::Unix(path.clone())).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"x");
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
        let error = write_file(Path::new("/no/such/x.prom"), "").unwrap_err();
        assert!(error.to_string().contains("/no/such"), "{error}");
    }
}
