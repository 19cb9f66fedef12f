//! A small NVMe/TCP host, for tests and for load.
//!
//! [`Wire`] sends and receives PDUs, wrong ones if wanted; [`Queue`] is a connection with many
//! commands on their way; [`Host`] is a controller with its admin queue; [`command`] makes
//! commands. Everything is blocking, with one thread for each queue.
//!
//! It checks what it receives as strictly as a target checks a host, so that a test that passes has
//! checked the target's PDUs, too. It does not support reconnecting, TLS, authentication, data
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

/// An error of a target.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection failed.
    #[error("connection to the target: {0}")]
    Io(#[from] std::io::Error),
    /// The target has ended the connection with a reason.
    #[error("the target terminates the connection: {0}")]
    Terminated(Fatal),
    /// The target breaks the protocol.
    #[error("the target breaks the protocol: {0}")]
    Protocol(String),
    /// A command has failed.
    #[error("{what} ended with {status:?} (result {result:#x})")]
    Failed {
        /// Name of the command.
        what: &'static str,
        /// Its status.
        status: Status,
        /// Its result.
        result: u64,
    },
}

impl Error {
    /// The status of a command that has failed; `None` for another error.
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
