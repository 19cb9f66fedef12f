//! Why metrics cannot be served.

use std::{io, net::SocketAddr, path::PathBuf};

/// Metrics cannot be served there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// An address of the network.
    #[error(
        "{0}: only a loopback address is allowed, as whoever reaches it could read; let an exporter or a proxy on this \
         machine serve others"
    )]
    Open(SocketAddr),
    /// The address is taken, say.
    #[error("cannot listen at {address}: {error}")]
    Bind {
        /// The address.
        address: String,
        /// The cause.
        error: io::Error,
    },
    /// A file that is no socket is not replaced.
    #[error("{}: there is something else than a socket", .0.display())]
    NoSocket(PathBuf),
    /// Somebody answers there.
    #[error("{}: another process listens there", .0.display())]
    Taken(PathBuf),
    /// What a killed process left, or its permissions.
    #[error("{}: cannot {what}: {error}", .path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// The cause.
        error: io::Error,
    },
    /// There is no thread.
    #[error("no thread for the metrics: {0}")]
    Thread(io::Error),
}
