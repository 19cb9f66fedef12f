//! A small NVMe/TCP host, for tests and for load.
//!
//! [`Wire`] sends and receives PDUs, wrong ones if wanted; [`Queue`] is a connection with many commands
//! on their way; [`Host`] a controller with its admin queue; [`command`] makes commands. Everything is
//! blocking, with one thread for each queue.
//!
//! It checks what it receives as strictly as a target checks a host, so that a test that passes says
//! something about the target's PDUs, too. What it does not do: reconnect, TLS, authentication, data
//! buffers other than contiguous ones.

#![forbid(unsafe_code)]

pub mod command;
mod host;
mod queue;
mod wire;

pub use host::{Host, HostOptions};
pub use queue::{Done, Queue, QueueOptions};
pub use wire::{Incoming, Wire};

use nvme_wire::{Status, pdu::Fatal};

/// What can go wrong with a target.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket.
    #[error("connection to the target: {0}")]
    Io(#[from] std::io::Error),
    /// The target has ended the connection, and says why.
    #[error("the target terminates the connection: {0}")]
    Terminated(Fatal),
    /// The target does what it must not do.
    #[error("the target breaks the protocol: {0}")]
    Protocol(String),
    /// A command has failed.
    #[error("{what} ended with {status:?} (result {result:#x})")]
    Failed {
        /// Which one.
        what: &'static str,
        /// How.
        status: Status,
        /// Its result.
        result: u64,
    },
}

impl Error {
    /// The status of a command that has failed; nothing for another error.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        match self {
            Self::Failed { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Whether the connection is gone, in whatever way.
    #[must_use]
    pub fn is_disconnect(&self) -> bool {
        match self {
            Self::Terminated(_) => true,
            Self::Io(error) => !matches!(
                error.kind(),
                std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
            ),
            Self::Protocol(_) | Self::Failed { .. } => false,
        }
    }
}
