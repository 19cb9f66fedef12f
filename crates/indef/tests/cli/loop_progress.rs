//! The progress line on terminals: it fits, it appears only where work lasts, and nothing of it stays.

use std::{
    io::Read,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use units::Bytes;

use crate::common::{Ran, Run, ended, make, scratch, spawn};

/// Work that takes less than this shows no line.
const AT_FIRST: Duration = Duration::from_millis(400);
/// How often a line is written into a pipe.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Everything that a command writes to a terminal of this width.
fn on_terminal(columns: usize, environment: &str, command: &str) -> Ran {
    let state = tempfile::tempdir().unwrap();
    terminal(columns, environment, command, state.path()).ran()
}

/// A terminal of this width, in which the command runs.
fn terminal(columns: usize, environment: &str, command: &str, state: &Path) -> Command {
    let line = format!("stty cols {columns}; {environment} {command}");
    let mut script = Command::new("script");
    script
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        .env("STATE_DIRECTORY", state)
        .env("LC_ALL", "C.UTF-8")
        .env("TERM", "xterm-256color")
        .env_remove("NO_COLOR");
    script
}

/// The same as [`on_terminal`], and how long after its start the command had written this word, if it did. It had begun
/// later, and written it earlier.
fn on_terminal_when(columns: usize, command: &str, word: &str) -> (Ran, Option<Duration>) {
    let state = tempfile::tempdir().unwrap();
    let begun = Instant::now();
    let mut script = terminal(columns, "", command, state.path());
    let mut child = spawn(script.stdin(Stdio::null()));
    let (mut written, mut when, mut buffer) = (Vec::new(), None, [0; 4096]);
    let mut out = child.stdout.take().unwrap();
    loop {
        let read = out.read(&mut buffer).unwrap();
        if read == 0 {
            break;
        }
        written.extend_from_slice(&buffer[..read]);
        let has_word = |text: &[u8]| String::from_utf8_lossy(text).contains(word);
        if when.is_none() && has_word(&written) {
            when = Some(begun.elapsed());
        }
    }
    let ran = Ran {
        out: String::from_utf8_lossy(&written).into_owned(),
        ..ended(child)
    };
    (ran, when)
}

/// Lines as they were drawn, one after the other, without escape sequences.
fn drawn(out: &str) -> Vec<String> {
    let mut plain = String::new();
    let mut rest = out.chars();
    while let Some(c) = rest.next() {
        match c {
            '\x1b' => {
                // Up to the letter that ends the sequence.
                let _ = rest.by_ref().skip(1).find(char::is_ascii_alphabetic);
            }
            c => plain.push(c),
        }
    }
    let lines = plain.split(['\r', '\n']);
    lines
        .map(|line| line.trim_end().to_owned())
        .filter(|line| !line.is_empty())
        .collect()
}

fn indef(words: &str, path: &Path) -> String {
    format!("{} {words} {}", env!("CARGO_BIN_EXE_indef"), path.display())
}

#[test]
fn loop_progress_fits_terminals_of_any_width() {
    if !scratch_fs::require_program("script") {
        return;
    }
    let Some(fs) = scratch("ext4") else { return };
    let name = "a-file-with-a-name-that-is-rather-long";
    for columns in [60, 80, 200] {
        let file = fs.path().join(format!("{name}-{columns}"));
        make(&file, Bytes::mib(12), Bytes::kib(64));
        let command = indef("run --quiet --progress always --rate 8MiB", &file);
        let ran = on_terminal(columns, "", &command);
        assert_eq!(ran.status, 0, "{ran:?}");
        let lines = drawn(&ran.out);
        let shown: Vec<_> = lines
            .iter()
            .filter(|line| line.contains("of 12 MiB"))
            .collect();
        assert!(shown.len() > 2, "{columns}: {ran:?}");
        for line in &lines {
            assert!(line.chars().count() < columns, "{columns}: {line:?}");
        }
        assert!(shown.iter().all(|line| line.contains(" %")), "{shown:?}");
        // No part comes and goes.
        let bars = shown.iter().filter(|line| line.contains('[')).count();
        assert!(bars == 0 || bars == shown.len(), "{shown:?}");
        let all = shown
            .iter()
            .all(|line| line.contains("1 files") && line.contains("s left"));
        assert!(columns < 200 || all, "{shown:?}");
    }
}

#[test]
fn loop_progress_of_short_work_does_not_flash() {
    if !scratch_fs::require_program("script") {
        return;
    }
    let Some(fs) = scratch("ext4") else { return };
    make(&fs.path().join("file"), Bytes::mib(1), Bytes::kib(64));
    for columns in [60, 80] {
        // On a busy machine no work may be short: there the line appears, and not too early.
        let is_proven = (0..30).any(|_| {
            let begun = Instant::now();
            let scan = indef("scan", fs.path());
            let (ran, when) = on_terminal_when(columns, &scan, "a second");
            let is_short = begun.elapsed() < AT_FIRST;
            assert_eq!(ran.status, 0, "{ran:?}");
            let lines = drawn(&ran.out);
            assert!(lines.iter().any(|line| line.contains("file")), "{lines:?}");
            assert!(
                when.is_none_or(|when| when >= AT_FIRST),
                "{when:?}: {lines:?}"
            );
            is_short || when.is_some()
        });
        if !is_proven {
            scratch_fs::skip("no work here was short, and none long enough for a line");
        }
    }
}

#[test]
fn loop_progress_stays_away_from_dumb_terminals_pipes_and_quiet_commands() {
    if !scratch_fs::require_program("script") {
        return;
    }
    let Some(fs) = scratch("ext4") else { return };
    let file = fs.path().join("file");
    let run = "run --rate 4MiB";
    for (environment, words) in [("TERM=dumb", run), ("", "run --rate 4MiB --quiet")] {
        make(&file, Bytes::mib(6), Bytes::kib(64));
        let ran = on_terminal(80, environment, &indef(words, &file));
        assert_eq!(ran.status, 0, "{ran:?}");
        assert!(!ran.out.contains('\x1b'), "{environment} {words}: {ran:?}");
        assert!(!ran.out.contains("s left"), "{ran:?}");
    }
    make(&file, Bytes::mib(6), Bytes::kib(64));
    let ran = on_terminal(80, "", &format!("{} 2>&1 | cat", indef(run, &file)));
    assert!(
        !ran.out.contains('\x1b') && !ran.out.contains("s left"),
        "{ran:?}"
    );
    // Colours are refused, and the line is not.
    make(&file, Bytes::mib(6), Bytes::kib(64));
    let ran = on_terminal(80, "NO_COLOR=1", &indef(run, &file));
    assert!(
        !ran.out.contains("\x1b[3") && !ran.out.contains("\x1b[1m"),
        "{ran:?}"
    );
    assert!(ran.out.contains("s left"), "{ran:?}");
}

#[test]
fn loop_progress_that_is_asked_for_is_written_into_a_pipe_line_by_line() {
    let Some(fs) = scratch("ext4") else { return };
    let file = fs.path().join("file");
    make(&file, Bytes::mib(8), Bytes::kib(64));
    let begun = Instant::now();
    let ran = crate::common::indef()
        .args(["run", "--quiet", "--progress", "always", "--rate", "1MiB"])
        .arg(&file)
        .ran();
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(!ran.err.contains(['\x1b', '\r']), "{ran:?}");
    let told = ran.err.lines().filter(|line| line.contains(" of 8 MiB"));
    let most = begun.elapsed().as_secs() / LINE_EVERY.as_secs();
    assert!((1..=most as usize).contains(&told.count()), "{ran:?}");
}
