//! The identity of a file, which tells it from every other one.

/// The file that a number means now; it may mean another once the file is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TargetId {
    /// Device number (`st_dev`).
    pub dev: u64,
    /// Inode number.
    pub inode: u64,
}
