//! filebench's personalities fileserver and varmail, as they age a file system; and the files of its `oltp`.
//!
//! A [`Flow`] decides what a thread does next, from a seed and the state of the [`Fileset`]. It does no I/O and
//! knows no clock: the caller carries the operations out, with a thread for each flow or in virtual time, and
//! thereby decides the order of the flows among each other, and with it the places of the data.
//!
//! The flows are those of filebench's `workloads/fileserver.f` and `varmail.f` (commit ca9b7af). Three things are
//! different, and for reasons:
//!
//! - **A flow deletes before it creates, and only while the data fills the device as far as the paper's
//!   does** ([`Ageing::fill_bytes`]). With a delete in every iteration, 50 files in the making do not fit beside
//!   a fileset that is scaled down; and varmail's would shrink: an iteration deletes a file, and gives new and
//!   old ones two appends of 16 KiB at most, so after one turn of the fileset InDeF's 6496 × 2 MB would be
//!   files of some 16 KiB.
//! - **varmail begins without files.** So all of its data was appended, as after a long time; files that
//!   filebench had made beforehand would be contiguous, and how many of them are left would be a question of
//!   when we stop.
//! - **Whole-file reads are done only now and then** ([`Ageing::reads_percent`]): they change no place.
//!
//! filebench makes the first files of fileserver itself, one after the other, through the page cache
//! ([`preallocate`]); so they are contiguous. They are on the device before the flows begin.

mod fileset;
mod flow;
mod oltp;
mod size;
#[cfg(test)]
mod tests;

use std::{fmt, str::FromStr};

pub(crate) use self::size::file_bytes;
pub use self::{
    fileset::{FileId, Fileset},
    flow::{Flow, Op, preallocate},
    oltp::Oltp,
};

/// Flows (InDeF §IV-B: "They both have 50 threads").
pub const FLOWS: usize = 50;
/// filebench's `$iosize`: a file is written in pieces of this size.
pub const IO_BYTES: u64 = 1 << 20;
/// filebench's `$meanappendsize`: the most that `appendfilerand` appends.
pub const APPEND_BYTES: u64 = 16 << 10;
/// filebench's `prealloc`: the percentage of the fileset's files that are there at the beginning.
const PREALLOC_PERCENT: usize = 80;

/// A personality of filebench.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Personality {
    /// Creates and writes whole files, appends, reads, deletes.
    Fileserver,
    /// Deletes, creates, appends and makes durable, reads.
    Varmail,
}

impl Personality {
    /// Its name, as in options and files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fileserver => "fileserver",
            Self::Varmail => "varmail",
        }
    }

    /// The files of InDeF §IV-B: their number, and their mean size.
    #[must_use]
    pub const fn files_of_indef(self) -> (usize, u64) {
        match self {
            Self::Fileserver => (3072, 4 << 20),
            Self::Varmail => (6496, 2 << 20),
        }
    }
}

impl fmt::Display for Personality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// An unknown personality.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPersonality(String);

impl fmt::Display for UnknownPersonality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is neither fileserver nor varmail", self.0)
    }
}

impl std::error::Error for UnknownPersonality {}

impl FromStr for Personality {
    type Err = UnknownPersonality;

    fn from_str(text: &str) -> Result<Self, UnknownPersonality> {
        [Self::Fileserver, Self::Varmail]
            .into_iter()
            .find(|personality| personality.name() == text)
            .ok_or_else(|| UnknownPersonality(text.to_owned()))
    }
}

/// How much ageing, of which files.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ageing {
    /// Whose flows.
    pub personality: Personality,
    /// Files that are there on average.
    pub files: usize,
    /// Mean bytes of a file.
    pub mean_bytes: u64,
    /// The flows end when they have written this many times the data.
    pub rounds: f64,
    /// Percentage of whole-file reads that are done.
    pub reads_percent: u32,
    /// Seed of the flows' choices, and of the sizes.
    pub seed: u64,
}

impl Ageing {
    /// Bytes of all files at which deleting begins.
    #[must_use]
    pub const fn fill_bytes(&self) -> u64 {
        self.files as u64 * self.mean_bytes
    }

    /// Bytes that the flows write.
    fn bytes_to_write(&self) -> u64 {
        (self.fill_bytes() as f64 * self.rounds) as u64
    }
}
