//! XFS: geometry, and the ioctls that exchange the blocks of two files (xfs/xfs_fs.h, v6.12).
//!
//! `SWAPEXT` exchanges two whole files, `COMMIT_RANGE` a range of them; both only if the target's
//! modification and change times are what the caller says. `EXCHANGE_RANGE` has no such check and
//! so is useless for copying data while others may write it; it is left out here.

use std::{
    io,
    mem::{offset_of, size_of},
    os::fd::{AsFd, AsRawFd},
};

use crate::{
    abi::AbiItem,
    ioctl::{self, IoctlArgument, READ, WRITE},
};

pub(crate) mod bulk;

pub use bulk::{InodeFlags, InodeRecord, InodeRecords, fork_offset, generation};

bitflags::bitflags! {
    /// `XFS_FSOP_GEOM_FLAGS_*`: features that matter here.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Features: u32 {
        /// Quota is on.
        const QUOTA = 1 << 2;
        /// Extended attributes with a variable place in the inode.
        const ATTR2 = 1 << 10;
        /// Reverse mapping: `SWAPEXT` goes extent by extent.
        const RMAPBT = 1 << 19;
        /// Files can share blocks.
        const REFLINK = 1 << 20;
        /// Ranges of files can be exchanged atomically.
        const EXCHANGE_RANGE = 1 << 24;
        /// Features that this version does not know stay in the value.
        const _ = !0;
    }
}

/// `struct xfs_fsop_geom` (the version of 5.2 and later), as far as it is used.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct RawGeometry {
    block_size: u32,
    realtime_extent_blocks: u32,
    group_blocks: u32,
    group_count: u32,
    log_blocks: u32,
    sector_size: u32,
    inode_size: u32,
    between: [u32; 16],
    flags: u32,
    behind: [u32; 8],
    reserved: [u32; 32],
}

const _: () = {
    assert!(size_of::<RawGeometry>() == 256);
    assert!(offset_of!(RawGeometry, flags) == 92);
};

// SAFETY: XFS_IOC_FSGEOMETRY is _IOR('X', 126, struct xfs_fsop_geom), 256 bytes of plain integers.
unsafe impl IoctlArgument for RawGeometry {
    const REQUEST: u32 = ioctl::request(READ, b'X', 126, size_of::<Self>());
}

/// Geometry of the file system of an open file.
#[derive(Clone, Copy, Debug)]
pub struct XfsGeometry {
    /// Block size in bytes.
    pub block_size: u32,
    /// Blocks of one allocation group: no extent is longer.
    pub group_blocks: u32,
    /// Allocation groups.
    pub group_count: u32,
    /// Bytes of an inode.
    pub inode_size: u32,
    /// Features.
    pub features: Features,
}

/// `XFS_IOC_FSGEOMETRY`.
///
/// # Errors
///
/// `ENOTTY` where it is not XFS.
pub fn geometry(fd: impl AsFd) -> io::Result<XfsGeometry> {
    let mut raw = RawGeometry::default();
    ioctl::call(fd, &mut raw)?;
    Ok(XfsGeometry {
        block_size: raw.block_size,
        group_blocks: raw.group_blocks,
        group_count: raw.group_count,
        inode_size: raw.inode_size,
        features: Features::from_bits_retain(raw.flags),
    })
}

/// `struct xfs_bstime` on 64-bit machines.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// Seconds since 1970.
    pub seconds: i64,
    /// And nanoseconds.
    pub nanos: i32,
    pad: i32,
}

impl Time {
    /// A time stamp as `statx` gives it.
    #[must_use]
    pub const fn new(seconds: i64, nanos: u32) -> Self {
        Self {
            seconds,
            nanos: nanos as i32,
            pad: 0,
        }
    }
}

/// `struct xfs_bstat`, as far as `SWAPEXT` looks at it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct RawStat {
    before: [u64; 7],
    modified: Time,
    changed: Time,
    behind: [u64; 6],
}

/// `struct xfs_swapext`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct RawSwap {
    version: i64,
    target: i64,
    donor: i64,
    offset: i64,
    length: i64,
    pad: [u8; 16],
    stat: RawStat,
}

const _: () = {
    assert!(size_of::<RawStat>() == 136);
    assert!(offset_of!(RawStat, modified) == 56);
    assert!(offset_of!(RawStat, changed) == 72);
    assert!(size_of::<RawSwap>() == 192);
    assert!(offset_of!(RawSwap, stat) == 56);
};

// SAFETY: XFS_IOC_SWAPEXT is _IOWR('X', 109, struct xfs_swapext), 192 bytes of plain integers.
unsafe impl IoctlArgument for RawSwap {
    const REQUEST: u32 = ioctl::request(READ | WRITE, b'X', 109, size_of::<Self>());
}

/// `XFS_IOC_SWAPEXT`: exchange all blocks of `target` and `donor`, both of `size` bytes and open
/// for reading and writing, if `target` still has these times. Its times stay as they are.
///
/// # Errors
///
/// `EBUSY` for other times, `EFAULT` for another size, `EINVAL` for incompatible inodes.
pub fn swap_extents(
    target: impl AsFd,
    donor: impl AsFd,
    size: u64,
    modified: Time,
    changed: Time,
) -> io::Result<()> {
    let mut raw = RawSwap {
        target: target.as_fd().as_raw_fd().into(),
        donor: donor.as_fd().as_raw_fd().into(),
        length: i64::try_from(size).map_err(|_| io::ErrorKind::InvalidInput)?,
        stat: RawStat {
            modified,
            changed,
            ..RawStat::default()
        },
        ..RawSwap::default()
    };
    ioctl::call(target, &mut raw).map(drop)
}

/// `struct xfs_fs_eofblocks`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct RawFree {
    version: u32,
    flags: u32,
    user: u32,
    group: u32,
    project: u32,
    pad: u32,
    least_size: u64,
    reserved: [u64; 12],
}

const _: () = {
    assert!(size_of::<RawFree>() == 128);
    assert!(offset_of!(RawFree, least_size) == 24);
};

// SAFETY: XFS_IOC_FREE_EOFBLOCKS is _IOR('X', 58, struct xfs_fs_eofblocks); the kernel reads these 128 bytes of plain integers.
unsafe impl IoctlArgument for RawFree {
    const REQUEST: u32 = ioctl::request(READ, b'X', 58, size_of::<Self>());
}

/// Wait until the blocks of all files that are gone by now are free, which the kernel sees to in the background.
///
/// That is the end of `XFS_IOC_FREE_EOFBLOCKS` (`xfs_blockgc_free_space`, fs/xfs/xfs_icache.c, v5.14 to v6.18). What it is for,
/// to take from files what was allocated past their ends, it does here for files that are larger than any.
///
/// # Errors
///
/// `EPERM` without `CAP_SYS_ADMIN`, `EROFS`.
pub fn wait_for_frees(on: impl AsFd) -> io::Result<()> {
    let mut raw = RawFree {
        // XFS_EOFBLOCKS_VERSION
        version: 1,
        // XFS_EOF_FLAGS_MINFILESIZE
        flags: 1 << 4,
        least_size: u64::MAX,
        ..RawFree::default()
    };
    ioctl::call(on, &mut raw).map(drop)
}

/// Structures and numbers of this module, for `cargo xtask abi-check`; without `COMMIT_RANGE`, which headers before 6.12 lack.
pub const ABI: &[AbiItem] = &[
    AbiItem {
        header: "xfs/xfs.h",
        c_type: "struct xfs_fsop_geom",
        size: size_of::<RawGeometry>(),
        fields: &[
            ("inodesize", offset_of!(RawGeometry, inode_size)),
            ("flags", offset_of!(RawGeometry, flags)),
        ],
        requests: &[("XFS_IOC_FSGEOMETRY", RawGeometry::REQUEST)],
    },
    AbiItem {
        header: "xfs/xfs.h",
        c_type: "struct xfs_bstat",
        size: size_of::<RawStat>(),
        fields: &[
            ("bs_mtime", offset_of!(RawStat, modified)),
            ("bs_ctime", offset_of!(RawStat, changed)),
        ],
        requests: &[],
    },
    AbiItem {
        header: "xfs/xfs.h",
        c_type: "struct xfs_swapext",
        size: size_of::<RawSwap>(),
        fields: &[
            ("sx_fdtmp", offset_of!(RawSwap, donor)),
            ("sx_stat", offset_of!(RawSwap, stat)),
        ],
        requests: &[("XFS_IOC_SWAPEXT", RawSwap::REQUEST)],
    },
    AbiItem {
        header: "xfs/xfs.h",
        c_type: "struct xfs_fs_eofblocks",
        size: size_of::<RawFree>(),
        fields: &[
            ("eof_flags", offset_of!(RawFree, flags)),
            ("eof_min_file_size", offset_of!(RawFree, least_size)),
        ],
        requests: &[
            ("XFS_IOC_FREE_EOFBLOCKS", RawFree::REQUEST),
            ("XFS_EOF_FLAGS_MINFILESIZE", 1 << 4),
        ],
    },
];

bitflags::bitflags! {
    /// `XFS_EXCHANGE_RANGE_*`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CommitFlags: u64 {
        /// Return when the exchange is durable.
        const DURABLE = 1 << 1;
        /// Check and wait for everything, exchange nothing.
        const DRY_RUN = 1 << 2;
        /// Exchange only where the donor has written blocks.
        const DONOR_WRITTEN = 1 << 3;
    }
}

/// State of a file at the time of `START_COMMIT`; opaque.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freshness([u64; 6]);

/// `struct xfs_commit_range`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct RawCommit {
    donor: i32,
    pad: u32,
    donor_offset: u64,
    target_offset: u64,
    length: u64,
    flags: u64,
    freshness: [u64; 6],
}

const _: () = {
    assert!(size_of::<RawCommit>() == 88);
    assert!(offset_of!(RawCommit, freshness) == 40);
};

#[repr(transparent)]
struct StartCommit(RawCommit);

// SAFETY: XFS_IOC_START_COMMIT is _IOR('X', 130, struct xfs_commit_range), 88 bytes of plain
// integers.
unsafe impl IoctlArgument for StartCommit {
    const REQUEST: u32 = ioctl::request(READ, b'X', 130, size_of::<RawCommit>());
}

#[repr(transparent)]
struct Commit(RawCommit);

// SAFETY: XFS_IOC_COMMIT_RANGE is _IOW('X', 131, struct xfs_commit_range), 88 bytes of plain
// integers.
unsafe impl IoctlArgument for Commit {
    const REQUEST: u32 = ioctl::request(WRITE, b'X', 131, size_of::<RawCommit>());
}

/// `XFS_IOC_START_COMMIT`: remember the current state of `target`.
///
/// # Errors
///
/// `ENOTTY` before Linux 6.12.
pub fn start_commit(target: impl AsFd) -> io::Result<Freshness> {
    let mut raw = StartCommit(RawCommit::default());
    ioctl::call(target, &mut raw)?;
    Ok(Freshness(raw.0.freshness))
}

/// `XFS_IOC_COMMIT_RANGE`: exchange the blocks of a range of `target` with those of the same range
/// of `donor` if `target` is still as it was. The times of a file change unless it was opened with
/// [`crate::xfs_handle::open_unnoticed`].
///
/// # Errors
///
/// `EBUSY` where it changed, `EOPNOTSUPP` where the file system lacks the feature.
pub fn commit_range(
    target: impl AsFd,
    donor: impl AsFd,
    offset: u64,
    length: u64,
    flags: CommitFlags,
    freshness: Freshness,
) -> io::Result<()> {
    let mut raw = Commit(RawCommit {
        donor: donor.as_fd().as_raw_fd(),
        pad: 0,
        donor_offset: offset,
        target_offset: offset,
        length,
        flags: flags.bits(),
        freshness: freshness.0,
    });
    ioctl::call(target, &mut raw).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_those_of_the_header() {
        assert_eq!(RawGeometry::REQUEST, 0x8100_587E);
        assert_eq!(RawSwap::REQUEST, 0xC0C0_586D);
        assert_eq!(StartCommit::REQUEST, 0x8058_5882);
        assert_eq!(Commit::REQUEST, 0x4058_5883);
    }

    #[test]
    fn another_file_system_has_no_such_geometry() {
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        assert!(geometry(&file).is_err() && wait_for_frees(&file).is_err());
    }
}
