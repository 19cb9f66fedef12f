//! Tallies: the counts of a trace, and the files that they are about.

use std::path::PathBuf;

use indef_core::access::Observed;
use units::FileRange;

/// Which file, as the kernel knows it: the key stays the same when the file is renamed, and is never
/// that of another file as long as the file system is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileKey {
    /// Device number as `stat` shows it (`st_dev`); on Btrfs each subvolume has its own.
    pub dev: u64,
    /// Inode number.
    pub inode: u64,
    /// Generation of the inode: it changes when the number is used again.
    pub generation: u32,
    /// Btrfs: the number of the subvolume's tree; 0 elsewhere.
    pub subvolume: u64,
}

/// The accesses to one range of one file since the last tally of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    /// Which file.
    pub file: FileKey,
    /// Which bytes; whole file system blocks.
    pub range: FileRange,
    /// How often it was read.
    pub reads: u64,
    /// How often it was written.
    pub writes: u64,
    /// The cost of the reads.
    pub observed: Observed,
}

/// Which file system, across reboots and device numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FsId {
    /// Its UUID; all zero where it has none.
    pub uuid: [u8; 16],
    /// `statfs`'s `f_type` (ext4 0xEF53, XFS 0x5846_5342, Btrfs 0x9123_683E, F2FS 0xF2F5_2010).
    pub magic: u64,
}

/// A file that tallies are about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedFile {
    /// Which file.
    pub key: FileKey,
    /// On which file system.
    pub fs: FsId,
    /// Where it was when it was looked up; `None` if it had no name then (deleted) or could not be
    /// reached. For people, and for finding the file where handles may not be opened.
    pub path: Option<PathBuf>,
}
