//! Extents that a file holds and reaches only in part.

use std::{io, os::fd::AsFd};

use indef_core::layout::HeldExtent;
use rustix::io::Errno;

use crate::{FsKind, btrfs};

/// The extents that an open file holds on the device and reaches only in part, as far as it is
/// written back. Only Btrfs has any: the others that there is an engine for free each block that
/// nothing refers to.
///
/// # Errors
///
/// `EPERM` without `CAP_SYS_ADMIN` on Btrfs, whose trees only root may read; `EOPNOTSUPP` on a file
/// system that is not known.
pub fn partly_reached(kind: FsKind, file: impl AsFd, inode: u64) -> io::Result<Vec<HeldExtent>> {
    match kind {
        FsKind::Btrfs => btrfs::partly_reached(file, inode),
        FsKind::Ext4 | FsKind::Xfs | FsKind::F2fs => Ok(Vec::new()),
        FsKind::Other(_) => Err(Errno::OPNOTSUPP.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::unix::fs::MetadataExt};

    use indef_core::layout::ExtentFlags;
    use rustix::fs::{FallocateFlags, fallocate};
    use scratch_fs::{ScratchFs, require};
    use units::{Bytes, FileRange};

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn loop_the_tree_knows_what_is_cut_off_and_punched() {
        let Some(scratch) = require(ScratchFs::builder("btrfs", Bytes::mib(512)).build()) else {
            return;
        };
        let path = scratch.path().join("file");
        let look = || {
            let file = File::open(&path).unwrap();
            file.sync_all().unwrap();
            let inode = file.metadata().unwrap().ino();
            partly_reached(FsKind::Btrfs, &file, inode).unwrap()
        };
        std::fs::write(&path, vec![3; 8 << 20]).unwrap();
        assert_eq!(look(), []);
        let file = File::options().write(true).open(&path).unwrap();
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&file, punch, MIB, MIB).unwrap();
        file.set_len(4 * MIB).unwrap();
        let held = look();
        assert_eq!(held.len(), 1, "{held:?}");
        let parts = [FileRange::new(0, MIB), FileRange::new(2 * MIB, 2 * MIB)];
        assert_eq!(held[0].parts, parts);
        assert_eq!(held[0].unreached(), Bytes::mib(5));
        fallocate(&file, FallocateFlags::KEEP_SIZE, 16 * MIB, MIB).unwrap();
        fallocate(&file, punch, 16 * MIB, MIB / 2).unwrap();
        let unwritten = look();
        assert!(
            unwritten[1].flags.contains(ExtentFlags::UNWRITTEN),
            "{unwritten:?}"
        );
    }
}
