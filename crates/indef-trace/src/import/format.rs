//! The formats of traces.

use std::fmt;

/// The tool that wrote a trace.
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
    /// A table of ranges, as [`CsvWriter`](super::CsvWriter) writes it.
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
    pub const fn as_str(self) -> &'static str {
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
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
