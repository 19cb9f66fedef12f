//! Destinations of messages: results to stdout, everything else to stderr, one line each.

use std::{
    fmt,
    io::{self, IsTerminal, Write},
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{Style, name::is_invisible};
use crate::args::{CommonArgs, When};

/// The output settings of a command, shared by all of its threads.
#[derive(Debug)]
pub(crate) struct Console {
    /// Style of text on stdout.
    pub(crate) out: Style,
    /// Style of text on stderr.
    pub(crate) err: Style,
    /// Whether to print one JSON document instead of text.
    pub(crate) json: bool,
    /// Whether to print errors only.
    pub(crate) quiet: bool,
    /// The number of `--verbose` options.
    pub(crate) verbose: u8,
    /// Whether to draw progress on stderr.
    pub(crate) progress: bool,
    /// Whether progress was requested, whatever stderr is.
    pub(crate) progress_forced: bool,
    errors: AtomicU64,
    /// The line of the first one.
    first_error: OnceLock<String>,
}

impl Console {
    /// The settings from the options, as far as terminal and environment allow them.
    pub(crate) fn new(common: &CommonArgs) -> Self {
        let (out_terminal, err_terminal) = (io::stdout().is_terminal(), io::stderr().is_terminal());
        // Such a terminal can neither colour nor redraw a line.
        let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        let allowed = |terminal: bool| match common.color {
            When::Always => true,
            When::Never => false,
            When::Auto => {
                terminal
                    && !dumb
                    && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            }
        };
        Self {
            out: Style::new(allowed(out_terminal)),
            err: Style::new(allowed(err_terminal)),
            json: common.json,
            quiet: common.quiet,
            verbose: common.verbose,
            progress: match common.progress {
                When::Always => true,
                When::Never => false,
                When::Auto => err_terminal && !dumb && !common.quiet,
            },
            progress_forced: common.progress == When::Always,
            errors: AtomicU64::new(0),
            first_error: OnceLock::new(),
        }
    }

    /// A console without colours and progress.
    #[cfg(test)]
    pub(crate) fn plain() -> Self {
        Self {
            out: Style::plain(),
            err: Style::plain(),
            json: false,
            quiet: false,
            verbose: 0,
            progress: false,
            progress_forced: false,
            errors: AtomicU64::new(0),
            first_error: OnceLock::new(),
        }
    }

    /// Report a failure: `what` names the failed thing, `advice` the remedy. Work goes on; the
    /// exit status will be 1.
    pub(crate) fn error(&self, what: impl fmt::Display, advice: &str) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        let line = if advice.is_empty() {
            what.to_string()
        } else {
            format!("{what}: {advice}")
        };
        print_error(self.err, &line);
        self.first_error.get_or_init(|| line);
    }

    /// Print information that is no failure.
    pub(crate) fn note(&self, text: impl fmt::Display) {
        if !self.quiet {
            print_note(text);
        }
    }

    /// Give a line to journald: as an entry, or, if that fails, on stderr with its level in front (sd-daemon(3)).
    pub(crate) fn journal(&self, level: u8, text: &str, add: impl FnOnce(&str) -> io::Result<()>) {
        let line = one_line(text);
        if add(&line).is_err() {
            let _ = writeln!(io::stderr(), "<{level}>{line}");
        }
    }

    /// Something failed, and is told elsewhere: the exit status will be 1.
    pub(crate) fn count_error(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    /// Print information for users who asked for more.
    pub(crate) fn detail(&self, text: impl fmt::Display) {
        if self.verbose > 0 {
            self.note(text);
        }
    }

    /// The line of the first error, without the program's name.
    pub(crate) fn first_error(&self) -> Option<&str> {
        self.first_error.get().map(String::as_str)
    }

    /// The number of errors so far.
    pub(crate) fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }
}

/// Print the line for an error. Whatever the text holds, it stays one line.
pub(crate) fn print_error(style: Style, text: &str) {
    let _ = writeln!(io::stderr(), "{} {}", style.bad("indef:"), one_line(text));
}

/// Print information that is no failure, where no console is at hand.
pub(crate) fn print_note(text: impl fmt::Display) {
    // A closed stderr is no reason to stop.
    let _ = writeln!(io::stderr(), "indef: {}", one_line(&text.to_string()));
}

/// Where the libraries' logs go: each record is one line, whatever names it holds.
pub(crate) struct LogLines<W>(pub(crate) W);

impl<W: Write> Write for LogLines<W> {
    /// A whole record at once, as tracing-subscriber writes it.
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        writeln!(self.0, "{}", one_line(&String::from_utf8_lossy(record)))?;
        Ok(record.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// The text without any character that could end the line, move the cursor or hide others.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.trim_end().chars() {
        match character {
            '\n' => line.push_str("; "),
            // Errors of the libraries have names as they are.
            c if c.is_control() || is_invisible(c) => line.extend(c.escape_default()),
            c => line.push(c),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_one_and_shows_all_of_it() {
        let text = "/a/b\u{1b}[2J\u{202e}gpj.exe: no\nsuch file\n";
        assert_eq!(
            one_line(text),
            "/a/b\\u{1b}[2J\\u{202e}gpj.exe: no; such file"
        );
    }

    #[test]
    fn a_record_of_the_log_is_one_line_whatever_a_name_holds() {
        let mut lines = Vec::new();
        for name in [
            "plain",
            "two\nlines",
            "back\rover",
            "\u{1b}[2J",
            "\u{202e}gpj",
        ] {
            let record = format!("DEBUG indef: looked at {name}\n");
            LogLines(&mut lines).write_all(record.as_bytes()).unwrap();
        }
        let text = String::from_utf8(lines).unwrap();
        assert_eq!(text.lines().count(), 5, "{text}");
        assert!(!text.contains(['\r', '\u{1b}', '\u{202e}']), "{text:?}");
    }
}
