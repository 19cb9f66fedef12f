//! A file that is to be looked at or moved.

use std::{fs::File, path::PathBuf};

use units::Bytes;

/// What tells one file from another, and one version of it from the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TargetId {
    /// Device number (`st_dev`).
    pub dev: u64,
    /// Inode number.
    pub inode: u64,
}

/// An open file, with what is known of it.
#[derive(Debug)]
pub struct Target {
    /// Open for reading and writing, `O_NOATIME` where allowed.
    pub file: File,
    /// For messages, and for the directory in which a donor is made.
    pub path: PathBuf,
    /// Which file.
    pub id: TargetId,
    /// Size when it was opened.
    pub size: Bytes,
    /// File system block size: everything is moved in multiples of it.
    pub block_size: Bytes,
}
