//! Events as lines: for journald with their level and fields, else as messages.

use std::path::Path;

use indef_pipeline::tend::{Event, Level};

use super::journal::Journal;
use crate::output::{Console, Name, print_error};

/// Tells events.
pub(super) struct Teller<'a> {
    console: &'a Console,
    journal: Option<Journal>,
    /// What fails decides the exit status. A service that goes on, and ends when it is asked to, has not failed.
    counts: bool,
}

impl<'a> Teller<'a> {
    pub(super) fn new(console: &'a Console, counts: bool, root: &Path) -> Self {
        Self {
            console,
            journal: Journal::of_stderr(root),
            counts,
        }
    }

    pub(super) fn tell(&self, event: &Event<'_>) {
        let line = match event.place() {
            Some(path) => format!("{}: {event}", Name(path)),
            None => event.to_string(),
        };
        self.say(event.level(), &line, Some(event));
    }

    /// A failure of the service itself.
    pub(super) fn fail(&self, line: &str) {
        self.say(Level::Error, line, None);
    }

    /// Something that is not as it should be.
    pub(super) fn warn(&self, line: &str) {
        self.say(Level::Warning, line, None);
    }

    /// Something to know, which is no failure.
    pub(super) fn remark(&self, line: &str) {
        self.say(Level::Info, line, None);
    }

    fn say(&self, level: Level, line: &str, event: Option<&Event<'_>>) {
        if level == Level::Error && self.counts {
            self.console.count_error();
        }
        match (&self.journal, level) {
            (_, Level::Warning | Level::Info) if self.console.quiet => {}
            (Some(journal), level) => self
                .console
                .journal(level.number(), line, |line| journal.add(level, line, event)),
            (None, Level::Error) => print_error(self.console.err, line),
            (None, Level::Warning | Level::Info) => self.console.note(line),
        }
    }
}
