//! The journal of a run: the bytes that it reserved, the bytes that these came to, the files that
//! are done.
//!
//! JSON Lines, each appended in one write, so that a killed process, a power cut or a full disk leaves whole lines and at most
//! one torn one at the end: nothing is appended after one that failed. It is ignored (and cut off before anything is
//! appended again), as nothing depends on it:
//!
//! - of `reserved` nothing was written yet, as that waits for the whole line. (After a power cut lines may be missing that
//!   were there before, as no line is synced. Then a resumed run may write so much more than was asked for.)
//! - without `settled` all that was reserved counts as written;
//! - without `done` the file is looked at once more, and is found in one piece, or is moved as it is then;
//! - without the others the run goes on with what the lines before say.
//!
//! A line that ends and cannot be understood is damage.
//!
//! ```text
//! {"indef-journal":2,"limit_bytes":1048576,"process":123,"options":{…}}
//!                                                 first: its limit of bytes in all, and its process
//! {"purpose":"…"}                                 who may go on with it without being asked
//! {"process":123}, {"options":{…}}                the run was resumed
//! {"reserved":[dev,inode,bytes]}                  before anything is written
//! {"settled":[dev,inode,reserved,spent]}          a piece of a file ended
//! {"done":[dev,inode]}                            a file ended, for whatever reason but a stop
//! ```

use std::{
    collections::{HashMap, HashSet},
    io::{self, BufRead, BufReader, Read, Write},
};

use std::time::Duration;

use indef_fs::EngineKind;
use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos};

use crate::run::RunOptions;

/// The version that is written. Version 1 had neither process nor options.
const VERSION: u64 = 2;
/// No line of ours is longer.
const MAX_LINE: u64 = 1024;

type FileId = (u64, u64);

#[derive(Debug, Serialize, Deserialize)]
struct JournalHeader {
    #[serde(rename = "indef-journal")]
    version: u64,
    limit_bytes: Bytes,
    #[serde(default)]
    process: u32,
    #[serde(default)]
    options: Option<Kept>,
}

/// The options of a run that a resumed one keeps. Its budget is the limit of the journal; its time
/// limit is used up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Kept {
    jobs: usize,
    queue_depth: u32,
    engine: Option<String>,
    rate_bytes_per_s: Option<Bytes>,
    max_stall_ns: Nanos,
    min_free_pct: f64,
    allow_unshare: bool,
    #[serde(default)]
    strict: bool,
}

impl From<&RunOptions> for Kept {
    fn from(options: &RunOptions) -> Self {
        Self {
            jobs: options.jobs,
            queue_depth: options.queue_depth,
            engine: options.engine.map(|engine| engine.name().to_owned()),
            rate_bytes_per_s: options.rate,
            max_stall_ns: options.max_stall.into(),
            min_free_pct: options.min_free_pct,
            allow_unshare: options.allow_unshare,
            strict: options.strict,
        }
    }
}

impl Kept {
    /// `None` where an engine is asked for that this version does not have.
    pub(super) fn options(&self) -> Option<RunOptions> {
        let engine = self.engine.as_deref().map(str::parse::<EngineKind>);
        Some(RunOptions {
            jobs: self.jobs,
            queue_depth: self.queue_depth,
            engine: engine.transpose().ok()?,
            rate: self.rate_bytes_per_s,
            max_stall: Duration::from_nanos(self.max_stall_ns.get()),
            min_free_pct: self.min_free_pct,
            allow_unshare: self.allow_unshare,
            strict: self.strict,
            ..RunOptions::default()
        })
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum JournalEntry {
    Reserved(u64, u64, Bytes),
    Settled(u64, u64, Bytes, Bytes),
    Done(u64, u64),
    Process(u32),
    Options(Kept),
    Purpose(String),
}

pub(super) fn write_header(
    out: &mut impl Write,
    limit: Bytes,
    options: &RunOptions,
) -> io::Result<()> {
    let header = JournalHeader {
        version: VERSION,
        limit_bytes: limit,
        process: std::process::id(),
        options: Some(options.into()),
    };
    write_line(out, &header)
}

pub(super) fn write_entry(out: &mut impl Write, entry: &JournalEntry) -> io::Result<()> {
    write_line(out, entry)
}

fn write_line(out: &mut impl Write, line: &impl Serialize) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    out.write_all(&bytes)
}

/// The contents of a journal.
#[derive(Debug, Default, PartialEq)]
pub(super) struct History {
    /// Who works, or worked, on it; 0 if that is not known.
    pub(super) process: u32,
    /// The options of the run.
    pub(super) options: Option<Kept>,
    /// What it was stored for, where that was said.
    pub(super) purpose: Option<String>,
    /// Bytes that may be written in all.
    pub(super) limit: Bytes,
    /// Bytes that were written, or may have been: where a run was killed, the bytes that it had
    /// reserved count.
    pub(super) spent: Bytes,
    pub(super) done: HashSet<FileId>,
    /// Length of the whole lines.
    pub(super) valid_len: u64,
}

/// The journal cannot be read; or a line, counted from 1, cannot be understood.
#[derive(Debug)]
pub(super) enum ReadError {
    Io(io::Error),
    Line(u64),
}

pub(super) fn read(input: impl Read) -> Result<History, ReadError> {
    let mut input = BufReader::new(input);
    let mut history = History::default();
    let mut open: HashMap<FileId, u64> = HashMap::new();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let read = (&mut input)
            .take(MAX_LINE)
            .read_until(b'\n', &mut line)
            .map_err(ReadError::Io)?;
        if line.last() != Some(&b'\n') {
            if has_newline(&mut input).map_err(ReadError::Io)? {
                return Err(ReadError::Line(number));
            }
            // The end, or a line that was being written, whatever the file system has put in its place.
            break;
        }
        let damaged = |_| ReadError::Line(number);
        if number == 1 {
            let header: JournalHeader = serde_json::from_slice(&line).map_err(damaged)?;
            if !(1..=VERSION).contains(&header.version) {
                return Err(ReadError::Line(1));
            }
            history.limit = header.limit_bytes;
            history.process = header.process;
            history.options = header.options;
        } else {
            let entry = serde_json::from_slice(&line).map_err(damaged)?;
            apply(&mut history, &mut open, entry);
        }
        history.valid_len += read as u64;
    }
    if history.valid_len == 0 {
        return Err(ReadError::Line(1));
    }
    let reserved = open.into_values().fold(0, u64::saturating_add);
    history.spent = history.spent.saturating_add(Bytes(reserved));
    Ok(history)
}

/// Whether a line ends in the rest of the input.
fn has_newline(input: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let part = input.fill_buf()?;
        if part.is_empty() {
            return Ok(false);
        }
        if part.contains(&b'\n') {
            return Ok(true);
        }
        let len = part.len();
        input.consume(len);
    }
}

fn apply(history: &mut History, open: &mut HashMap<FileId, u64>, entry: JournalEntry) {
    match entry {
        JournalEntry::Reserved(dev, inode, bytes) => {
            let reserved = open.entry((dev, inode)).or_default();
            *reserved = reserved.saturating_add(bytes.get());
        }
        JournalEntry::Settled(dev, inode, reserved, spent) => {
            let left = open.entry((dev, inode)).or_default();
            *left = left.saturating_sub(reserved.get());
            history.spent = history.spent.saturating_add(spent);
        }
        JournalEntry::Done(dev, inode) => {
            history.done.insert((dev, inode));
        }
        JournalEntry::Process(process) => history.process = process,
        JournalEntry::Options(options) => history.options = Some(options),
        JournalEntry::Purpose(purpose) => history.purpose = Some(purpose),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn journal(entries: &[JournalEntry]) -> Vec<u8> {
        let mut out = Vec::new();
        write_header(&mut out, Bytes(1000), &RunOptions::default()).unwrap();
        for entry in entries {
            write_entry(&mut out, entry).unwrap();
        }
        out
    }

    #[test]
    fn what_was_reserved_and_never_settled_counts_as_spent() {
        let text = journal(&[
            JournalEntry::Reserved(1, 2, Bytes(100)),
            JournalEntry::Settled(1, 2, Bytes(100), Bytes(60)),
            JournalEntry::Done(1, 2),
            JournalEntry::Reserved(1, 3, Bytes(50)),
            JournalEntry::Reserved(1, 3, Bytes(7)),
            JournalEntry::Settled(1, 3, Bytes(50), Bytes(1)),
        ]);
        let history = read(&text[..]).unwrap();
        assert_eq!(history.limit, Bytes(1000));
        assert_eq!(history.spent, Bytes(60 + 1 + 7));
        assert_eq!(history.done, HashSet::from([(1, 2)]));
        assert_eq!(history.valid_len, text.len() as u64);
    }

    #[test]
    fn a_torn_line_is_ignored_and_a_damaged_one_is_not() {
        let text = journal(&[JournalEntry::Done(1, 2), JournalEntry::Done(1, 3)]);
        for cut in 1..13 {
            let history = read(&text[..text.len() - cut]).unwrap();
            assert_eq!(history.done, HashSet::from([(1, 2)]), "{cut}");
        }
        // Zeroes of a file system that lost power, however many.
        for zeroes in [1, 500, 100_000] {
            let torn = [&text[..text.len() - 5], &vec![0; zeroes]].concat();
            let history = read(&torn[..]).unwrap();
            assert_eq!(history.done, HashSet::from([(1, 2)]), "{zeroes}");
            assert!(history.valid_len < text.len() as u64 - 5);
            let ended = [&torn[..], b"\n"].concat();
            assert!(matches!(read(&ended[..]), Err(ReadError::Line(3))));
        }
        let mut damaged = text.clone();
        let middle = text.len() - 20;
        damaged[middle] = b'!';
        assert!(matches!(read(&damaged[..]), Err(ReadError::Line(2))));
        assert!(matches!(read(&b""[..]), Err(ReadError::Line(1))));
        assert!(matches!(read(&b"{}\n"[..]), Err(ReadError::Line(1))));
        let long = [b' '; 2000];
        assert!(matches!(read(&long[..]), Err(ReadError::Line(1))));
    }

    #[test]
    fn options_come_back_and_the_last_ones_count() {
        let options = RunOptions {
            jobs: 3,
            queue_depth: 7,
            engine: Some(EngineKind::XfsSwapExtents),
            rate: Some(Bytes::mib(5)),
            max_stall: Duration::from_millis(10),
            min_free_pct: 12.5,
            allow_unshare: true,
            strict: true,
            ..RunOptions::default()
        };
        let text = journal(&[
            JournalEntry::Purpose("nightly".to_owned()),
            JournalEntry::Process(77),
            JournalEntry::Options(Kept::from(&options)),
            JournalEntry::Done(1, 2),
        ]);
        let history = read(&text[..]).unwrap();
        assert_eq!(history.process, 77);
        assert_eq!(history.purpose.as_deref(), Some("nightly"));
        let back = history.options.unwrap().options().unwrap();
        assert_eq!(format!("{back:?}"), format!("{options:?}"));
        let longest = text.split(|byte| *byte == b'\n').map(<[u8]>::len).max();
        assert!(longest.unwrap() < MAX_LINE as usize / 2, "{longest:?}");
        // An older one has none.
        let old = b"{\"indef-journal\":1,\"limit_bytes\":5}\n{\"done\":[1,2]}\n";
        let history = read(&old[..]).unwrap();
        assert_eq!((history.process, history.options), (0, None));
    }

    proptest! {
        #[test]
        fn nothing_panics(bytes: Vec<u8>, lines in prop::collection::vec("\\PC{0,40}", 0..5)) {
            let _ = read(&bytes[..]);
            let mut text = journal(&[]);
            for line in lines {
                text.extend_from_slice(line.as_bytes());
                text.push(b'\n');
            }
            let _ = read(&text[..]);
        }
    }
}
