//! The names in folders, by inode number.
//!
//! When the kernel has dropped a file's name from its memory, opening the file by its handle gives no
//! path. Its folder still has one, and is read once for all files of it that are looked up together.

use std::{
    collections::HashMap,
    ffi::OsString,
    fs,
    os::unix::fs::DirEntryExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Folders that are kept, and names of one folder.
const FOLDERS: usize = 64;
const NAMES: usize = 1 << 18;

/// A file that is missing in a folder may be new: the folder is read again, but no more often.
const FRESH: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Folders {
    read: HashMap<PathBuf, Folder>,
}

#[derive(Debug)]
struct Folder {
    names: HashMap<u64, OsString>,
    read: Instant,
}

impl Folders {
    /// The path of the file with this inode number in the folder at `path`. It may be outdated.
    pub(super) fn find(&mut self, path: &Path, inode: u64) -> Option<PathBuf> {
        let known = self.read.get(path);
        let usable = known.is_some_and(|folder| {
            folder.names.contains_key(&inode) || folder.read.elapsed() < FRESH
        });
        if !usable {
            if self.read.len() >= FOLDERS {
                self.read.clear();
            }
            self.read.insert(path.to_owned(), read(path));
        }
        let name = self.read.get(path)?.names.get(&inode)?;
        Some(path.join(name))
    }
}

fn read(path: &Path) -> Folder {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    Folder {
        names: entries
            .take(NAMES)
            .map(|entry| (entry.ino(), entry.file_name()))
            .collect(),
        read: Instant::now(),
    }
}
