//! Files that a walk was told by their numbers: it looks at these alone, and finds out their names.

use std::sync::Arc;

/// The regular files of a file system at which a walk is to look. Others that it meets there were counted by whoever made
/// the list.
#[derive(Clone, Debug)]
pub struct Listed {
    dev: u64,
    files: Arc<[(u64, u32)]>,
}

impl Listed {
    /// Of the file system with this device number, inodes with their generations.
    #[must_use]
    pub fn new(dev: u64, mut files: Vec<(u64, u32)>) -> Self {
        files.sort_unstable();
        Self {
            dev,
            files: files.into(),
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The generation of a listed file, none for another one; `None` for files that no list is of.
    pub(super) fn generation(&self, (dev, inode): (u64, u64)) -> Option<Option<u32>> {
        let listed = || {
            let found = self.files.binary_search_by_key(&inode, |(inode, _)| *inode);
            Some(self.files[found.ok()?].1)
        };
        (dev == self.dev).then(listed)
    }
}
