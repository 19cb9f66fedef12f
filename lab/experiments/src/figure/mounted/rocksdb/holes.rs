//! An ext4 whose free space lies in holes: as if small files had come and gone for long.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use lfs_sim::BLOCK;
use rustix::{
    fs::{FallocateFlags, fallocate, fstatvfs, syncfs},
    io::Errno,
};
use units::Bytes;
use workloads::Numbers;

use super::super::ground::Failed;

/// Pieces of what takes the rest: shorter and shorter, until nothing is left but the holes.
const FILLS: [Bytes; 4] = [Bytes::mib(16), Bytes::mib(1), Bytes::kib(64), Bytes::kib(4)];

/// Takes all room but the holes, until it is let go.
pub(super) struct Filled(PathBuf);

impl Filled {
    /// Makes holes of 4 KiB to twice `hole`, with as much of others between two of them, until they are `free` bytes, and
    /// fills the rest of the file system.
    pub(super) fn new(root: &Path, hole: Bytes, free: Bytes, seed: u64) -> Result<Self, Failed> {
        let mut numbers = Numbers::new(seed);
        let most = (2 * hole.0 / BLOCK.0) as u32;
        let mut piece = || u64::from(numbers.between(1, most + 1)) * BLOCK.0;
        let (mut holes, mut end, mut all) = (Vec::new(), 0, 0);
        while all < free.0 {
            let (others, len) = (piece(), piece());
            holes.push((end + others, len));
            end += others + len;
            all += len;
        }
        let between = File::create_new(root.join("between"))?;
        fallocate(&between, FallocateFlags::empty(), 0, end)?;
        let rest = root.join("rest");
        let file = File::create_new(&rest)?;
        let mut at = 0;
        for piece in FILLS {
            loop {
                match fallocate(&file, FallocateFlags::empty(), at, piece.0) {
                    Ok(()) => at += piece.0,
                    Err(Errno::NOSPC) => break,
                    Err(error) => return Err(error.into()),
                }
            }
        }
        // ext4 keeps 2 % for itself: no file gets them, but they may be anybody's place, and lie in one piece.
        syncfs(&file)?;
        let stat = fstatvfs(&file)?;
        let kept = stat.f_bfree * stat.f_frsize;
        for (start, len) in holes {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(&between, flags, start, len)?;
        }
        fallocate(&file, FallocateFlags::empty(), at, kept)?;
        syncfs(&between)?;
        Ok(Self(rest))
    }

    /// The rest of the file system is free again.
    pub(super) fn let_go(self) -> Result<(), Failed> {
        fs::remove_file(self.0)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::statvfs;
    use scratch_fs::{ScratchFs, require};

    use super::*;

    #[test]
    fn loop_a_file_that_is_written_meanwhile_lies_in_the_holes() {
        let scratch = require(ScratchFs::builder("ext4", Bytes::mib(128)).build());
        let Some(scratch) = scratch else {
            return;
        };
        let free = Bytes::mib(8);
        let filled = Filled::new(scratch.path(), Bytes::kib(64), free, 1).unwrap();
        let room = || {
            let stat = statvfs(scratch.path()).unwrap();
            stat.f_bfree * stat.f_frsize
        };
        let most = free.0 + (1 << 20);
        assert!((free.0..most).contains(&room()), "{}", room());
        let path = scratch.path().join("file");
        fs::write(&path, vec![1; 4 << 20]).unwrap();
        let extents = scratch_fs::fragments(&File::open(&path).unwrap()).unwrap();
        assert!(extents >= (4 << 20) / (128 << 10), "{extents}");
        filled.let_go().unwrap();
        scratch.sync().unwrap();
        assert!(room() > 4 * free.0, "{}", room());
    }
}
