//! What an inode is, in a look at all inodes of a file system.

use units::Bytes;

/// What an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    /// A directory.
    Directory,
    /// A regular file without data, or with one extent from its beginning to its end that it reaches all of.
    Plain {
        /// Its size.
        size: Bytes,
        /// Its allocated bytes; those of the extent, if there is one.
        allocated: Bytes,
    },
    /// Any other regular file: it has to be looked at.
    Notable,
    /// Neither.
    Other,
}
