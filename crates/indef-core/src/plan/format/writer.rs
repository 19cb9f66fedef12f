//! Writing a plan file.

use std::{
    borrow::Cow,
    io::{self, Write},
};

use serde::Serialize;

use super::{
    super::{FilePlan, PathJson, PlanOptions, PlanTotals},
    CHUNKS_PER_LINE, MAX_LINE, VERSION, WITHOUT_RECLAIM,
    wire::{ChunkLine, ChunksLine, FileLine, PlanHeader, StoredTotals, TotalsLine},
};

/// A line of a plan would be longer than a reader takes; only its path can be so long.
#[derive(Debug, thiserror::Error)]
#[error("the path is too long for a plan file")]
struct PathTooLong;

/// Writes a plan file, file by file. Without [`Self::finish`] it counts as cut off.
#[derive(Debug)]
pub struct PlanWriter<W: Write> {
    out: W,
    line: Vec<u8>,
    totals: PlanTotals,
}

impl<W: Write> PlanWriter<W> {
    /// Begin with the header.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn new(out: W, options: &PlanOptions) -> io::Result<Self> {
        let mut writer = Self {
            out,
            line: Vec::new(),
            totals: PlanTotals::default(),
        };
        let version = match options.reclaim_ratio {
            Some(_) => VERSION,
            None => WITHOUT_RECLAIM,
        };
        writer.put(&PlanHeader::new(version, options))?;
        Ok(writer)
    }

    /// Append a file.
    ///
    /// # Errors
    ///
    /// Those of `out`, and a path so long that no reader would take the line.
    pub fn write(&mut self, file: &FilePlan) -> io::Result<()> {
        let path = PathJson::from(file.path.as_path());
        let mut parts = file.chunks.chunks(CHUNKS_PER_LINE);
        let first = parts.next().unwrap_or_default();
        self.put(&FileLine {
            path: path.path,
            path_bytes: path.path_bytes,
            root_len_bytes: file.root_len,
            dev: file.dev,
            inode: file.inode,
            born: file.born.map(|born| (born.seconds, born.nanos)),
            size_bytes: file.size,
            block_size_bytes: file.block_size,
            fs: Cow::Borrowed(&file.fs),
            engine: file.engine.as_deref().map(Cow::Borrowed),
            extents_before: file.extents_before,
            named_inodes: file.named.as_deref().map(<[u64]>::to_vec),
            skip: file.skip,
            chunks: first.iter().map(ChunkLine::from).collect(),
            more: parts.len() > 0,
        })?;
        while let Some(part) = parts.next() {
            self.put(&ChunksLine {
                chunks: part.iter().map(ChunkLine::from).collect(),
                more: parts.len() > 0,
            })?;
        }
        self.totals.add(file);
        Ok(())
    }

    /// Close the plan with its totals.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn finish(mut self) -> io::Result<(W, PlanTotals)> {
        self.put(&TotalsLine {
            totals: StoredTotals::from(&self.totals),
        })?;
        self.out.flush()?;
        Ok((self.out, self.totals))
    }

    fn put(&mut self, line: &impl Serialize) -> io::Result<()> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, line)?;
        if self.line.len() > MAX_LINE {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, PathTooLong));
        }
        self.line.push(b'\n');
        self.out.write_all(&self.line)
    }
}
