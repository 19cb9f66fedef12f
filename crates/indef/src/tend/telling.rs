//! Events as lines: for journald with their level, else as messages.

use std::{env, io, os::fd::AsFd};

use indef_pipeline::tend::{Event, Level};
use rustix::fs::fstat;

use crate::output::{Console, Name, print_error};

/// Tells events.
pub(super) struct Teller<'a> {
    console: &'a Console,
    is_journal: bool,
    /// What fails decides the exit status. A service that goes on, and ends when it is asked to, has not failed.
    counts: bool,
}

impl<'a> Teller<'a> {
    pub(super) fn new(console: &'a Console, counts: bool) -> Self {
        Self {
            console,
            is_journal: is_journal(),
            counts,
        }
    }

    pub(super) fn tell(&self, event: &Event<'_>) {
        let line = match event.place() {
            Some(path) => format!("{}: {event}", Name(path)),
            None => event.to_string(),
        };
        self.say(event.level(), &line);
    }

    /// A failure of the service itself.
    pub(super) fn fail(&self, line: &str) {
        self.say(Level::Error, line);
    }

    /// Something that is not as it should be.
    pub(super) fn warn(&self, line: &str) {
        self.say(Level::Warning, line);
    }

    /// Something to know, which is no failure.
    pub(super) fn remark(&self, line: &str) {
        self.say(Level::Info, line);
    }

    fn say(&self, level: Level, line: &str) {
        if level == Level::Error && self.counts {
            self.console.count_error();
        }
        match (self.is_journal, level) {
            (_, Level::Warning | Level::Info) if self.console.quiet => {}
            (true, level) => self.console.journal(level.number(), line),
            (false, Level::Error) => print_error(self.console.err, line),
            (false, Level::Warning | Level::Info) => self.console.note(line),
        }
    }
}

/// Whether stderr is the stream to the journal that `JOURNAL_STREAM` names (systemd.exec(5)).
fn is_journal() -> bool {
    let Ok(stream) = env::var("JOURNAL_STREAM") else {
        return false;
    };
    let Ok(status) = fstat(io::stderr().as_fd()) else {
        return false;
    };
    stream == format!("{}:{}", status.st_dev, status.st_ino)
}
