//! Progress on stderr: the current activity, the amount done, the speed, and the
//! remaining time.
//!
//! It is one line that fits the terminal, whatever its width: the parts that matter least go first. Work that ends
//! soon shows none, so that nothing flashes.

use std::{
    borrow::Cow,
    fmt::Write,
    io,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use units::Bytes;

use super::{Console, Count, fit};

/// Work that takes less than this shows no line.
const AT_FIRST: Duration = Duration::from_millis(400);
/// How often a line is written where it cannot be redrawn (`--progress always` into a pipe or file).
const LINE_EVERY: Duration = Duration::from_secs(5);

/// A line that is redrawn a few times a second, and removed when the work is done.
pub(crate) struct Progress {
    bar: ProgressBar,
    text: Arc<Text>,
    /// When a whole line was written last; `None` where the line is redrawn or hidden.
    written: Option<Mutex<Instant>>,
}

/// The parts of the line that are not numbers.
#[derive(Debug)]
struct Text {
    kind: Kind,
    message: Mutex<Cow<'static, str>>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A number of files whose sum is not known beforehand, and what is done to them.
    Counting(&'static str),
    /// Only the message.
    Saying,
    /// Bytes, of so many.
    Bytes,
}

/// The numbers of the line.
#[derive(Clone, Copy, Debug, Default)]
struct Numbers {
    done: u64,
    total: u64,
    per_second: f64,
    left: Duration,
}

impl Progress {
    /// A progress line for things whose number is not known beforehand.
    pub(crate) fn counting(console: &Console, what: &'static str) -> Self {
        Self::new(
            console,
            ProgressBar::no_length(),
            Kind::Counting(what),
            String::new(),
        )
    }

    /// A progress line that only says what is being done.
    pub(crate) fn saying(console: &Console, what: &'static str) -> Self {
        Self::new(console, ProgressBar::no_length(), Kind::Saying, what)
    }

    /// A progress line for bytes up to `total`.
    pub(crate) fn bytes(console: &Console, total: u64) -> Self {
        Self::new(console, ProgressBar::new(total), Kind::Bytes, String::new())
    }

    fn new(
        console: &Console,
        bar: ProgressBar,
        kind: Kind,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        let text = Arc::new(Text {
            kind,
            message: Mutex::new(message.into()),
        });
        let redrawn = console.progress && io::IsTerminal::is_terminal(&io::stderr());
        if redrawn {
            let drawn = Arc::clone(&text);
            bar.set_style(style(move |state: &ProgressState, out: &mut dyn Write| {
                if state.elapsed() >= AT_FIRST {
                    // A line in the last column would wrap on some terminals.
                    let width = fit::terminal().0.saturating_sub(1);
                    let _ = out.write_str(&drawn.line(Numbers::of(state), width));
                }
            }));
            bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(8));
            bar.enable_steady_tick(Duration::from_millis(125));
        } else {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        Self {
            bar,
            text,
            written: (console.progress && !redrawn).then(|| Mutex::new(Instant::now())),
        }
    }

    /// Set the total number of bytes.
    pub(crate) fn total(&self, total: u64) {
        self.bar.set_length(total);
    }

    /// Add this much to the amount done.
    pub(crate) fn add(&self, n: u64) {
        self.bar.inc(n);
        self.write();
    }

    /// Set the text after the numbers.
    pub(crate) fn message(&self, text: impl Into<Cow<'static, str>>) {
        *self.text.message() = text.into();
        self.write();
    }

    /// Write a whole line, if one is due.
    fn write(&self) {
        let Some(written) = &self.written else { return };
        let mut last = written.lock().unwrap_or_else(PoisonError::into_inner);
        if last.elapsed() >= LINE_EVERY {
            *last = Instant::now();
            let numbers = Numbers {
                done: self.bar.position(),
                total: self.bar.length().unwrap_or(0),
                per_second: self.bar.per_sec(),
                left: self.bar.eta(),
            };
            // A closed stderr is no reason to stop.
            let line = self.text.line(numbers, usize::MAX);
            let _ = io::Write::write_all(&mut io::stderr(), format!("{line}\n").as_bytes());
        }
    }

    /// Print something on stderr without tearing the line.
    pub(crate) fn suspend<T>(&self, say: impl FnOnce() -> T) -> T {
        self.bar.suspend(say)
    }

    /// Remove the line.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}

/// A style of nothing but this line.
fn style(
    line: impl Fn(&ProgressState, &mut dyn Write) + Clone + Send + Sync + 'static,
) -> ProgressStyle {
    ProgressStyle::with_template("{line}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .with_key("line", line)
}

impl Numbers {
    fn of(state: &ProgressState) -> Self {
        Self {
            done: state.pos(),
            total: state.len().unwrap_or(0),
            per_second: state.per_sec(),
            left: state.eta(),
        }
    }
}

impl Text {
    fn message(&self) -> std::sync::MutexGuard<'_, Cow<'static, str>> {
        self.message.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The line in at most this many columns.
    fn line(&self, numbers: Numbers, width: usize) -> String {
        let message = self.message().clone();
        let Numbers {
            done,
            total,
            per_second,
            left,
        } = numbers;
        // Each part with its rank: the highest ones are left out first. Numbers have the width of their longest, so
        // that parts neither jump nor come and go.
        let mut parts: Vec<(u8, String)> = match self.kind {
            Kind::Counting(what) => vec![
                (0, format!("{what}: {} files", Count(done))),
                (2, format!("{:>7} a second", Count(per_second as u64))),
                (1, message.into_owned()),
            ],
            Kind::Saying => vec![(0, message.into_owned())],
            Kind::Bytes => {
                // Nothing to write is all written.
                let share = if total == 0 {
                    1.0
                } else {
                    done as f64 / total as f64
                };
                let bytes = |n: u64| Bytes(n).to_string();
                let total = bytes(total);
                vec![
                    (5, bar(share, (width / 4).clamp(10, 30))),
                    (0, format!("{:>3.0} %", share.min(1.0) * 100.0)),
                    (1, format!("{:>8} of {total}", bytes(done))),
                    (4, format!("{:>8}/s", bytes(per_second as u64))),
                    (
                        2,
                        format!("{:>3} left", format!("{:#}", HumanDuration(left))),
                    ),
                    (3, message.into_owned()),
                ]
            }
        };
        parts.retain(|(_, part)| !part.is_empty());
        loop {
            let line: Vec<&str> = parts.iter().map(|(_, part)| part.as_str()).collect();
            let line = line.join("  ");
            if parts.len() <= 1 || fit::columns(&line) <= width {
                return fit::head(&line, width).into_owned();
            }
            let least = parts.iter().map(|(rank, _)| *rank).max();
            parts.retain(|(rank, _)| Some(*rank) != least);
        }
    }
}

/// A bar of this many columns between its brackets.
fn bar(share: f64, columns: usize) -> String {
    let full = (share.clamp(0.0, 1.0) * columns as f64) as usize;
    let head = if full < columns { ">" } else { "" };
    let rest = " ".repeat(columns - full - head.len());
    format!("[{}{head}{rest}]", "=".repeat(full))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(kind: Kind, message: &'static str) -> Text {
        Text {
            kind,
            message: Mutex::new(message.into()),
        }
    }

    const HALF: Numbers = Numbers {
        done: 700 << 30,
        total: 1400 << 30,
        per_second: 345.6 * 1024.0 * 1024.0,
        left: Duration::from_secs(3600),
    };

    #[test]
    fn a_wide_line_has_everything() {
        let line = text(Kind::Bytes, "1,000 of 12,345 files").line(HALF, 199);
        let expected = "[===============>              ]   50 %   700 GiB of 1.4 TiB  345.6 MiB/s  60m left  \
                        1,000 of 12,345 files";
        assert_eq!(line, expected);
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_and_the_amount_stays_longest() {
        let long = "a message that is much longer than what terminals of our day have room for in one line";
        for kind in [Kind::Bytes, Kind::Saying, Kind::Counting("planning")] {
            for width in 0..220 {
                let line = text(kind, long).line(HALF, width);
                assert!(fit::columns(&line) <= width, "{width}: {line}");
                assert!(!line.contains('\n'));
            }
        }
        let line = text(Kind::Bytes, "1 of 2 files").line(HALF, 59);
        assert!(line.contains("50 %   700 GiB of 1.4 TiB"), "{line}");
        assert!(line.contains("60m left"), "{line}");
        assert!(text(Kind::Bytes, "").line(HALF, 9).contains("50 %"));
    }

    #[test]
    fn nothing_to_do_is_all_done() {
        let line = text(Kind::Bytes, "").line(Numbers::default(), 79);
        assert!(line.contains("100 %"), "{line}");
        assert!(bar(0.0, 10) == "[>         ]" && bar(2.0, 10) == "[==========]");
    }
}
