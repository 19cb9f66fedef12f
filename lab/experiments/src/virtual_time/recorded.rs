//! The commands that a host has submitted, submitted again.

use flash_model::Command;
use flashd::device::LoggedCommand;

use super::{Host, Submission};

/// Commands with the dependencies that their times show: what was done before a command was submitted is
/// done before it here, too. So it has the concurrency that was seen, and the host's own time is left out.
/// (That makes the host's way look better than it is, not the device's.)
///
/// A host that is busy with other things submits later, so less overlaps; at the worst, nothing does
/// ([`Self::one_by_one`]).
pub(crate) struct Recorded<'a> {
    commands: &'a [LoggedCommand],
    next: usize,
    open: Vec<usize>,
    most_open: usize,
    /// Whether a command waits for those that were done before it.
    is_patient: bool,
}

impl<'a> Recorded<'a> {
    pub(crate) fn new(commands: &'a [LoggedCommand]) -> Self {
        Self {
            commands,
            next: 0,
            open: Vec::new(),
            most_open: usize::MAX,
            is_patient: true,
        }
    }

    /// The same commands, each after the one before it.
    pub(crate) fn one_by_one(commands: &'a [LoggedCommand]) -> Self {
        Self {
            most_open: 1,
            ..Self::new(commands)
        }
    }

    /// The same commands from a host that always has `count` of them under way.
    pub(crate) fn overlapping(commands: &'a [LoggedCommand], count: usize) -> Self {
        Self {
            most_open: count,
            is_patient: false,
            ..Self::new(commands)
        }
    }

    /// The share that is done, by the bytes that the commands read, write and move.
    pub(crate) fn progress(&self) -> f64 {
        let begun: u64 = self.commands[..self.next].iter().map(bytes).sum();
        let open = self
            .open
            .iter()
            .map(|number| bytes(&self.commands[*number]));
        let all: u64 = self.commands.iter().map(bytes).sum();
        (begun - open.sum::<u64>()) as f64 / (all as f64).max(1.0)
    }
}

/// The bytes of a command that flash reads or programs.
fn bytes(logged: &LoggedCommand) -> u64 {
    match logged.command.as_command() {
        Command::Read { len, .. } | Command::Write { len, .. } | Command::Append { len, .. } => len,
        Command::Copy { sources, .. } => sources.iter().map(|source| source.len).sum(),
        Command::Migrate { moves } => moves.iter().map(|it| it.len).sum(),
        Command::Flush
        | Command::Deallocate { .. }
        | Command::WriteZeroes { .. }
        | Command::RenewHandle { .. }
        | Command::Zone { .. } => 0,
    }
}

impl Host for Recorded<'_> {
    fn next(&mut self) -> Option<Submission> {
        let logged = self.commands.get(self.next)?;
        let was_open = |other: &usize| {
            let done = self.commands[*other].done;
            done.is_none_or(|done| done > logged.submitted)
        };
        let waits = self.is_patient && !self.open.iter().all(was_open);
        if waits || self.open.len() == self.most_open {
            return None;
        }
        self.open.push(self.next);
        self.next += 1;
        Some(Submission {
            number: self.next - 1,
            namespace: logged.namespace,
            command: logged.command.clone(),
        })
    }

    fn done(&mut self, number: usize) {
        self.open.retain(|open| *open != number);
    }

    fn is_over(&self) -> bool {
        self.open.is_empty() && self.next == self.commands.len()
    }
}
