//! `XFS_IOC_BULKSTAT`: the inodes of a file system by number, many in one call (xfs/xfs_fs.h, v6.12;
//! since Linux 5.5). For a file that the kernel has in memory it tells what is in memory
//! (fs/xfs/xfs_itable.c, `xfs_bulkstat_one_int`, v6.18). Needs `CAP_SYS_ADMIN`.

use std::{
    io,
    mem::{offset_of, size_of},
    os::fd::AsFd,
};

use crate::{
    abi::AbiItem,
    ioctl::{self, IoctlArgument, READ},
};

/// `XFS_BULK_IREQ_AGNO`: of one allocation group only.
const OF_GROUP: u32 = 1;

bitflags::bitflags! {
    /// `FS_XFLAG_*` of an inode.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct InodeFlags: u64 {
        /// Its data is on the realtime device.
        const REALTIME = 1;
        /// Flags that this version does not know stay in the value.
        const _ = !0;
    }
}

/// `struct xfs_bulkstat`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct InodeRecord {
    /// Number.
    pub inode: u64,
    /// Size in bytes, without data that has no place yet.
    pub size: u64,
    /// Blocks of the file system: data, attributes, and those that are reserved for data without a
    /// place.
    pub blocks: u64,
    flags: u64,
    accessed: i64,
    modified: i64,
    changed: i64,
    born: i64,
    /// Generation: another one for each file that gets the number.
    pub generation: u32,
    owner: u32,
    group: u32,
    project: u32,
    accessed_nanos: u32,
    modified_nanos: u32,
    changed_nanos: u32,
    born_nanos: u32,
    block_size: u32,
    device: u32,
    cow_extent_blocks: u32,
    extent_blocks: u32,
    /// Names.
    pub links: u32,
    /// Extents that have a place.
    pub extents: u32,
    /// Extents of extended attributes.
    pub attribute_extents: u32,
    version: u16,
    fork_offset: u16,
    sick: u16,
    checked: u16,
    /// Type and permissions, as in `st_mode`.
    pub mode: u16,
    pad: u16,
    many_extents: u64,
    reserved: [u64; 6],
}

impl InodeRecord {
    /// Flags.
    #[must_use]
    pub const fn flags(&self) -> InodeFlags {
        InodeFlags::from_bits_retain(self.flags)
    }

    /// Change time: seconds and nanoseconds.
    #[must_use]
    pub const fn ctime(&self) -> (i64, u32) {
        (self.changed, self.changed_nanos)
    }
}

/// `struct xfs_bulkstat_req` with `N` records.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct RawBulkStat<const N: usize> {
    /// The kernel begins with this inode, and leaves here where to go on.
    inode: u64,
    flags: u32,
    wanted: u32,
    got: u32,
    group: u32,
    reserved: [u64; 5],
    records: [InodeRecord; N],
}

const _: () = {
    assert!(size_of::<InodeRecord>() == 192);
    assert!(offset_of!(InodeRecord, links) == 112);
    assert!(offset_of!(InodeRecord, fork_offset) == 126);
    assert!(offset_of!(InodeRecord, many_extents) == 136);
    assert!(offset_of!(RawBulkStat<1>, records) == 64);
    assert!(size_of::<RawBulkStat<1>>() == 64 + 192);
};

// SAFETY: XFS_IOC_BULKSTAT is _IOR('X', 127, struct xfs_bulkstat_req), a header of 64 bytes and as
// many records of plain integers as `wanted` says, which `read` keeps at `N` or less.
unsafe impl<const N: usize> IoctlArgument for RawBulkStat<N> {
    const REQUEST: u32 = ioctl::request(READ, b'X', 127, 64);
}

impl<const N: usize> RawBulkStat<N> {
    fn new() -> Self {
        Self {
            inode: 0,
            flags: 0,
            wanted: 0,
            got: 0,
            group: 0,
            reserved: [0; 5],
            records: [InodeRecord::default(); N],
        }
    }

    fn read(&mut self, fd: impl AsFd, from: u64, wanted: usize) -> io::Result<&[InodeRecord]> {
        (self.flags, self.group) = (0, 0);
        self.call(fd, from, wanted)
    }

    fn read_group(
        &mut self,
        fd: impl AsFd,
        group: u32,
        from: u64,
        wanted: usize,
    ) -> io::Result<&[InodeRecord]> {
        (self.flags, self.group) = (OF_GROUP, group);
        self.call(fd, from, wanted)
    }

    fn call(&mut self, fd: impl AsFd, from: u64, wanted: usize) -> io::Result<&[InodeRecord]> {
        self.inode = from;
        self.wanted = wanted.min(N) as u32;
        self.got = 0;
        ioctl::call(fd, self)?;
        Ok(&self.records[..(self.got as usize).min(N)])
    }
}

/// A reusable buffer for records.
#[derive(Clone, Debug)]
pub struct InodeRecords(Box<RawBulkStat<{ Self::MOST }>>);

impl InodeRecords {
    /// The most records of a call. The kernel reads ahead as many (fs/xfs/xfs_iwalk.c, `xfs_iwalk_prefetch`, v6.18), so
    /// that a device gets many requests at once.
    pub const MOST: usize = 1024;

    /// An empty buffer.
    #[must_use]
    pub fn new() -> Self {
        Self(Box::new(RawBulkStat::new()))
    }

    /// The inodes in use from number `from` on, in order, at most `wanted` and [`Self::MOST`] of
    /// them, of the file system that `fd` is on.
    ///
    /// # Errors
    ///
    /// `EPERM` without `CAP_SYS_ADMIN`, `ENOTTY` where it is not XFS, or before Linux 5.5.
    pub fn read(&mut self, fd: impl AsFd, from: u64, wanted: usize) -> io::Result<&[InodeRecord]> {
        self.0.read(fd, from, wanted)
    }

    /// The same of one allocation group, from its beginning where `from` is 0; none where it has no more.
    ///
    /// # Errors
    ///
    /// As for [`Self::read`]; `EINVAL` where there is no such group.
    pub fn read_group(
        &mut self,
        fd: impl AsFd,
        group: u32,
        from: u64,
        wanted: usize,
    ) -> io::Result<&[InodeRecord]> {
        self.0.read_group(fd, group, from, wanted)
    }
}

impl Default for InodeRecords {
    fn default() -> Self {
        Self::new()
    }
}

/// Bytes of an inode for extents, if attributes follow them; 0 if none can follow.
///
/// # Errors
///
/// `EPERM` without `CAP_SYS_ADMIN`, `ENOENT` where there is no such inode.
pub fn fork_offset(fd: impl AsFd, inode: u64) -> io::Result<u16> {
    record(fd, inode).map(|record| record.fork_offset)
}

/// The generation of an inode, which a handle needs.
///
/// # Errors
///
/// As for [`fork_offset`].
pub fn generation(fd: impl AsFd, inode: u64) -> io::Result<u32> {
    record(fd, inode).map(|record| record.generation)
}

fn record(fd: impl AsFd, inode: u64) -> io::Result<InodeRecord> {
    let mut raw = RawBulkStat::<1>::new();
    // The kernel goes on to the next inode if this one is free.
    match raw.read(fd, inode, 1)? {
        [record] if record.inode == inode => Ok(*record),
        _ => Err(io::Error::from_raw_os_error(libc::ENOENT)),
    }
}

/// The structures of this module, for `cargo xtask abi-check`.
pub(crate) const ABI: &[AbiItem] = &[
    AbiItem {
        header: "xfs/xfs.h",
        c_type: "struct xfs_bulkstat_req",
        size: offset_of!(RawBulkStat<1>, records),
        fields: &[],
        requests: &[
            ("XFS_IOC_BULKSTAT", RawBulkStat::<1>::REQUEST),
            ("XFS_BULK_IREQ_AGNO", OF_GROUP),
        ],
    },
    AbiItem {
        header: "xfs/xfs.h",
        c_type: "struct xfs_bulkstat",
        size: size_of::<InodeRecord>(),
        fields: &[
            ("bs_ino", offset_of!(InodeRecord, inode)),
            ("bs_gen", offset_of!(InodeRecord, generation)),
            ("bs_size", offset_of!(InodeRecord, size)),
            ("bs_blocks", offset_of!(InodeRecord, blocks)),
            ("bs_xflags", offset_of!(InodeRecord, flags)),
            ("bs_ctime", offset_of!(InodeRecord, changed)),
            ("bs_ctime_nsec", offset_of!(InodeRecord, changed_nanos)),
            ("bs_nlink", offset_of!(InodeRecord, links)),
            ("bs_extents", offset_of!(InodeRecord, extents)),
            ("bs_aextents", offset_of!(InodeRecord, attribute_extents)),
            ("bs_forkoff", offset_of!(InodeRecord, fork_offset)),
            ("bs_mode", offset_of!(InodeRecord, mode)),
        ],
        requests: &[("FS_XFLAG_REALTIME", InodeFlags::REALTIME.bits() as u32)],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_file_system_has_no_such_records() {
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        assert!(InodeRecords::new().read(&file, 1, 1).is_err());
        assert!(fork_offset(&file, 1).is_err());
        assert_eq!(RawBulkStat::<1>::REQUEST, 0x8040_587F);
    }
}
