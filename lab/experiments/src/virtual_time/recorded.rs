//! The commands that a host has submitted, submitted again.

use flashd::device::LoggedCommand;

use super::{Host, Submission};

/// Commands with the dependencies that their times show: what was done before a command was submitted is
/// done before it here, too. So it has the concurrency that was seen, and the host's own time is left out.
/// (That makes the host's way look better than it is, not the device's.)
pub(crate) struct Recorded<'a> {
    commands: &'a [LoggedCommand],
    next: usize,
    open: Vec<usize>,
}

impl<'a> Recorded<'a> {
    pub(crate) fn new(commands: &'a [LoggedCommand]) -> Self {
        Self {
            commands,
            next: 0,
            open: Vec::new(),
        }
    }

    /// The share of the commands that are done.
    pub(crate) fn progress(&self) -> f64 {
        (self.next - self.open.len()) as f64 / (self.commands.len() as f64).max(1.0)
    }
}

impl Host for Recorded<'_> {
    fn next(&mut self) -> Option<Submission> {
        let logged = self.commands.get(self.next)?;
        let was_open = |other: &usize| {
            let done = self.commands[*other].done;
            done.is_none_or(|done| done > logged.submitted)
        };
        if !self.open.iter().all(was_open) {
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
