//! Reading a plan file, and checking every value in it. Plans are edited by hand, cut off by full
//! disks and mixed up with other files: no value is trusted.

use std::io::{BufRead, Read};

use serde::Deserialize;
use units::{Bytes, FileOffset};

use super::{
    super::{BirthTime, Chunk, FilePlan, MOST_NAMED, PathJson, PlanOptions, PlanTotals},
    Absurd, ChunkFault, MAX_LINE, PlanError, PlanProblem, VERSION,
    wire::{ChunkLine, ChunksLine, FileLine, Names, PlanHeader, TotalsLine, Version},
};

/// Reads a plan file; iterates over its files. After an error it ends. A plan is whole only if the
/// iterator ends without an error, so collect it before acting on it.
#[derive(Debug)]
pub struct PlanReader<R: BufRead> {
    input: R,
    buffer: Vec<u8>,
    line: u64,
    options: PlanOptions,
    totals: PlanTotals,
    fs: Names,
    engine: Names,
    done: bool,
}

impl<R: BufRead> PlanReader<R> {
    /// Read the header.
    ///
    /// # Errors
    ///
    /// If it is not the header of a plan of this version.
    pub fn new(input: R) -> Result<Self, PlanError> {
        let mut reader = Self {
            input,
            buffer: Vec::new(),
            line: 0,
            options: PlanOptions::default(),
            totals: PlanTotals::default(),
            fs: Names::default(),
            engine: Names::default(),
            done: false,
        };
        reader.options = reader.header().map_err(|problem| reader.at_line(problem))?;
        Ok(reader)
    }

    /// The options with which the plan was made.
    #[must_use]
    pub fn options(&self) -> &PlanOptions {
        &self.options
    }

    /// The sums over the files read so far.
    #[must_use]
    pub fn totals(&self) -> &PlanTotals {
        &self.totals
    }

    fn at_line(&self, problem: PlanProblem) -> PlanError {
        PlanError {
            line: self.line.max(1),
            problem,
        }
    }

    fn header(&mut self) -> Result<PlanOptions, PlanProblem> {
        match self.next_line() {
            Ok(true) => {}
            Ok(false) | Err(PlanProblem::TooLong) => return Err(PlanProblem::Foreign),
            Err(problem) => return Err(problem),
        }
        let version: Version =
            serde_json::from_slice(&self.buffer).map_err(|_| PlanProblem::Foreign)?;
        if !(1..=VERSION).contains(&version.version) {
            return Err(PlanProblem::Version(version.version));
        }
        let header: PlanHeader = parse(&self.buffer)?;
        Ok(header.options()?)
    }

    /// Read the next line that is not blank into the buffer; `false` at the end of the file.
    fn next_line(&mut self) -> Result<bool, PlanProblem> {
        loop {
            self.buffer.clear();
            let limit = MAX_LINE as u64 + 2;
            let read = (&mut self.input)
                .take(limit)
                .read_until(b'\n', &mut self.buffer)
                .map_err(PlanProblem::Read)?;
            if read == 0 {
                return Ok(false);
            }
            self.line += 1;
            if self.buffer.last() == Some(&b'\n') {
                self.buffer.pop();
            }
            if self.buffer.len() > MAX_LINE {
                return Err(PlanProblem::TooLong);
            }
            if !self.buffer.trim_ascii().is_empty() {
                return Ok(true);
            }
        }
    }

    fn next_file(&mut self) -> Result<Option<FilePlan>, PlanProblem> {
        if !self.next_line()? {
            self.line += 1;
            return Err(PlanProblem::Truncated);
        }
        if self.is_totals() {
            let line: TotalsLine = parse(&self.buffer)?;
            if !line.totals.cover(&self.totals) {
                return Err(PlanProblem::Totals);
            }
            return match self.next_line()? {
                true => Err(PlanProblem::Trailing),
                false => Ok(None),
            };
        }
        let (mut file, mut more) = self.file_line()?;
        while more {
            if !self.next_line()? {
                self.line += 1;
                return Err(PlanProblem::Truncated);
            }
            let line: ChunksLine = parse(&self.buffer)?;
            if line.chunks.is_empty() {
                return Err(PlanProblem::NoChunks);
            }
            more = line.more;
            add_chunks(&mut file, line.chunks)?;
        }
        file.chunks.shrink_to_fit();
        self.totals.add(&file);
        Ok(Some(file))
    }

    fn is_totals(&self) -> bool {
        self.buffer
            .trim_ascii_start()
            .strip_prefix(b"{")
            .is_some_and(|rest| rest.trim_ascii_start().starts_with(b"\"totals\""))
    }

    fn file_line(&mut self) -> Result<(FilePlan, bool), PlanProblem> {
        let line: FileLine<'_> = parse(&self.buffer)?;
        let path = PathJson {
            path: line.path,
            path_bytes: line.path_bytes,
        };
        let mut file = FilePlan {
            path: path.to_path().map_err(Absurd::from)?,
            root_len: line.root_len_bytes,
            dev: line.dev,
            inode: line.inode,
            born: line
                .born
                .map(|(seconds, nanos)| BirthTime { seconds, nanos }),
            size: line.size_bytes,
            block_size: line.block_size_bytes,
            fs: self.fs.share(&line.fs),
            engine: line.engine.as_deref().map(|name| self.engine.share(name)),
            extents_before: line.extents_before,
            named: match line.named_inodes {
                Some(named) if named.len() > MOST_NAMED => {
                    return Err(Absurd::Named(named.len()).into());
                }
                named => named.map(Into::into),
            },
            skip: line.skip,
            chunks: Vec::new(),
        };
        check_names(&file)?;
        check_root(&file)?;
        check_sizes(&file)?;
        add_chunks(&mut file, line.chunks)?;
        Ok((file, line.more))
    }
}

impl<R: BufRead> Iterator for PlanReader<R> {
    type Item = Result<FilePlan, PlanError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let next = self.next_file().map_err(|problem| self.at_line(problem));
        self.done = !matches!(next, Ok(Some(_)));
        next.transpose()
    }
}

fn parse<'a, T: Deserialize<'a>>(line: &'a [u8]) -> Result<T, PlanProblem> {
    serde_json::from_slice(line).map_err(PlanProblem::Json)
}

/// No engine writes a byte more often (`xfs-offload`: zeros by the host, data by the device).
const MOST_WRITES: u64 = 2;

/// The largest file offset that Linux knows.
const MAX_OFFSET: u64 = i64::MAX as u64;

fn check_names(file: &FilePlan) -> Result<(), Absurd> {
    for (of, name) in [
        ("file system", Some(&file.fs)),
        ("engine", file.engine.as_ref()),
    ] {
        let plain = |name: &str| name.len() <= 64 && !name.chars().any(char::is_control);
        if name.is_some_and(|name| !plain(name)) {
            return Err(Absurd::Name { of });
        }
    }
    Ok(())
}

fn check_root(file: &FilePlan) -> Result<(), Absurd> {
    match (file.root_len, file.place()) {
        (Some(len), None) => Err(Absurd::Root(len)),
        _ => Ok(()),
    }
}

fn check_sizes(file: &FilePlan) -> Result<(), Absurd> {
    let block = file.block_size.0;
    if !block.is_power_of_two() || !(512..=1 << 30).contains(&block) {
        return Err(Absurd::BlockSize(block));
    }
    if file.size.0 > MAX_OFFSET {
        return Err(Absurd::Size(file.size.0));
    }
    Ok(())
}

/// Check chunks and append them.
fn add_chunks(file: &mut FilePlan, lines: Vec<ChunkLine>) -> Result<(), Absurd> {
    file.chunks.reserve_exact(lines.len());
    for line in lines {
        let chunk = line.chunk()?;
        check_chunk(file, &chunk)?;
        file.chunks.push(chunk);
    }
    Ok(())
}

fn check_chunk(file: &FilePlan, chunk: &Chunk) -> Result<(), Absurd> {
    let (start, len) = (chunk.range.start.0, chunk.range.len.0);
    let wrong = |fault| Err(Absurd::Chunk { start, fault });
    let block = file.block_size.0;
    let file_end = FileOffset(file.size.0).align_up(Bytes(block)).0;
    match start.checked_add(len) {
        None => return wrong(ChunkFault::TooLong),
        Some(end) if end > file_end => return wrong(ChunkFault::PastEnd),
        Some(_) => {}
    }
    if len == 0 {
        return wrong(ChunkFault::Empty);
    }
    if start % block != 0 || len % block != 0 {
        return wrong(ChunkFault::Unaligned);
    }
    // Other files may get more than moves: their metadata does not depend on the length.
    let of_data = |chunk: &Chunk| chunk.cost.saturating_sub(chunk.metadata());
    // Where an engine moves whole files, the first chunk that moves pays for all.
    let most = match file.chunks.iter().all(|chunk| of_data(chunk).is_zero()) {
        true => file_end,
        false => len,
    };
    if of_data(chunk).0 > most.saturating_mul(MOST_WRITES) {
        return wrong(ChunkFault::Cost);
    }
    match file.chunks.last() {
        Some(last) if last.range.end().0 > start => wrong(ChunkFault::Order),
        _ => Ok(()),
    }
}
