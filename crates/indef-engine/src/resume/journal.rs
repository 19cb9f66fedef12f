//! The journal of a run: what it reserved, what that came to, which files are done.
//!
//! JSON Lines, each appended in one write, so that a killed process leaves whole lines and at most
//! one torn one at the end, which is ignored (and cut off before anything is appended again).
//!
//! ```text
//! {"indef-journal":1,"limit_bytes":1048576}       first: what may be written in all
//! {"reserved":[dev,inode,bytes]}                  before anything is written
//! {"settled":[dev,inode,reserved,spent]}          a piece of a file ended
//! {"done":[dev,inode]}                            a file ended, for whatever reason but a stop
//! ```

use std::{
    collections::{HashMap, HashSet},
    io::{self, BufRead, BufReader, Read, Write},
};

use serde::{Deserialize, Serialize};
use units::Bytes;

const VERSION: u64 = 1;
/// No line of ours is longer.
const MAX_LINE: u64 = 256;

type FileId = (u64, u64);

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    #[serde(rename = "indef-journal")]
    version: u64,
    limit_bytes: Bytes,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Entry {
    Reserved(u64, u64, Bytes),
    Settled(u64, u64, Bytes, Bytes),
    Done(u64, u64),
}

pub(super) fn write_header(out: &mut impl Write, limit: Bytes) -> io::Result<()> {
    let header = Header {
        version: VERSION,
        limit_bytes: limit,
    };
    write_line(out, &header)
}

pub(super) fn write_entry(out: &mut impl Write, entry: &Entry) -> io::Result<()> {
    write_line(out, entry)
}

fn write_line(out: &mut impl Write, line: &impl Serialize) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    out.write_all(&bytes)
}

/// What a journal tells.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct History {
    /// What may be written in all.
    pub(super) limit: Bytes,
    /// What was written, or may have been: where a run was killed, what it had reserved counts.
    pub(super) spent: Bytes,
    pub(super) done: HashSet<FileId>,
    /// Length of the whole lines.
    pub(super) valid_len: u64,
}

/// Line that cannot be understood, counted from 1.
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
            if read as u64 == MAX_LINE {
                return Err(ReadError::Line(number));
            }
            // The end, or a line that was being written.
            break;
        }
        let damaged = |_| ReadError::Line(number);
        if number == 1 {
            let header: Header = serde_json::from_slice(&line).map_err(damaged)?;
            if header.version != VERSION {
                return Err(ReadError::Line(1));
            }
            history.limit = header.limit_bytes;
        } else {
            let entry = serde_json::from_slice(&line).map_err(damaged)?;
            apply(&mut history, &mut open, &entry);
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

fn apply(history: &mut History, open: &mut HashMap<FileId, u64>, entry: &Entry) {
    match *entry {
        Entry::Reserved(dev, inode, bytes) => {
            let reserved = open.entry((dev, inode)).or_default();
            *reserved = reserved.saturating_add(bytes.get());
        }
        Entry::Settled(dev, inode, reserved, spent) => {
            let left = open.entry((dev, inode)).or_default();
            *left = left.saturating_sub(reserved.get());
            history.spent = history.spent.saturating_add(spent);
        }
        Entry::Done(dev, inode) => {
            history.done.insert((dev, inode));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn journal(entries: &[Entry]) -> Vec<u8> {
        let mut out = Vec::new();
        write_header(&mut out, Bytes(1000)).unwrap();
        for entry in entries {
            write_entry(&mut out, entry).unwrap();
        }
        out
    }

    #[test]
    fn what_was_reserved_and_never_settled_counts_as_spent() {
        let text = journal(&[
            Entry::Reserved(1, 2, Bytes(100)),
            Entry::Settled(1, 2, Bytes(100), Bytes(60)),
            Entry::Done(1, 2),
            Entry::Reserved(1, 3, Bytes(50)),
            Entry::Reserved(1, 3, Bytes(7)),
            Entry::Settled(1, 3, Bytes(50), Bytes(1)),
        ]);
        let history = read(&text[..]).unwrap();
        assert_eq!(history.limit, Bytes(1000));
        assert_eq!(history.spent, Bytes(60 + 1 + 7));
        assert_eq!(history.done, HashSet::from([(1, 2)]));
        assert_eq!(history.valid_len, text.len() as u64);
    }

    #[test]
    fn a_torn_line_is_ignored_and_a_damaged_one_is_not() {
        let text = journal(&[Entry::Done(1, 2), Entry::Done(1, 3)]);
        for cut in 1..13 {
            let history = read(&text[..text.len() - cut]).unwrap();
            assert_eq!(history.done, HashSet::from([(1, 2)]), "{cut}");
        }
        let mut damaged = text.clone();
        let middle = text.len() - 20;
        damaged[middle] = b'!';
        assert!(matches!(read(&damaged[..]), Err(ReadError::Line(2))));
        assert!(matches!(read(&b""[..]), Err(ReadError::Line(1))));
        assert!(matches!(read(&b"{}\n"[..]), Err(ReadError::Line(1))));
        let long = [b' '; 1000];
        assert!(matches!(read(&long[..]), Err(ReadError::Line(1))));
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
