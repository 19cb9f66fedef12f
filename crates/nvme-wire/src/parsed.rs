//! A command of any kind, parsed.

use crate::{
    admin::AdminCommand, command::Submission, fabrics::FabricsCommand, io::IoCommand,
    opcode::AdminOpcode,
};

/// The queue that a command came on: the same opcode means different commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueKind {
    /// The admin queue, and a connection that is no queue yet.
    Admin,
    /// An I/O queue.
    Io,
}

/// A command of any kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// A command of Fabrics: opcode 7Fh, on every queue.
    Fabrics(FabricsCommand),
    /// A command of the admin queue.
    Admin {
        /// NSID.
        nsid: u32,
        /// The command.
        command: AdminCommand,
    },
    /// A command of an I/O queue.
    Io {
        /// NSID.
        nsid: u32,
        /// The command.
        command: IoCommand,
    },
}

impl Command {
    /// Parses a submission.
    #[must_use]
    pub fn parse(submission: &Submission, queue: QueueKind) -> Self {
        let nsid = submission.nsid.get();
        if submission.opcode == AdminOpcode::Fabrics.raw() {
            return Self::Fabrics(FabricsCommand::parse(submission));
        }
        match queue {
            QueueKind::Admin => Self::Admin {
                nsid,
                command: AdminCommand::parse(submission),
            },
            QueueKind::Io => Self::Io {
                nsid,
                command: IoCommand::parse(submission),
            },
        }
    }
}
