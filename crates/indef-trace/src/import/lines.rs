//! Lines in, accesses out, and the counts of both.

use std::{
    collections::HashMap,
    io::{self, BufRead, Read},
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use indef_core::{
    access::{AccessRange, AccessRecord, Op},
    profile::{ProfileFile, ProfileSink},
};
use units::{Bytes, FileOffset, FileRange, Nanos};

use super::report::Imported;

/// The longest line that is read; the rest of a longer one is dropped. strace cuts its strings long
/// before that.
const LONGEST: u64 = 1 << 20;

/// A trace on its way through an importer.
pub(super) struct Lines<'s, R, S> {
    input: R,
    buffer: Vec<u8>,
    pub(super) out: Out<'s, S>,
}

/// Where accesses go.
pub(super) struct Out<'s, S> {
    sink: &'s mut S,
    files: HashMap<PathBuf, u32>,
    imported: Imported,
    enough: bool,
}

impl<'s, R: BufRead, S: ProfileSink> Lines<'s, R, S> {
    pub(super) fn new(input: R, sink: &'s mut S) -> Self {
        Self {
            input,
            buffer: Vec::new(),
            out: Out {
                sink,
                files: HashMap::new(),
                imported: Imported::default(),
                enough: false,
            },
        }
    }

    pub(super) fn parts(&mut self) -> (&mut R, &mut Out<'s, S>) {
        (&mut self.input, &mut self.out)
    }

    /// The next line without its end, and where accesses go; `None` at the end, or if the sink has
    /// enough.
    pub(super) fn next(&mut self) -> io::Result<Option<(&[u8], &mut Out<'s, S>)>> {
        if self.out.enough {
            return Ok(None);
        }
        self.buffer.clear();
        let read = (&mut self.input)
            .take(LONGEST)
            .read_until(b'\n', &mut self.buffer)?;
        if read == 0 {
            return Ok(None);
        }
        if self.buffer.last() == Some(&b'\n') {
            self.buffer.pop();
        } else if read as u64 == LONGEST {
            self.input.skip_until(b'\n')?;
        }
        if self.buffer.last() == Some(&b'\r') {
            self.buffer.pop();
        }
        self.out.imported.lines += 1;
        Ok(Some((&self.buffer, &mut self.out)))
    }
}

impl<S: ProfileSink> Out<'_, S> {
    /// The number of a file, which is handed out when it is first accessed.
    pub(super) fn file(&mut self, path: &Path) -> Option<u32> {
        if let Some(number) = self.files.get(path) {
            return Some(*number);
        }
        let number = self.files.len() as u32;
        self.files.insert(path.to_owned(), number);
        let known = ProfileFile {
            path: path.to_owned(),
            dev: None,
            inode: None,
        };
        let more = ProfileSink::file(self, known);
        more.is_continue().then_some(number)
    }

    /// Hand out an access, later than the one before it. An access of no bytes is ignored.
    pub(super) fn access(&mut self, path: &Path, op: Op, direct: bool, range: FileRange) {
        let end = range.start.0.checked_add(range.len.0);
        if range.is_empty() || end.is_none_or(|end| i64::try_from(end).is_err()) {
            return;
        }
        if let Some(file) = self.file(path) {
            let _ = self.record(AccessRecord {
                file,
                offset: FileOffset(range.start.0),
                len: Bytes(range.len.0),
                op,
                direct,
                time: Nanos(self.imported.accesses),
            });
        }
    }

    /// Count an access whose file or offset is not known.
    pub(super) fn unplaced(&mut self) {
        self.imported.unplaced += 1;
    }

    /// Count the current line as not understood.
    pub(super) fn unknown(&mut self, line: &[u8]) {
        self.imported.unknown += 1;
        if self.imported.first_unknown.is_none() {
            let shown = &line[..line.len().min(60)];
            let more = if shown.len() < line.len() { "…" } else { "" };
            // Escaping makes other scripts unreadable, but leaves no control character.
            let text = format!("{}{more}", shown.escape_ascii());
            self.imported.first_unknown = Some((self.imported.lines, text));
        }
    }

    pub(super) fn imported(&self) -> Imported {
        self.imported.clone()
    }
}

/// Counts what it hands out.
impl<S: ProfileSink> ProfileSink for Out<'_, S> {
    fn file(&mut self, file: ProfileFile) -> ControlFlow<()> {
        let more = self.sink.file(file);
        self.enough |= more.is_break();
        more
    }

    fn record(&mut self, record: AccessRecord) -> ControlFlow<()> {
        self.imported.accesses += 1;
        let more = self.sink.record(record);
        self.enough |= more.is_break();
        more
    }

    fn range(&mut self, file: u32, range: AccessRange) -> ControlFlow<()> {
        self.imported.accesses += 1;
        let more = self.sink.range(file, range);
        self.enough |= more.is_break();
        more
    }
}

/// A number in decimal.
pub(super) fn number(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// Split off the last word.
pub(super) fn last_word(text: &[u8]) -> (&[u8], &[u8]) {
    let text = text.trim_ascii_end();
    let at = text.iter().rposition(u8::is_ascii_whitespace);
    let (before, word) = text.split_at(at.map_or(0, |at| at + 1));
    (before.trim_ascii_end(), word)
}

/// Split off the first word.
pub(super) fn first_word(text: &[u8]) -> (&[u8], &[u8]) {
    let text = text.trim_ascii_start();
    let end = text.iter().position(u8::is_ascii_whitespace);
    let (word, after) = text.split_at(end.unwrap_or(text.len()));
    (word, after.trim_ascii_start())
}
