//! The live view: a few lines on stderr that refresh themselves, and are removed when the trace
//! ends.
//!
//! It needs neither the terminal's raw mode nor its cursor position, so that there is nothing to
//! restore: whatever ends the process, the terminal is as it was. The cursor rests at the beginning
//! of the line below, where a `^C` that the terminal echoes does no harm. (A progress bar's lines
//! end at the right edge, from where an echo goes to the next line and the first line remains.)
//!
//! A traced command shares the terminal. Its output would be overdrawn, so there is no view during
//! a command unless it is requested (`--progress always`).

use std::{io, time::Duration};

use indef_pipeline::learn::{Distinct, HotFile, Live};
use units::{Bytes, Nanos};

use crate::output::{Console, Count, Margin, Name, Ratio, Style, fit};

/// Maximum number of lines of the view: the terminal shows other things than a trace.
const MAX_LINES: usize = 9;
/// Interval between lines where stderr is no terminal and progress was requested all the same.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Shows a trace while it runs.
pub(crate) struct View {
    style: Style,
    how: How,
}

enum How {
    Hidden,
    /// Lines that are redrawn.
    Block(Block),
    /// A line now and then; the time of the last one.
    Lines(Option<Duration>),
}

impl View {
    /// The view that the console allows; `beside_command` tells that a traced command has the same
    /// stderr.
    pub(crate) fn new(console: &Console, beside_command: bool) -> Self {
        let how = if !console.progress || (beside_command && !console.progress_forced) {
            How::Hidden
        } else if io::IsTerminal::is_terminal(&io::stderr()) {
            How::Block(Block::default())
        } else {
            How::Lines(None)
        };
        Self {
            style: console.err,
            how,
        }
    }

    /// Draw the results so far.
    pub(crate) fn show(&mut self, live: &Live) {
        match &mut self.how {
            How::Hidden => {}
            How::Block(block) => {
                let (width, height) = fit::terminal();
                let lines = lines(live, width, height.saturating_sub(1), self.style);
                say(&block.draw(&lines, width));
            }
            How::Lines(last) => {
                let due = last.is_none_or(|last| live.elapsed() >= last + LINE_EVERY);
                if due {
                    *last = Some(live.elapsed());
                    let line = headline(live, usize::MAX, self.style);
                    say(&format!("{line}\n"));
                }
            }
        }
    }

    /// Print something on stderr without tearing the view.
    pub(crate) fn suspend<T>(&mut self, speak: impl FnOnce() -> T) -> T {
        match &mut self.how {
            How::Block(block) => {
                let lines = block.drawn.clone();
                let width = fit::terminal().0;
                say(&block.erase(width));
                let said = speak();
                say(&block.draw(&lines, width));
                said
            }
            How::Hidden | How::Lines(_) => speak(),
        }
    }

    /// Remove it.
    pub(crate) fn finish(&mut self) {
        if let How::Block(block) = &mut self.how {
            say(&block.erase(fit::terminal().0));
        }
        self.how = How::Hidden;
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Write to stderr in one call, so that it does not flicker. A closed stderr is no reason to stop.
fn say(text: &str) {
    let _ = io::Write::write_all(&mut io::stderr(), text.as_bytes());
}

/// Lines on a terminal that are drawn over each other.
#[derive(Debug, Default)]
struct Block {
    drawn: Vec<String>,
}

impl Block {
    /// The text that draws these lines over the last ones.
    fn draw(&mut self, lines: &[String], width: usize) -> String {
        let mut text = self.erase(width);
        text.extend(lines.iter().flat_map(|line| [line, "\n"]));
        lines.clone_into(&mut self.drawn);
        text
    }

    /// The text that erases the lines.
    fn erase(&mut self, width: usize) -> String {
        // A terminal that became narrower has wrapped the lines.
        let height = |line: String| columns(&line).div_ceil(width.max(1)).max(1);
        let rows: usize = self.drawn.drain(..).map(height).sum();
        match rows {
            0 => String::new(),
            rows => format!("\r\x1b[{rows}A\x1b[J"),
        }
    }
}

/// Columns of a line with its styles, which take none.
fn columns(line: &str) -> usize {
    let mut parts = line.split('\x1b');
    let first = parts.next().map_or(0, fit::columns);
    let styled = parts.map(|part| {
        part.split_once('m')
            .map_or(0, |(_, text)| fit::columns(text))
    });
    first + styled.sum::<usize>()
}

/// The view in this many columns and rows: none of its lines is wider, and there are not more.
pub(super) fn lines(live: &Live, width: usize, height: usize, style: Style) -> Vec<String> {
    let mut lines = vec![headline(live, width, style)];
    if live.lost() > 0 {
        let text = format!("{} events lost", Count(live.lost()));
        lines.push(style.warn(&fit::head(&text, width)));
    }
    lines.push(sums(live, width, style));
    let room = height.min(MAX_LINES).saturating_sub(lines.len() + 1);
    let files = live.hottest_now(room);
    if !files.is_empty() {
        let columns = FileColumns::in_width(width);
        lines.push(style.dim(&fit::head(&columns.titles(), width)));
        lines.extend(
            files
                .iter()
                .map(|file| fit::head(&columns.row(file, width), width).into_owned()),
        );
    }
    lines.truncate(height);
    lines
}

/// Elapsed time and rates.
fn headline(live: &Live, width: usize, style: Style) -> String {
    let rates = live.rates();
    let error = Some(live.rate_error());
    let margin = |rate| Margin { error, rate };
    let mut parts = vec![
        Clock(live.elapsed()).to_string(),
        format!(
            "{} reads/s{}",
            Count(rates.reads.round() as u64),
            margin(rates.reads)
        ),
        format!("{}/s", Bytes(rates.read as u64)),
    ];
    if live.total().writes > 0 {
        parts.push(format!(
            "{} writes/s{}",
            Count(rates.writes.round() as u64),
            margin(rates.writes)
        ));
        parts.push(format!("{}/s", Bytes(rates.written as u64)));
    }
    style.bold(&joined(&parts, width))
}

/// The totals.
fn sums(live: &Live, width: usize, style: Style) -> String {
    let total = live.total();
    let mut parts = Vec::new();
    if let Some(requests) = total.requests_per_read() {
        parts.push(format!("{} requests/read", Ratio(requests)));
    }
    if let Some(time) = total.mean_time() {
        parts.push(format!("{time}/read"));
    }
    let (files, ranges) = (live.files_seen(), live.ranges_seen());
    let files_word = plural(files.count(), "file", "files");
    let ranges_word = plural(ranges.count(), "range", "ranges");
    parts.push(format!("{} {files_word}", AtLeast(files)));
    parts.push(format!("{} {ranges_word}", AtLeast(ranges)));
    if live.lost() == 0 {
        parts.push("nothing lost".to_owned());
    }
    style.dim(&joined(&parts, width))
}

/// As many of the parts as fit, the first one cut if necessary.
fn joined(parts: &[String], width: usize) -> String {
    let mut line = String::new();
    for part in parts {
        let gap = if line.is_empty() { "" } else { "  " };
        if !line.is_empty() && fit::columns(&line) + gap.len() + fit::columns(part) > width {
            break;
        }
        line.extend([gap, part]);
    }
    fit::head(&line, width).into_owned()
}

/// The columns of the files for which there is room.
#[derive(Clone, Copy)]
struct FileColumns {
    requests: bool,
    time: bool,
}

impl FileColumns {
    fn in_width(width: usize) -> Self {
        Self {
            requests: width >= 36,
            time: width >= 50,
        }
    }

    fn titles(self) -> String {
        self.cells("reads/s", "req/read", "mean") + "file"
    }

    fn row(self, file: &HotFile<'_>, width: usize) -> String {
        let counts = &file.total;
        let requests = counts
            .requests_per_read()
            .map_or_else(|| "-".to_owned(), |ratio| Ratio(ratio).to_string());
        let time = counts
            .mean_time()
            .map_or_else(|| "-".to_owned(), |time| time.to_string());
        let reads = Count(file.rates.reads.round() as u64).to_string();
        let row = self.cells(&reads, &requests, &time);
        let room = width.saturating_sub(fit::columns(&row));
        let name = name(file);
        format!("{row}{}", fit::tail(&name, room))
    }

    fn cells(self, reads: &str, requests: &str, time: &str) -> String {
        let mut row = format!("{reads:>9}  ");
        if self.requests {
            row += &format!("{requests:>8}  ");
        }
        if self.time {
            row += &format!("{time:>9}  ");
        }
        row
    }
}

/// The path, or the known facts about a file without one.
pub(super) fn name(file: &HotFile<'_>) -> String {
    match file.path {
        Some(path) => Name(path).to_string(),
        None => format!(
            "inode {} of device {}:{}",
            file.key.inode,
            rustix::fs::major(file.key.dev),
            rustix::fs::minor(file.key.dev)
        ),
    }
}

/// A number that is a lower bound.
pub(super) struct AtLeast<'a>(pub(super) &'a Distinct);

impl std::fmt::Display for AtLeast<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let more = if self.0.is_full() { "over " } else { "" };
        write!(f, "{more}{}", Count(self.0.count()))
    }
}

/// The noun for this number.
pub(super) fn plural(n: u64, one: &'static str, many: &'static str) -> &'static str {
    if n == 1 { one } else { many }
}

/// A time span, printed as on a clock.
pub(crate) struct Clock(pub(crate) Duration);

impl std::fmt::Display for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = self.0.as_secs();
        let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        write!(f, "{hours}:{minutes:02}:{seconds:02}")
    }
}

/// The mean of a time, for tables.
pub(super) fn time_or_dash(time: Option<Nanos>) -> String {
    time.map_or_else(|| "-".to_owned(), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use indef_core::access::Observed;
    use indef_trace::{FileKey, FsId, Tally, TracedFile};
    use units::FileRange;

    use indef_pipeline::learn::Batch;

    use super::*;
    use crate::tmux::Tmux;

    #[test]
    fn lines_are_drawn_over_the_last_ones() {
        let style = Style::new(true);
        let lines = [style.bold("größe"), "four".to_owned()];
        assert_eq!(lines.each_ref().map(|line| columns(line)), [5, 4]);
        let mut block = Block::default();
        assert_eq!(block.draw(&lines, 80), "\x1b[1mgröße\x1b[0m\nfour\n");
        assert_eq!(block.draw(&lines[1..], 80), "\r\x1b[2A\x1b[Jfour\n");
        // The terminal was made narrower meanwhile.
        assert_eq!(block.erase(3), "\r\x1b[2A\x1b[J");
        assert_eq!(block.erase(3), "");
        assert_eq!(block.draw(&[], 80), "");
        assert_eq!(block.erase(0), "");
    }

    #[test]
    fn beside_a_command_it_is_shown_only_if_asked_for() {
        let shown = |progress, progress_forced, beside_command| {
            let mut console = Console::plain();
            (console.progress, console.progress_forced) = (progress, progress_forced);
            !matches!(View::new(&console, beside_command).how, How::Hidden)
        };
        assert!(shown(true, false, false));
        assert!(!shown(true, false, true));
        assert!(shown(true, true, true));
        assert!(!shown(false, false, false));
    }

    /// Set for the part of a test that runs in a terminal of its own.
    const INSIDE: &str = "INDEF_TEST_INSIDE";

    /// A trace of two files.
    fn show_a_trace() {
        let mut console = Console::plain();
        console.progress = true;
        let key = |inode| FileKey {
            dev: 0x801,
            inode,
            generation: 1,
            subvolume: 0,
        };
        let file = |inode, path: &str| TracedFile {
            key: key(inode),
            fs: FsId::default(),
            path: Some(path.into()),
        };
        let tally = |inode, n: u64, reads: u64, requests, nanos| Tally {
            file: key(inode),
            range: FileRange::new(n << 17, 1 << 17),
            reads,
            writes: 0,
            observed: Observed {
                requests: reads * requests,
                timed: reads,
                time: Nanos(reads * nanos),
                ahead: None,
            },
        };
        let files = [file(1, "/srv/db/main.sqlite"), file(2, "/srv/db/index.dat")];
        let mut view = View::new(&console, false);
        let mut live = Live::default();
        let begin = Instant::now();
        for n in 0..50_u64 {
            let tallies = [
                tally(1, n % 40, 120 + n % 7, 32, 810_000),
                tally(2, n % 9, 40 + n % 5, 8, 250_000),
            ];
            let batch = Batch {
                tallies: &tallies,
                files: if n == 0 { &files } else { &[] },
                ..Batch::default()
            };
            live.add(&batch, begin.elapsed());
            view.show(&live);
            if n == 25 {
                view.suspend(|| println!("a note between"));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        view.finish();
        super::super::write_summary(&mut io::stdout(), &console, &live, 5, None).unwrap();
    }

    #[test]
    fn the_view_refreshes_itself_and_leaves_a_clean_terminal() {
        if std::env::var_os(INSIDE).is_some() {
            return show_a_trace();
        }
        let Some(tmux) = Tmux::start(80, 24) else {
            return;
        };
        let tests = std::env::current_exe().unwrap();
        let show = format!(
            "clear; {INSIDE}=1 {} --nocapture --exact \
             trace::live::view::tests::the_view_refreshes_itself_and_leaves_a_clean_terminal",
            tests.display()
        );
        tmux.command(&show);
        let screen = tmux.wait_until("all lines of the view", |screen| {
            // Rates after one second or more.
            screen.contains("0:00:01") && screen.contains("/srv/db/index.dat")
        });
        if let Some(folder) = std::env::var_os("INDEF_SCREENS") {
            let _ = std::fs::write(std::path::Path::new(&folder).join("live.txt"), &screen);
        }
        assert_eq!(screen.matches("reads/s  ").count(), 2, "{screen}");
        let between = tmux.wait_until("a note above the view", |screen| {
            let note = screen.find("a note between");
            note.is_some_and(|note| screen[note..].contains("nothing lost"))
        });
        assert_eq!(between.matches("nothing lost").count(), 1, "{between}");
        let end = tmux.wait_for("test result: ok");
        assert!(!end.contains("nothing lost"), "the view is gone: {end}");
        assert!(!end.contains("reads/s"), "all of it: {end}");
        assert!(
            end.contains("Hottest files") && end.contains("requests for each read"),
            "{end}"
        );
        // Killed in the middle: the terminal needs no recovery.
        tmux.command(&show);
        tmux.wait_for("nothing lost");
        tmux.press(&["C-c"]);
        tmux.wait_until("the shell", |screen| screen.trim_end().ends_with("ready$"));
        tmux.assert_as_before();
    }
}
