//! The commands that the device took, with their times: for an analysis afterwards, in the model's
//! time. (A [recording](crate::record) has the data of changes, no reads and no times.)

use std::{collections::HashMap, sync::Mutex};

use flash_model::{Command, Done, OwnedCommand, Ticket};
use units::Nanos;

use crate::lock::lock;

/// A command and its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedCommand {
    /// Index of the namespace.
    pub namespace: usize,
    /// The command.
    pub command: OwnedCommand,
    /// When it was submitted, in the model's time.
    pub submitted: Nanos,
    /// When it was done; `None` if it was not when the log was taken.
    pub done: Option<Nanos>,
}

/// The log, on or off.
#[derive(Debug, Default)]
pub(super) struct CommandLog(Mutex<Option<Commands>>);

#[derive(Debug, Default)]
struct Commands {
    all: Vec<LoggedCommand>,
    /// Those whose end the model reports later, by their index in `all`.
    waiting: HashMap<Ticket, usize>,
}

impl CommandLog {
    /// Begin anew.
    pub(super) fn begin(&self) {
        *lock(&self.0) = Some(Commands::default());
    }

    /// End, and return the commands in the order in which the model took them.
    pub(super) fn take(&self) -> Vec<LoggedCommand> {
        lock(&self.0).take().unwrap_or_default().all
    }

    /// Note a command that the model accepted. The caller holds the model, so that the order is the
    /// model's.
    pub(super) fn note(&self, namespace: usize, command: Command<'_>, at: Nanos, done: Done) {
        let mut log = lock(&self.0);
        let Some(log) = log.as_mut() else { return };
        let done = match done {
            Done::At(at) => Some(at),
            Done::Later(ticket) => {
                log.waiting.insert(ticket, log.all.len());
                None
            }
        };
        log.all.push(LoggedCommand {
            namespace,
            command: command.into(),
            submitted: at,
            done,
        });
    }

    /// Note the ends that the model has reported.
    pub(super) fn finish(&self, finished: &[(Ticket, Nanos)]) {
        let mut log = lock(&self.0);
        let Some(log) = log.as_mut() else { return };
        for (ticket, at) in finished {
            if let Some(index) = log.waiting.remove(ticket) {
                log.all[index].done = Some(*at);
            }
        }
    }
}
