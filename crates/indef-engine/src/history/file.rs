//! The file of the history: JSON Lines, each appended in one write under a lock.
//!
//! ```text
//! {"begun":{"started_ns":…,"verb":"run","command":[…],"process":123,…}}
//! {"ended":[{…the same…},{"ended":"done","files_moved":4,…}]}
//! ```
//!
//! A line that was torn ends at the next one's beginning, which is written on a line of its own; a line that cannot
//! be understood is left out. Where the file has become too long, the newest runs are written beside it, and the new
//! file takes its place. Who waited for the lock of the old one finds that it has no name any more, and takes the new.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{FlockOperation, OFlags, flock},
    io::Errno,
    process::geteuid,
};
use serde::{Deserialize, Serialize};

use super::{
    error::HistoryError,
    record::{Begun, History, Outcome, Record, State},
};

/// Runs that are kept at most, and bytes.
pub(super) const MOST_RUNS: usize = 1000;
pub(super) const MOST_BYTES: u64 = 1 << 20;
/// What is kept where there is more: so that not each run writes the whole file.
const KEPT_RUNS: usize = MOST_RUNS / 4 * 3;
const KEPT_BYTES: usize = MOST_BYTES as usize / 4 * 3;
/// No line of ours is longer. With it the file stays below its bound.
const LONGEST_LINE: usize = 32 << 10;
/// How long another run may take to write its line.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Line {
    Begun(Begun),
    Ended(Begun, Box<Outcome>),
}

impl Line {
    fn begun(&self) -> &Begun {
        match self {
            Self::Begun(begun) | Self::Ended(begun, _) => begun,
        }
    }

    fn text(&self) -> io::Result<Vec<u8>> {
        let mut text = serde_json::to_vec(self)?;
        text.push(b'\n');
        Ok(text)
    }
}

pub(super) fn path(directory: &Path) -> PathBuf {
    directory.join("history")
}

/// Append a line; the end of a run durably.
pub(super) fn append(directory: &Path, line: &Line) -> Result<(), HistoryError> {
    let path = path(directory);
    append_to(&path, line).map_err(|source| HistoryError { path, source })
}

fn append_to(path: &Path, line: &Line) -> io::Result<()> {
    let mut text = line.text()?;
    if text.len() > LONGEST_LINE {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let (mut file, len) = locked(path)?;
    let mut last = [b'\n'];
    if len > 0 {
        file.read_exact_at(&mut last, len - 1)?;
    }
    if last != *b"\n" {
        text.insert(0, b'\n');
    }
    // In one write: a process that is killed leaves all of it or, as after a power cut, a part that the next one ends.
    file.write_all(&text)?;
    if let Line::Ended(..) = line {
        file.sync_data()?;
    }
    Ok(())
}

/// The file, locked and short enough for one more line, and its length.
fn locked(path: &Path) -> io::Result<(File, u64)> {
    let begun = Instant::now();
    loop {
        let file = open(path, true)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) if begun.elapsed() < PATIENCE => {
                thread::sleep(Duration::from_millis(5));
                continue;
            }
            Err(errno) => return Err(errno.into()),
        }
        let status = file.metadata()?;
        // Replaced between being opened and being locked.
        if status.nlink() == 0 {
            continue;
        }
        if status.len() + LONGEST_LINE as u64 <= MOST_BYTES
            && parse(&content(&file)?).0.len() < MOST_RUNS
        {
            return Ok((file, status.len()));
        }
        shorten(path, &file)?;
    }
}

/// Put a shorter file in the place of this one, which is locked.
fn shorten(path: &Path, file: &File) -> io::Result<()> {
    let (runs, _) = parse(&content(file)?);
    let mut lines: Vec<Vec<u8>> = Vec::new();
    let mut bytes = 0;
    for line in runs.into_values().rev().take(KEPT_RUNS) {
        let text = line.text()?;
        bytes += text.len();
        if bytes > KEPT_BYTES {
            break;
        }
        lines.push(text);
    }
    lines.reverse();
    let new = path.with_extension("new");
    // Of one that was killed: nobody else writes it, as we have the lock.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut shorter = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)?;
    let written = shorter
        .write_all(&lines.concat())
        .and_then(|()| shorter.sync_all())
        .and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

/// Open the file, which must be ours. Neither a link is followed nor a FIFO waited for.
fn open(path: &Path, to_write: bool) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = OpenOptions::new()
        .read(true)
        .append(to_write)
        .create(to_write)
        .mode(0o600)
        .custom_flags(flags.bits() as i32)
        .open(path)?;
    let status = file.metadata()?;
    let is_ours = status.is_file() && status.uid() == geteuid().as_raw();
    if !is_ours || status.mode() & 0o022 != 0 {
        let why = "it is not a file of this user alone; remove it";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(file)
}

/// The end of the file, as far as a file of ours is long.
fn content(mut file: &File) -> io::Result<Vec<u8>> {
    let len = file.metadata()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(MOST_BYTES)))?;
    let mut content = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut content)?;
    Ok(content)
}

/// When a run began, and in which process: what tells it from all others.
type RunKey = (u64, u32);

/// The last line of each run, in the order in which they began, and the number of lines that are none.
fn parse(content: &[u8]) -> (BTreeMap<RunKey, Line>, u64) {
    let mut runs: BTreeMap<RunKey, Line> = BTreeMap::new();
    let mut damaged = 0;
    for text in content.split(|byte| *byte == b'\n') {
        if text.is_empty() {
            continue;
        }
        let Ok(line) = serde_json::from_slice::<Line>(text) else {
            damaged += 1;
            continue;
        };
        let begun = line.begun();
        let key = (begun.started_ns, begun.process);
        let is_result = matches!(line, Line::Ended(..));
        if is_result || !runs.contains_key(&key) {
            runs.insert(key, line);
        }
    }
    (runs, damaged)
}

pub(super) fn read(directory: &Path) -> Result<History, HistoryError> {
    let path = path(directory);
    let content = match open(&path, false).and_then(|file| content(&file)) {
        Ok(content) => content,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(History::default()),
        Err(source) => return Err(HistoryError { path, source }),
    };
    let (runs, damaged_lines) = parse(&content);
    let record = |line: Line| match line {
        Line::Ended(begun, outcome) => Record {
            begun,
            state: State::Ended(outcome),
        },
        Line::Begun(begun) => Record {
            state: match begun.is_running() {
                true => State::Running,
                false => State::Killed,
            },
            begun,
        },
    };
    Ok(History {
        records: runs.into_values().map(record).collect(),
        damaged_lines,
    })
}
