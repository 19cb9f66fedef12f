//! The free space of file systems, before and after.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use indef_fs::FileSystemKey;
use rustix::fs::{fstatvfs, syncfs};

use crate::opened::directory;

/// Free bytes of these file systems in all, with everything written back and committed. `None` where
/// one of them cannot tell.
pub(super) fn free_bytes(file_systems: &[(FileSystemKey, PathBuf)]) -> Option<u64> {
    let once: BTreeMap<_, _> = file_systems.iter().map(|(key, path)| (key, path)).collect();
    once.into_values().map(|path| free_around(path)).sum()
}

fn free_around(path: &Path) -> Option<u64> {
    let directory = directory(path)?;
    syncfs(&directory).ok()?;
    let space = fstatvfs(&directory).ok()?;
    Some(space.f_bfree.saturating_mul(space.f_frsize))
}
