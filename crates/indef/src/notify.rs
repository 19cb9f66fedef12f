//! The protocol of sd_notify(3): a few words to the socket that the service manager names.
//!
//! Own code, as it is one datagram; a crate would bring as much as it saves.

use std::{
    env, io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    time::Duration,
};

/// A service manager that wants to know.
#[derive(Debug)]
pub(crate) struct Notify {
    socket: UnixDatagram,
    address: SocketAddr,
    /// It wants to hear from us within this time.
    watchdog: Option<Duration>,
}

impl Notify {
    /// The manager that the environment names, if any.
    pub(crate) fn from_environment() -> io::Result<Option<Self>> {
        let Some(name) = env::var_os("NOTIFY_SOCKET") else {
            return Ok(None);
        };
        let address = match name.as_bytes() {
            [b'@', abstract_name @ ..] => SocketAddr::from_abstract_name(abstract_name)?,
            _ => SocketAddr::from_pathname(&name)?,
        };
        // Set for us, and not for a process that we are a child of.
        let is_for_us =
            env::var("WATCHDOG_PID").map_or(true, |pid| pid == std::process::id().to_string());
        let micros = env::var("WATCHDOG_USEC")
            .ok()
            .and_then(|text| text.parse().ok());
        let socket = UnixDatagram::unbound()?;
        // It never waits: a manager that does not read is no reason to stand still.
        socket.set_nonblocking(true)?;
        Ok(Some(Self {
            socket,
            address,
            watchdog: micros.filter(|_| is_for_us).map(Duration::from_micros),
        }))
    }

    /// How often to send a sign of life: half of the time that the manager waits for one.
    pub(crate) fn alive_every(&self) -> Option<Duration> {
        self.watchdog.map(|time| time / 2)
    }

    /// Send words like `READY=1`. A manager that cannot be reached has no use for an error.
    pub(crate) fn send(&self, words: &str) {
        if let Err(error) = self.socket.send_to_addr(words.as_bytes(), &self.address) {
            tracing::debug!(%error, "the service manager does not listen");
        }
    }
}
