//! Traces that other tools recorded: fio iologs, the text of strace, perf trace and blkparse, and
//! tables of ranges.
//!
//! Each importer reads lines and hands out accesses one by one ([`ProfileSink`]), in the order of the
//! trace, so that a trace need not fit into memory and the read-ahead model can follow its readers.
//!
//! - A line that cannot be understood is counted, and the first of them is kept for the message:
//!   traces are cut off, interleaved with a program's own output, and written by versions that
//!   nobody here has seen.
//! - An access whose file or place the trace does not tell is counted, never guessed.
//! - Calls that failed did nothing.
//!
//! [`Gather`] brings what an importer hands out into a store, in bounded memory.
//!
//! Not followed: memory-mapped reads, io_uring and asynchronous I/O, which these tools do not show.

mod blkparse;
mod csv;
mod descriptors;
mod fio;
mod gather;
mod lines;
mod perf;
mod strace;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    io::{self, BufRead},
    path::PathBuf,
};

use indef_core::profile::{self, ProfileError, ProfileSink};

pub use blkparse::BlockMap;
pub use csv::CsvWriter;
pub use gather::{Gather, Gathered};

use lines::Lines;

/// What wrote a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `fio --write_iolog`, versions 2 and 3.
    Fio,
    /// `strace`, with or without `-f`, `-y`, time stamps.
    Strace,
    /// `perf trace`.
    Perf,
    /// `blkparse`, in its default format.
    Blkparse,
    /// indef's own profile of lines (docs/profile.md).
    Lines,
    /// A table of ranges, as [`CsvWriter`] writes it.
    Csv,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Fio,
        Self::Strace,
        Self::Perf,
        Self::Blkparse,
        Self::Lines,
        Self::Csv,
    ];

    /// Its name on command lines.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Fio => "fio",
            Self::Strace => "strace",
            Self::Perf => "perf",
            Self::Blkparse => "blkparse",
            Self::Lines => "lines",
            Self::Csv => "csv",
        }
    }

    /// Whether it shows what programs ask for, and not what reaches the device.
    #[must_use]
    pub const fn is_above_the_cache(self) -> bool {
        !matches!(self, Self::Blkparse)
    }

    /// Tell by the beginning of a trace.
    #[must_use]
    pub fn detect(begin: &[u8]) -> Option<Self> {
        let first = begin
            .split(|byte| *byte == b'\n')
            .find(|line| !line.trim_ascii().is_empty() && !line.starts_with(b"#"))?;
        if first.trim_ascii().starts_with(b"indef-profile ") {
            return Some(Self::Lines);
        }
        if first.starts_with(b"fio version ") {
            return Some(Self::Fio);
        }
        if first.starts_with(csv::HEADER.as_bytes()) {
            return Some(Self::Csv);
        }
        // The others have no header; most of their first lines have their shape.
        let votes = |is: fn(&[u8]) -> bool| begin.split(|b| *b == b'\n').filter(|l| is(l)).count();
        let candidates = [
            (votes(perf::is_line), Self::Perf),
            (votes(blkparse::is_line), Self::Blkparse),
            (votes(strace::is_line), Self::Strace),
        ];
        let best = candidates.into_iter().max_by_key(|(votes, _)| *votes)?;
        (best.0 > 0).then_some(best.1)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// What an importer has to know beside the trace.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// The folder in which the traced program was started: relative paths begin there.
    pub folder: PathBuf,
    /// Which file lies where on the device, for traces of devices.
    pub blocks: BlockMap,
}

/// What became of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Lines read.
    pub lines: u64,
    /// Accesses and ranges handed out.
    pub accesses: u64,
    /// Lines that were not understood.
    pub unknown: u64,
    /// The first of them: its number, and what stands there, short and printable.
    pub first_unknown: Option<(u64, String)>,
    /// Accesses whose file or place the trace does not tell.
    pub unplaced: u64,
}

/// A trace cannot be imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// Reading it failed.
    #[error("cannot be read: {0}")]
    Read(#[from] io::Error),
    /// It is not what it was taken for.
    #[error("this is no {0} trace; name what it is with --format")]
    Foreign(Format),
    /// A version that is not known.
    #[error("fio iolog version {0}, but versions 2 and 3 can be read; write it with another fio")]
    FioVersion(String),
    /// A damaged profile of lines, which is not skipped over: it was to be exact.
    #[error("{0}")]
    Profile(#[from] ProfileError),
}

/// Read a trace to its end, or until the sink breaks off.
///
/// # Errors
///
/// It cannot be read, or is something else; what came before has been handed out.
pub fn import(
    format: Format,
    input: impl BufRead,
    options: &ImportOptions,
    sink: &mut impl ProfileSink,
) -> Result<Imported, ImportError> {
    let mut lines = Lines::new(input, sink);
    let done = match format {
        Format::Fio => fio::import(&mut lines, options),
        Format::Strace => strace::import(&mut lines, options),
        Format::Perf => perf::import(&mut lines, options),
        Format::Blkparse => blkparse::import(&mut lines, options),
        Format::Csv => csv::import(&mut lines),
        Format::Lines => {
            let (input, out) = lines.parts();
            return profile::stream(input, out)
                .map(|()| out.imported())
                .map_err(ImportError::from);
        }
    };
    done.map(|()| lines.out.imported())
}
