//! A server for metrics, over HTTP on a loopback address or on a socket in the file system.
//!
//! It answers `GET /metrics` on this machine and nothing else, one client at a time, in a thread of its own: whoever
//! has the numbers never waits for a client. A request and its answer have two seconds each, however slowly the bytes
//! come, and a request 4 KiB; whoever is slower, or asks for more, is sent away. There is neither encryption nor a
//! password, so that other addresses are refused.
//!
//! Own code: what is needed of HTTP is a line, and a crate for servers brings a runtime along.
//!
//! It does not know what the numbers mean, nor their format.

#![forbid(unsafe_code)]

mod address;
mod client;
mod error;
mod request;

use std::{fs, net::SocketAddr, path::PathBuf, thread, time::Duration};

pub use address::Address;
pub use client::PATIENCE;
pub use error::ServeError;

use client::Accept;

/// How long to wait where no client can be taken, as no descriptor is left.
const PAUSE: Duration = Duration::from_millis(200);

/// A server. Dropping it removes its socket in the file system; the thread goes on until the process ends, or there are
/// no more numbers.
#[derive(Debug)]
pub struct Server {
    socket: Option<PathBuf>,
    bound: Option<SocketAddr>,
}

impl Server {
    /// Listen from now on. `text` is called for each request, with `None` when there are no numbers any more, which ends
    /// it. The media type is that of the text.
    ///
    /// # Errors
    ///
    /// It cannot be listened there.
    pub fn start(
        address: &Address,
        media_type: &'static str,
        text: impl FnMut() -> Option<String> + Send + 'static,
    ) -> Result<Self, ServeError> {
        let (accept, bound) = client::listen(address)?;
        let socket = match address {
            Address::Unix(path) => Some(path.clone()),
            Address::Loopback(_) => None,
        };
        // From here on the socket is removed if something fails.
        let server = Self { socket, bound };
        thread::Builder::new()
            .name("metrics".into())
            .spawn(move || serve(accept, media_type, text))
            .map_err(ServeError::Thread)?;
        Ok(server)
    }

    /// The port that is listened at, also where port 0 left the choice to the kernel; none of a socket in the file system.
    #[must_use]
    pub fn bound(&self) -> Option<SocketAddr> {
        self.bound
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(path) = &self.socket {
            let _ = fs::remove_file(path);
        }
    }
}

fn serve(mut accept: Accept, media_type: &str, mut text: impl FnMut() -> Option<String>) {
    loop {
        let Ok(mut client) = accept() else {
            // Not at full speed.
            thread::sleep(PAUSE);
            continue;
        };
        let mut is_over = false;
        let told = request::answer(&mut client, media_type, || {
            let text = text();
            is_over = text.is_none();
            text
        });
        // A client that is gone has no use for an error.
        if let Err(error) = told {
            tracing::debug!(%error, "metrics were not told");
        }
        if is_over {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
