//! A profile of access records, in a line-based file that a person can read and type
//! (docs/profile.md).
//!
//! ```text
//! indef-profile 1
//! file 1 2049 131 /srv/db/main.sqlite
//! read 1 0 131072
//! write 1 131072 4096 direct time=1700000000
//! range 1 262144 65536 reads=40 writes=0 requests=80
//! ```
//!
//! `read` and `write` are single accesses as a program made them; a `range` was counted already, at
//! the device.

mod error;
mod escape;
mod reader;
mod writer;

use std::{ops::ControlFlow, path::PathBuf};

pub use error::{LineError, ProfileError, ProfileProblem};
pub use escape::{decode as decode_path, encode as encode_path};
pub use reader::stream;
pub use writer::ProfileWriter;

use crate::access::{AccessRange, AccessRecord};

/// The version that is written and read.
pub const VERSION: u64 = 1;

/// The longest line, without its end: a path of 4 KiB with every byte encoded, and room.
pub const MAX_LINE: usize = 16 << 10;

/// The first word of a profile.
const MAGIC: &str = "indef-profile";

/// A file of a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileFile {
    /// Its path when it was recorded.
    pub path: PathBuf,
    /// Device number (`st_dev`), if known.
    pub dev: Option<u64>,
    /// Inode number, if known.
    pub inode: Option<u64>,
}

/// The accesses of a trace, and their files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// The files; an [`AccessRecord`]'s `file` is an index into them.
    pub files: Vec<ProfileFile>,
    /// The accesses.
    pub records: Vec<AccessRecord>,
    /// Ranges that were counted already, each with the index of its file.
    pub ranges: Vec<(u32, AccessRange)>,
}

/// Takes a profile item by item, so that it need not be held in memory. Files are numbered in the
/// order in which they come: 0, 1, 2 … A sink that needs no more items breaks off.
pub trait ProfileSink {
    /// Take a file, before any other item of it.
    fn file(&mut self, file: ProfileFile) -> ControlFlow<()>;
    /// Take an access.
    fn record(&mut self, record: AccessRecord) -> ControlFlow<()>;
    /// Take a range that was counted already, and its file.
    fn range(&mut self, file: u32, range: AccessRange) -> ControlFlow<()>;
}

impl ProfileSink for Profile {
    fn file(&mut self, file: ProfileFile) -> ControlFlow<()> {
        self.files.push(file);
        ControlFlow::Continue(())
    }

    fn record(&mut self, record: AccessRecord) -> ControlFlow<()> {
        self.records.push(record);
        ControlFlow::Continue(())
    }

    fn range(&mut self, file: u32, range: AccessRange) -> ControlFlow<()> {
        self.ranges.push((file, range));
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests;
