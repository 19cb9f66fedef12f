//! Ranges cut into pieces, and the memory for them.

use std::{fs::File, io};

use units::FileRange;

/// The alignment of buffers and, given aligned ranges, of requests: the largest logical block size
/// that is in use.
const ALIGNMENT: usize = 4096;

/// A part of a range that is copied by one read and one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CopyPiece {
    pub(super) offset: u64,
    pub(super) length: usize,
}

/// Ranges, cut at multiples of the piece size.
#[derive(Debug)]
pub(super) struct CopyPieces<'a> {
    ranges: std::slice::Iter<'a, FileRange>,
    rest: FileRange,
    piece: u64,
}

impl<'a> CopyPieces<'a> {
    pub(super) fn new(ranges: &'a [FileRange], piece: usize) -> Self {
        Self {
            ranges: ranges.iter(),
            rest: FileRange::default(),
            piece: piece as u64,
        }
    }
}

impl Iterator for CopyPieces<'_> {
    type Item = CopyPiece;

    fn next(&mut self) -> Option<CopyPiece> {
        while self.rest.is_empty() {
            self.rest = *self.ranges.next()?;
        }
        let offset = self.rest.start.get();
        let length = (self.piece - offset % self.piece).min(self.rest.len.get());
        self.rest = FileRange::new(offset + length, self.rest.len.get() - length);
        Some(CopyPiece {
            offset,
            length: length as usize,
        })
    }
}

/// The next thing to do after a read that brought a piece to `done` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterRead {
    /// Complete (the rest of the buffer has to be zeros).
    Complete,
    /// Read on from this many bytes.
    From(usize),
}

/// A read that cannot be continued.
#[derive(Debug, thiserror::Error)]
#[error("read stopped short at byte {0}")]
struct ShortRead(u64);

/// After a read, which may have been short: is that the end of the source, or has it to be
/// continued? A direct read can only be continued at an aligned place.
pub(super) fn after_read(from: &File, piece: CopyPiece, done: usize) -> io::Result<AfterRead> {
    if done == piece.length || piece.offset + done as u64 >= from.metadata()?.len() {
        return Ok(AfterRead::Complete);
    }
    let resume = done - done % ALIGNMENT;
    if resume == 0 {
        let short = ShortRead(piece.offset + done as u64);
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, short));
    }
    Ok(AfterRead::From(resume))
}

/// Memory for `count` pieces, aligned, without unsafe code: a slice inside a larger vector.
#[derive(Debug)]
pub(super) struct Buffers {
    memory: Vec<u8>,
    start: usize,
    size: usize,
}

impl Buffers {
    pub(super) fn new(count: usize, size: usize) -> Self {
        let memory = vec![0; count * size + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        Self {
            memory,
            start,
            size,
        }
    }

    pub(super) fn get(&mut self, index: usize) -> &mut [u8] {
        let start = self.start + index * self.size;
        &mut self.memory[start..start + self.size]
    }
}
