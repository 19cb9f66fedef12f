//! A file system that was filled with small files, of which every other one was removed.

use std::{fs, io, os::unix::fs::FileExt, path::PathBuf};

use anyhow::{Result, ensure};
use rustix::fs::{FallocateFlags, fallocate};
use scratch_fs::{ScratchFs, content};
use units::{Bytes, FileOffset};

use super::oracle;
use stage::Fs;

use crate::state::FOLDER;

/// The size of a file, and of a hole.
const SIZE: u64 = 16 << 10;
const DIRECTORIES: usize = 4;
/// Files that take the long free runs which are left at the end, and where inodes were.
const HOGS: usize = 64;

/// Fill a new file system.
pub(super) fn make(fs: Fs, scratch: &mut ScratchFs) -> Result<()> {
    let folder = scratch.path().join(FOLDER);
    for directory in 0..DIRECTORIES {
        fs::create_dir_all(folder.join(directory.to_string()))?;
    }
    let most = (scratch.free()?.get() / SIZE) as usize;
    let place = |index: usize| folder.join(format!("{}/{index}", index % DIRECTORIES));
    let paths: Vec<PathBuf> = (0..most).map(place).collect();
    // All inodes come first, so that they lie together.
    for path in &paths {
        fs::File::create_new(path)?;
    }
    scratch.sync()?;
    let full = paths
        .iter()
        .position(|path| write(path).is_err())
        .unwrap_or(most);
    scratch.sync()?;
    for (index, path) in paths.iter().enumerate() {
        // XFS allocates for each directory in a group of its own, the others for all of them in a row.
        let turn = match fs {
            Fs::Xfs => index / DIRECTORIES,
            Fs::Ext4 | Fs::Btrfs => index,
        };
        if index >= full || turn.is_multiple_of(2) {
            fs::remove_file(path)?;
        }
    }
    scratch.sync()?;
    fill_long_runs(fs, scratch)
}

/// Content that no other file has.
fn write(path: &PathBuf) -> io::Result<()> {
    let mut bytes = [0; SIZE as usize];
    let seed = path
        .file_name()
        .and_then(|name| name.to_str()?.parse().ok());
    content(&mut bytes, seed.unwrap_or(0), FileOffset(0));
    fs::File::options()
        .write(true)
        .open(path)?
        .write_all_at(&bytes, 0)
}

fn fill_long_runs(fs: Fs, scratch: &mut ScratchFs) -> Result<()> {
    for hog in 0..HOGS {
        let longest = oracle::longest_run(fs, scratch)?;
        if longest <= Bytes(2 * SIZE) {
            return Ok(());
        }
        let file = fs::File::create(scratch.path().join(format!("hog{hog}")))?;
        fallocate(&file, FallocateFlags::empty(), 0, longest.get())?;
    }
    let longest = oracle::longest_run(fs, scratch)?;
    ensure!(longest <= Bytes::mib(1), "a free run of {longest} is left");
    Ok(())
}
