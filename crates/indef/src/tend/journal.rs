//! Entries of the journal with fields of their own, to be looked for by (`journalctl INDEF_EVENT=moved`): one datagram
//! each, in journald's native protocol (<https://systemd.io/JOURNAL_NATIVE_PROTOCOL/>).
//!
//! Own code, as it is one datagram; see `notify.rs`.

use std::{
    env, io,
    os::{
        fd::AsFd,
        unix::{ffi::OsStrExt, net::UnixDatagram},
    },
    path::{Path, PathBuf},
};

use indef_pipeline::tend::{Event, Level};
use rustix::fs::fstat;

/// Where journald listens, below `/`.
const SOCKET: &str = "run/systemd/journal/socket";

/// The journal that stderr is connected to.
pub(super) struct Journal {
    socket: PathBuf,
}

impl Journal {
    /// The journal, if `JOURNAL_STREAM` names stderr (systemd.exec(5)).
    pub(super) fn of_stderr(root: &Path) -> Option<Self> {
        let stream = env::var("JOURNAL_STREAM").ok()?;
        let status = fstat(io::stderr().as_fd()).ok()?;
        let is_it = stream == format!("{}:{}", status.st_dev, status.st_ino);
        is_it.then(|| Self {
            socket: root.join(SOCKET),
        })
    }

    /// Add an entry.
    ///
    /// # Errors
    ///
    /// The socket is not there or does not take it now; stderr leads to the same journal.
    pub(super) fn add(
        &self,
        level: Level,
        line: &str,
        event: Option<&Event<'_>>,
    ) -> io::Result<()> {
        let mut entry = Entry::default();
        entry.field("MESSAGE", line);
        entry.field("PRIORITY", level.number().to_string());
        entry.field("SYSLOG_IDENTIFIER", env!("CARGO_PKG_NAME"));
        if let Some(event) = event {
            entry.event(event);
        }
        let socket = UnixDatagram::unbound()?;
        // It never waits: a journal that does not read is no reason to stand still.
        socket.set_nonblocking(true)?;
        socket.send_to(&entry.bytes, &self.socket).map(drop)
    }
}

#[derive(Default)]
struct Entry {
    bytes: Vec<u8>,
}

impl Entry {
    /// In the form for any content: a path may have line breaks.
    fn field(&mut self, name: &str, value: impl AsRef<[u8]>) {
        let value = value.as_ref();
        self.bytes.extend(name.as_bytes());
        self.bytes.push(b'\n');
        self.bytes.extend((value.len() as u64).to_le_bytes());
        self.bytes.extend(value);
        self.bytes.push(b'\n');
    }

    fn event(&mut self, event: &Event<'_>) {
        self.field("INDEF_EVENT", event.as_str());
        if let Some(path) = event.place() {
            self.field("INDEF_PATH", path.as_os_str().as_bytes());
        }
        match event {
            Event::Decided { outlook, .. } => self.field("INDEF_REASON", outlook.decision.as_str()),
            Event::Held { why, .. } => self.field("INDEF_REASON", why.as_str()),
            Event::Moved {
                files,
                relocated,
                written,
                ..
            } => {
                self.field("INDEF_MOVED_FILES", files.to_string());
                self.field("INDEF_MOVED_BYTES", relocated.get().to_string());
                self.field("INDEF_WRITTEN_BYTES", written.get().to_string());
            }
            _ => {}
        }
    }
}
