//! Clients, and how they come.

use std::{
    fs,
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::{
        fs::{FileTypeExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::Path,
    time::{Duration, Instant},
};

use crate::{Address, ServeError};

/// The time that a request has, and its answer.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Takes the next client.
pub(crate) type Accept = Box<dyn FnMut() -> io::Result<Client> + Send>;

/// A client.
pub(crate) enum Client {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// Listen at an address. Also returns the port that was bound, if it is one.
pub(crate) fn listen(address: &Address) -> Result<(Accept, Option<SocketAddr>), ServeError> {
    match address {
        Address::Unix(path) => {
            let listener = bind_unix(path)?;
            let accept = move || listener.accept().map(|(one, _)| Client::Unix(one));
            Ok((Box::new(accept), None))
        }
        Address::Loopback(address) if !address.ip().is_loopback() => {
            Err(ServeError::Open(*address))
        }
        Address::Loopback(address) => {
            let failed = |error| ServeError::Bind {
                address: address.to_string(),
                error,
            };
            let listener = TcpListener::bind(address).map_err(failed)?;
            let bound = listener.local_addr().map_err(failed)?;
            let accept = move || listener.accept().map(|(one, _)| Client::Tcp(one));
            Ok((Box::new(accept), Some(bound)))
        }
    }
}

/// Bind a socket in the file system, in place of one that nobody listens at any more.
fn bind_unix(path: &Path) -> Result<UnixListener, ServeError> {
    let failed = |what| {
        move |error| ServeError::Socket {
            path: path.to_owned(),
            what,
            error,
        }
    };
    if let Ok(status) = fs::symlink_metadata(path) {
        if !status.file_type().is_socket() {
            return Err(ServeError::NoSocket(path.to_owned()));
        }
        if UnixStream::connect(path).is_ok() {
            return Err(ServeError::Taken(path.to_owned()));
        }
        fs::remove_file(path).map_err(failed("remove the old socket"))?;
    }
    let listener = UnixListener::bind(path).map_err(|error| ServeError::Bind {
        address: path.display().to_string(),
        error,
    })?;
    // For its owner and group.
    fs::set_permissions(path, fs::Permissions::from_mode(0o660))
        .map_err(failed("set its permissions"))?;
    Ok(listener)
}

impl Client {
    /// Read once, until then at the latest; `None` when that time has come.
    pub(crate) fn read(&mut self, buffer: &mut [u8], until: Instant) -> io::Result<Option<usize>> {
        loop {
            if !self.limit(until)? {
                return Ok(None);
            }
            let read = match self {
                Self::Unix(stream) => stream.read(buffer),
                Self::Tcp(stream) => stream.read(buffer),
            };
            match read {
                Err(error) if is_to_be_repeated(&error) => {}
                read => return read.map(Some),
            }
        }
    }

    /// Write all of it, until then at the latest.
    pub(crate) fn write_all(&mut self, mut bytes: &[u8], until: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            if !self.limit(until)? {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let written = match self {
                Self::Unix(stream) => stream.write(bytes),
                Self::Tcp(stream) => stream.write(bytes),
            };
            match written {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => bytes = &bytes[written..],
                Err(error) if is_to_be_repeated(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Limit the next read or write to the time that is left; false if none is.
    fn limit(&self, until: Instant) -> io::Result<bool> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        // The kernel takes a limit of less than a microsecond for none.
        let limit = Some(left.max(Duration::from_millis(1)));
        match self {
            Self::Unix(stream) => {
                stream.set_read_timeout(limit)?;
                stream.set_write_timeout(limit)?;
            }
            Self::Tcp(stream) => {
                stream.set_read_timeout(limit)?;
                stream.set_write_timeout(limit)?;
            }
        }
        Ok(true)
    }
}

/// The time is looked at anew.
fn is_to_be_repeated(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}
