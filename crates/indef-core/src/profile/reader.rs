//! Reading a profile, and checking every word of it.

use std::{
    collections::HashMap,
    io::{BufRead, Read},
    str::FromStr,
};

use units::{Bytes, FileRange, Nanos};

use super::{
    LineError, MAGIC, MAX_LINE, Profile, ProfileError, ProfileFile, ProfileProblem, ProfileSink,
    VERSION, escape::decode,
};
use crate::access::{AccessRange, AccessRecord, Observed, Op};

impl Profile {
    /// Read a profile. Memory is bounded by the size of the input: 32 bytes for each
    /// record, 64 for each range.
    ///
    /// # Errors
    ///
    /// The first line that is wrong.
    pub fn read(input: impl BufRead) -> Result<Self, ProfileError> {
        let mut profile = Self::default();
        stream(input, &mut profile)?;
        Ok(profile)
    }
}

/// Read a profile item by item. The items before an error have been handed out.
///
/// # Errors
///
/// The first line that is wrong.
pub fn stream(input: impl BufRead, sink: &mut impl ProfileSink) -> Result<(), ProfileError> {
    let mut reader = LineReader {
        input,
        buffer: Vec::new(),
        line: 0,
        ids: HashMap::new(),
        sink,
        counted: 0,
        time: None,
        enough: false,
    };
    reader.read().map_err(|problem| ProfileError {
        line: reader.line.max(1),
        problem,
    })
}

struct LineReader<'s, R, S> {
    input: R,
    buffer: Vec<u8>,
    line: u64,
    /// The index of each file, by its number in the profile.
    ids: HashMap<u32, u32>,
    sink: &'s mut S,
    /// Number of records and ranges.
    counted: u64,
    /// The time of the latest record.
    time: Option<u64>,
    /// The sink broke off.
    enough: bool,
}

impl<R: BufRead, S: ProfileSink> LineReader<'_, R, S> {
    fn read(&mut self) -> Result<(), ProfileProblem> {
        let promised_end = self.header()?;
        let mut line = Vec::new();
        while self.next_line()? {
            std::mem::swap(&mut line, &mut self.buffer);
            let (word, rest) = first_word(&line);
            match word {
                b"file" => self.file(rest)?,
                b"read" => self.record(Op::Read, rest)?,
                b"write" => self.record(Op::Write, rest)?,
                b"range" => self.range(rest)?,
                b"end" => return self.end(rest),
                other => {
                    let word = show(other);
                    return Err(LineError::Kind { word }.into());
                }
            }
            if self.enough {
                return Ok(());
            }
        }
        match promised_end {
            true => Err(ProfileProblem::Truncated),
            false => Ok(()),
        }
    }

    /// `indef-profile 1 [with-end]`
    fn header(&mut self) -> Result<bool, ProfileProblem> {
        match self.next_line() {
            Ok(true) => {}
            Ok(false) | Err(ProfileProblem::TooLong) => return Err(ProfileProblem::Foreign),
            Err(problem) => return Err(problem),
        }
        let text = std::str::from_utf8(&self.buffer).map_err(|_| ProfileProblem::Foreign)?;
        let mut words = text.split_ascii_whitespace();
        if words.next() != Some(MAGIC) {
            return Err(ProfileProblem::Foreign);
        }
        let version = words.next().and_then(|word| word.parse().ok());
        match version {
            Some(VERSION) => {}
            Some(other) => return Err(ProfileProblem::Version(other)),
            None => return Err(ProfileProblem::Foreign),
        }
        match (words.next(), words.next()) {
            (None, _) => Ok(false),
            (Some("with-end"), None) => Ok(true),
            _ => Err(ProfileProblem::Foreign),
        }
    }

    /// Read the next line that is neither blank nor a comment; `false` at the end of the input.
    fn next_line(&mut self) -> Result<bool, ProfileProblem> {
        loop {
            self.buffer.clear();
            let limit = MAX_LINE as u64 + 2;
            let read = (&mut self.input)
                .take(limit)
                .read_until(b'\n', &mut self.buffer)
                .map_err(ProfileProblem::Read)?;
            self.line += 1;
            if read == 0 {
                return Ok(false);
            }
            if self.buffer.last() == Some(&b'\n') {
                self.buffer.pop();
            }
            if self.buffer.len() > MAX_LINE {
                return Err(ProfileProblem::TooLong);
            }
            match self.buffer.trim_ascii_start().first() {
                None | Some(b'#') => {}
                Some(_) => return Ok(true),
            }
        }
    }

    /// `file ID DEV INODE PATH`, where DEV and INODE may be `-` and PATH is the rest of the line.
    fn file(&mut self, rest: &[u8]) -> Result<(), LineError> {
        let (id, rest) = first_word(rest);
        let (dev, rest) = first_word(rest);
        let (inode, path) = first_word(rest);
        let id: u32 = number("file number", id)?;
        let known = |name, word: &[u8]| match word {
            b"-" => Ok(None),
            word => number(name, word).map(Some),
        };
        let file = ProfileFile {
            dev: known("device number (or -)", dev)?,
            inode: known("inode number (or -)", inode)?,
            path: decode(path.trim_ascii()).map_err(LineError::Path)?,
        };
        let index = u32::try_from(self.ids.len()).map_err(|_| LineError::TooManyFiles)?;
        if self.ids.insert(id, index).is_some() {
            return Err(LineError::Twice(id));
        }
        self.enough |= self.sink.file(file).is_break();
        Ok(())
    }

    /// `read|write ID OFFSET LENGTH [direct] [time=NS]`
    fn record(&mut self, op: Op, rest: &[u8]) -> Result<(), LineError> {
        let (file, range, mut rest) = self.place(rest)?;
        let (mut direct, mut time) = (false, None);
        while let (word @ [_, ..], behind) = first_word(rest) {
            match word.strip_prefix(b"time=") {
                Some(value) if time.is_none() => time = Some(number("time", value)?),
                None if word == b"direct" && !direct => direct = true,
                _ => return Err(unexpected(word)),
            }
            rest = behind;
        }
        // Typed records need no time: each comes after the one before it.
        let next = || self.time.map_or(0, |last| last.saturating_add(1));
        let time = time.unwrap_or_else(next);
        self.time = Some(time);
        let record = AccessRecord {
            file,
            offset: range.start,
            len: range.len,
            op,
            direct,
            time: Nanos(time),
        };
        self.counted += 1;
        self.enough |= self.sink.record(record).is_break();
        Ok(())
    }

    /// `range ID OFFSET LENGTH reads=N writes=N [requests=N] [timed=N time=NS [ahead=N]]`
    fn range(&mut self, rest: &[u8]) -> Result<(), LineError> {
        let (file, range, mut rest) = self.place(rest)?;
        const NAMES: [(&str, &str); 6] = [
            ("reads", "value of reads"),
            ("writes", "value of writes"),
            ("requests", "value of requests"),
            ("timed", "value of timed"),
            ("time", "value of time"),
            ("ahead", "value of ahead"),
        ];
        let mut found = [None; NAMES.len()];
        while let (word @ [_, ..], behind) = first_word(rest) {
            let equals = word.iter().position(|&byte| byte == b'=');
            let (name, value) = word.split_at(equals.unwrap_or(word.len()));
            match NAMES.iter().position(|known| known.0.as_bytes() == name) {
                Some(at) if found[at].is_none() => {
                    let value = value.strip_prefix(b"=").unwrap_or_default();
                    found[at] = Some(number(NAMES[at].1, value)?);
                }
                _ => return Err(unexpected(word)),
            }
            rest = behind;
        }
        let [reads, writes, requests, timed, time, ahead] = found;
        if timed.is_some() != time.is_some() || (ahead.is_some() && timed.is_none()) {
            return Err(LineError::HalfTimed);
        }
        let counted = AccessRange {
            range,
            reads: reads.unwrap_or(0),
            writes: writes.unwrap_or(0),
            observed: Observed {
                requests: requests.unwrap_or(0),
                timed: timed.unwrap_or(0),
                time: Nanos(time.unwrap_or(0)),
                ahead,
            },
        };
        if (counted.reads, counted.writes) == (0, 0) {
            return Err(LineError::NoAccess);
        }
        self.counted += 1;
        self.enough |= self.sink.range(file, counted).is_break();
        Ok(())
    }

    /// `ID OFFSET LENGTH`: the index of the file, the bytes, and the rest of the line.
    fn place<'l>(&self, rest: &'l [u8]) -> Result<(u32, FileRange, &'l [u8]), LineError> {
        let (id, rest) = first_word(rest);
        let (offset, rest) = first_word(rest);
        let (len, rest) = first_word(rest);
        let id: u32 = number("file number", id)?;
        let file = *self.ids.get(&id).ok_or(LineError::NotNamed(id))?;
        let (offset, len) = (size("offset", offset)?, size("length", len)?);
        if len.is_zero() {
            return Err(LineError::NoLength);
        }
        match offset.0.checked_add(len.0) {
            Some(end) if i64::try_from(end).is_ok() => {}
            _ => return Err(LineError::PastEnd),
        }
        Ok((file, FileRange::new(offset.0, len.0), rest))
    }

    /// `end RECORDS`
    fn end(&mut self, rest: &[u8]) -> Result<(), ProfileProblem> {
        let promised = number("number of records", rest.trim_ascii())?;
        let found = self.counted;
        if found != promised {
            return Err(ProfileProblem::Count { found, promised });
        }
        match self.next_line()? {
            true => Err(ProfileProblem::Trailing),
            false => Ok(()),
        }
    }
}

fn unexpected(word: &[u8]) -> LineError {
    LineError::Unexpected { word: show(word) }
}

/// The first word, and the rest.
fn first_word(text: &[u8]) -> (&[u8], &[u8]) {
    let text = text.trim_ascii_start();
    let end = text
        .iter()
        .position(u8::is_ascii_whitespace)
        .unwrap_or(text.len());
    text.split_at(end)
}

fn number<T: FromStr>(name: &'static str, word: &[u8]) -> Result<T, LineError> {
    if word.is_empty() {
        return Err(LineError::Missing { name });
    }
    std::str::from_utf8(word)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| LineError::Invalid {
            word: show(word),
            name,
        })
}

/// Parse a number of bytes, with or without a unit.
fn size(name: &'static str, word: &[u8]) -> Result<Bytes, LineError> {
    // Collectors write plain numbers, and millions of them.
    let plain = std::str::from_utf8(word)
        .ok()
        .and_then(|text| text.parse().ok());
    plain.map_or_else(|| number(name, word), |bytes| Ok(Bytes(bytes)))
}

/// A word from the file for a message: short and without control characters.
fn show(word: &[u8]) -> String {
    let (shown, more) = match word.len() {
        0..=40 => (word, ""),
        _ => (&word[..40], "…"),
    };
    format!("{}{more}", shown.escape_ascii())
}
