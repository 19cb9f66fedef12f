//! The history as text.

use std::{
    fmt,
    io::{self, Write},
    path::Path,
};

use indef_core::SkipReason;
use indef_engine::history::{End, History, Outcome, Record, State};

use super::json::word;
use crate::{
    advice::Advice,
    output::{Align, Console, Count, Name, Table, counted},
};

/// Write it; `all` is the number of runs that there are.
pub(super) fn write(
    out: &mut dyn Write,
    console: &Console,
    history: &History,
    all: usize,
) -> io::Result<()> {
    if all == 0 {
        writeln!(out, "No run is on record")?;
    } else {
        table(out, console, history)?;
    }
    let earlier = (all - history.records.len()) as u64;
    if earlier > 0 {
        let more = counted(earlier, "earlier run", "earlier runs");
        let more = format!("and {more} (--last, --verbose)");
        writeln!(out, "  {}", console.out.dim(&more))?;
    }
    for record in &history.records {
        details(out, console, record)?;
    }
    if history.damaged_lines > 0 {
        let lines = counted(history.damaged_lines, "line", "lines");
        writeln!(
            out,
            "{lines} of the history cannot be read, and are left out"
        )?;
    }
    Ok(())
}

fn table(out: &mut dyn Write, console: &Console, history: &History) -> io::Result<()> {
    let columns = [
        ("started (UTC)", Align::Left),
        ("ended", Align::Left),
        ("took", Align::Right),
        ("files moved", Align::Right),
        ("relocated", Align::Right),
        ("fewer requests", Align::Right),
        ("command", Align::Left),
    ];
    let mut table = Table::new(&columns);
    for record in &history.records {
        let known = outcome(record);
        let cell = |of: &dyn Fn(&Outcome) -> String| known.map_or_else(String::new, of);
        table.row(&[
            &started(record),
            &ended(record),
            &cell(&|of| of.duration_ns.to_string()),
            &cell(&|of| Count(of.files_moved).to_string()),
            &cell(&|of| of.bytes_relocated.to_string()),
            &cell(&|of| Count(of.requests_saved()).to_string()),
            &Command(record),
        ]);
    }
    table.write(out, console.out)
}

fn outcome(record: &Record) -> Option<&Outcome> {
    match &record.state {
        State::Ended(outcome) => Some(outcome),
        State::Running | State::Killed => None,
    }
}

/// To the second: `2026-11-26 03:00:12`.
fn started(record: &Record) -> String {
    let time = humantime::format_rfc3339_seconds(record.begun.started()).to_string();
    time.trim_end_matches('Z').replace('T', " ")
}

fn ended(record: &Record) -> String {
    match &record.state {
        State::Running => "goes on".to_owned(),
        State::Killed => "killed".to_owned(),
        State::Ended(outcome) => match (outcome.ended, &outcome.why) {
            (End::Stopped, Some(why)) => format!("stopped: {}", Name(Path::new(why))),
            (end, _) => match outcome.files_failed + outcome.problems {
                0 => word(end).to_owned(),
                failures => format!("{}, {} failed", word(end), Count(failures)),
            },
        },
    }
}

/// A command line without the path of the program.
struct Command<'a>(&'a Record);

impl fmt::Display for Command<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.0.begun.command.iter().skip(1);
        let words: Vec<String> = words
            .map(|word| Name(Path::new(word)).to_string())
            .collect();
        f.pad(&words.join(" "))
    }
}

/// Why a run failed, and what of it did; with `--verbose` what it left alone.
fn details(out: &mut dyn Write, console: &Console, record: &Record) -> io::Result<()> {
    let Some(outcome) = outcome(record) else {
        return Ok(());
    };
    if let (End::Failed, Some(why)) = (outcome.ended, &outcome.why) {
        writeln!(out, "{}: {}", started(record), Name(Path::new(why)))?;
    }
    if outcome.files_failed > 0 {
        let files = counted(outcome.files_failed, "file", "files");
        writeln!(out, "{}: {files} failed", started(record))?;
    }
    if outcome.problems > 0 {
        let paths = counted(outcome.problems, "path", "paths");
        writeln!(out, "{}: {paths} could not be looked at", started(record))?;
    }
    if console.verbose == 0 {
        return Ok(());
    }
    for (reason, files) in &outcome.skipped {
        let known = SkipReason::ALL
            .iter()
            .find(|known| known.as_str() == *reason);
        let advice = match known {
            Some(known) => known.advice(),
            None => Name(Path::new(reason)).to_string().into(),
        };
        let files = counted(*files, "file", "files");
        writeln!(out, "{}: {files} left alone: {advice}", started(record))?;
    }
    if outcome.stalls_over_limit > 0 {
        let steps = counted(outcome.stalls_over_limit, "step", "steps");
        let longest = outcome.longest_lock_ns;
        writeln!(
            out,
            "{}: {steps} took longer than --max-stall, the longest {longest}",
            started(record)
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use indef_engine::history::Begun;

    use super::*;

    /// Another version, or whoever may write the file, has words of its own.
    #[test]
    fn whatever_a_record_holds_moves_no_cursor() {
        let odd = "odd\u{1b}[2J\r\n".to_owned();
        let outcome = Outcome {
            ended: End::Stopped,
            why: Some(odd.clone()),
            skipped: [(odd.clone(), 1)].into(),
            ..Outcome::default()
        };
        let record = Record {
            begun: Begun::now("run", ["indef".to_owned(), odd]),
            state: State::Ended(Box::new(outcome)),
        };
        let history = History {
            records: vec![record],
            damaged_lines: 0,
        };
        let mut console = Console::plain();
        console.verbose = 1;
        let mut text = Vec::new();
        write(&mut text, &console, &history, 1).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text.lines().count(), 3, "{text}");
        assert_eq!(text.matches("odd\\u{1b}[2J").count(), 3, "{text}");
        assert!(!text.contains(['\u{1b}', '\r']), "{text:?}");
    }
}
