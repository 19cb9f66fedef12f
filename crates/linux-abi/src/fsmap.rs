//! `FS_IOC_GETFSMAP`: the owners of a file system's space, in the order of the device (linux/fsmap.h; ext4
//! and XFS since Linux 4.12).

use std::{
    io,
    mem::{offset_of, size_of},
    os::fd::AsFd,
};

use crate::{
    abi::AbiItem,
    ioctl::{self, IoctlArgument, READ, WRITE},
};

/// `FMR_OWN_FREE`, with [`SPECIAL_OWNER`].
const FREE: u64 = 1;
/// `FMR_OWN_UNKNOWN`, with [`SPECIAL_OWNER`].
const UNKNOWN: u64 = 2;
/// `FMR_OF_SPECIAL_OWNER`.
const SPECIAL_OWNER: u32 = 0x10;
/// `FMR_OF_LAST`.
const LAST: u32 = 0x20;
/// `FMH_OF_DEV_T`: devices are told by their numbers, else by an index.
const BY_NUMBER: u32 = 1;
/// The index of the device with the data (`XFS_DEV_DATA`, fs/xfs/libxfs/xfs_fs.h, v6.15).
const DATA_DEVICE: u32 = 1;
/// `FMR_OF_PREALLOC`.
const UNWRITTEN_DATA: u32 = 1;
/// `FMR_OF_ATTR_FORK` and `FMR_OF_EXTENT_MAP`.
const NO_DATA: u32 = 2 | 4;
/// `FMR_OF_SHARED`.
const SHARED: u32 = 8;
/// Records of one call: 64 KiB.
const RECORDS: usize = 1024;
/// Records of a call that asks for the owners of an extent: most have few.
const FEW: usize = 64;

/// `struct fsmap`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Record {
    device: u32,
    flags: u32,
    physical: u64,
    owner: u64,
    offset: u64,
    length: u64,
    reserved: [u64; 3],
}

/// `struct fsmap_head` with its records.
#[repr(C)]
struct Map<const N: usize> {
    input_flags: u32,
    output_flags: u32,
    count: u32,
    entries: u32,
    reserved: [u64; 6],
    from: Record,
    to: Record,
    records: [Record; N],
}

const _: () = {
    assert!(size_of::<Record>() == 64);
    assert!(offset_of!(Map<1>, from) == 64);
    assert!(offset_of!(Map<1>, records) == 192);
};

// SAFETY: FS_IOC_GETFSMAP is _IOWR('X', 59, struct fsmap_head), 192 bytes of plain integers and as many
// records as `count` says, which is never more than there are.
unsafe impl<const N: usize> IoctlArgument for Map<N> {
    const REQUEST: u32 = ioctl::request(READ | WRITE, b'X', 59, 192);
}

impl<const N: usize> Map<N> {
    /// A question for everything on all devices.
    fn new() -> Box<Self> {
        Box::new(Self {
            input_flags: 0,
            output_flags: 0,
            count: N as u32,
            entries: 0,
            reserved: [0; 6],
            from: Record::default(),
            to: Record {
                device: u32::MAX,
                flags: u32::MAX,
                physical: u64::MAX,
                owner: u64::MAX,
                offset: u64::MAX,
                ..Record::default()
            },
            records: [Record::default(); N],
        })
    }

    /// The records of all calls, until `visit` returns `false`; it gets the flags of the answer, too.
    fn each(
        &mut self,
        fd: impl AsFd,
        mut visit: impl FnMut(u32, &Record) -> bool,
    ) -> io::Result<()> {
        let fd = fd.as_fd();
        loop {
            ioctl::call(fd, self)?;
            let records = &self.records[..(self.entries as usize).min(N)];
            for record in records {
                if !visit(self.output_flags, record) {
                    return Ok(());
                }
            }
            match records.last() {
                Some(last) if last.flags & LAST == 0 => self.from = *last,
                _ => return Ok(()),
            }
        }
    }
}

/// A run of space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first byte.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// Who owns it.
    pub owner: Owner,
}

/// Who owns a run of space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Nobody.
    Free,
    /// The file system itself.
    Metadata,
    /// A file, or somebody whom the file system does not tell.
    Other,
}

/// Visit the runs of the device `device` of the file system that `fd` is on, until `visit` returns `false`:
/// those that are free, and those of owners as far as the caller may know them.
///
/// # Errors
///
/// `ENOTTY` or `EOPNOTSUPP` where the file system cannot tell.
pub fn runs(fd: impl AsFd, device: u64, mut visit: impl FnMut(Run) -> bool) -> io::Result<()> {
    each_of_device(fd, device, |record| {
        let is_special = record.flags & SPECIAL_OWNER != 0;
        visit(Run {
            start: record.physical,
            len: record.length,
            owner: match record.owner {
                FREE if is_special => Owner::Free,
                UNKNOWN => Owner::Other,
                _ if is_special => Owner::Metadata,
                _ => Owner::Other,
            },
        })
    })
}

/// Visit all records of a device, until `visit` returns `false`.
fn each_of_device(
    fd: impl AsFd,
    device: u64,
    mut visit: impl FnMut(&Record) -> bool,
) -> io::Result<()> {
    Map::<RECORDS>::new().each(fd, |flags, record| {
        let wanted = match flags & BY_NUMBER {
            0 => DATA_DEVICE,
            _ => encoded(device),
        };
        record.device != wanted || visit(record)
    })
}

/// A run of space that a file owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owned {
    /// The first byte on the device.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// The file.
    pub inode: u64,
    /// The place of its data in the file; none for its attributes and trees.
    pub data: Option<u64>,
    /// The data was written, and not only allocated.
    pub is_written: bool,
    /// Another file, or another place of this one, has some of it, too.
    pub is_shared: bool,
}

/// Visit the space of all files on the device `device` of an XFS with reverse mapping, in the order of the device, until
/// `visit` returns `false`. Needs `CAP_SYS_ADMIN`: without it, or without reverse mapping, files are not told.
///
/// # Errors
///
/// As for [`runs`].
pub fn owned(fd: impl AsFd, device: u64, mut visit: impl FnMut(Owned) -> bool) -> io::Result<()> {
    each_of_device(fd, device, |record| {
        let is_data = record.flags & NO_DATA == 0;
        record.flags & SPECIAL_OWNER != 0
            || visit(Owned {
                start: record.physical,
                len: record.length,
                inode: record.owner,
                data: is_data.then_some(record.offset),
                is_written: record.flags & UNWRITTEN_DATA == 0,
                is_shared: record.flags & SHARED != 0,
            })
    })
}

/// A reference to space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The first byte on the device: it may lie before what was asked for.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// The file that refers to it with its data, and the place in the file; none where it is not a file's data, or
    /// free.
    pub data: Option<(u64, u64)>,
    /// The data was written, and not only allocated.
    pub is_written: bool,
}

/// A reusable buffer for references.
pub struct References(Box<Map<FEW>>);

impl References {
    /// An empty buffer.
    #[must_use]
    pub fn new() -> Self {
        Self(Map::new())
    }

    /// Visit all references to bytes of `start..start + len` on the device `device` of an XFS with reverse mapping, until
    /// `visit` returns `false`. Needs `CAP_SYS_ADMIN`: without it, or without reverse mapping, files are not told.
    ///
    /// # Errors
    ///
    /// `ENOTTY` or `EOPNOTSUPP` where the file system cannot tell.
    pub fn to(
        &mut self,
        fd: impl AsFd,
        device: u64,
        (start, len): (u64, u64),
        mut visit: impl FnMut(Reference) -> bool,
    ) -> io::Result<()> {
        let end = start.saturating_add(len);
        let mut ask = |device: u32| {
            // The whole of a key holds for its device only.
            self.0.from = Record {
                device,
                physical: start,
                ..Record::default()
            };
            self.0.to = Record {
                device,
                flags: u32::MAX,
                physical: end.saturating_sub(1),
                owner: u64::MAX,
                offset: u64::MAX,
                ..Record::default()
            };
            self.0.each(&fd, |_, record| {
                let is_inside = record.physical < end && record.physical + record.length > start;
                if record.device != device || !is_inside {
                    return true;
                }
                let is_data = record.flags & (SPECIAL_OWNER | NO_DATA) == 0;
                visit(Reference {
                    start: record.physical,
                    len: record.length,
                    data: is_data.then_some((record.owner, record.offset)),
                    is_written: record.flags & UNWRITTEN_DATA == 0,
                })
            })
        };
        match ask(encoded(device)) {
            // It tells devices by an index.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => ask(DATA_DEVICE),
            done => done,
        }
    }
}

impl Default for References {
    fn default() -> Self {
        Self::new()
    }
}

/// A device number as the kernel tells it in 32 bits (`new_encode_dev`, linux/kdev_t.h, v6.1).
fn encoded(device: u64) -> u32 {
    let (major, minor) = (libc::major(device), libc::minor(device));
    (minor & 0xFF) | major << 8 | (minor & !0xFF) << 12
}

/// The structures of this module, for `cargo xtask abi-check`.
pub(crate) const ABI: &[AbiItem] = &[
    AbiItem {
        header: "linux/fsmap.h",
        c_type: "struct fsmap",
        size: size_of::<Record>(),
        fields: &[
            ("fmr_flags", offset_of!(Record, flags)),
            ("fmr_physical", offset_of!(Record, physical)),
            ("fmr_owner", offset_of!(Record, owner)),
            ("fmr_offset", offset_of!(Record, offset)),
            ("fmr_length", offset_of!(Record, length)),
        ],
        requests: &[
            ("FMR_OF_PREALLOC", UNWRITTEN_DATA),
            ("(FMR_OF_ATTR_FORK | FMR_OF_EXTENT_MAP)", NO_DATA),
            ("FMR_OF_SHARED", SHARED),
            ("FMR_OF_SPECIAL_OWNER", SPECIAL_OWNER),
            ("FMR_OF_LAST", LAST),
            ("FMR_OWN_FREE", FREE as u32),
            ("FMR_OWN_UNKNOWN", UNKNOWN as u32),
            ("FMH_OF_DEV_T", BY_NUMBER),
        ],
    },
    AbiItem {
        header: "linux/fsmap.h",
        c_type: "struct fsmap_head",
        size: offset_of!(Map<1>, records),
        fields: &[
            ("fmh_count", offset_of!(Map<1>, count)),
            ("fmh_entries", offset_of!(Map<1>, entries)),
            ("fmh_keys", offset_of!(Map<1>, from)),
        ],
        requests: &[("FS_IOC_GETFSMAP", Map::<1>::REQUEST)],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_cannot_tell() {
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        assert!(runs(&file, 1, |_| unreachable!("there are none")).is_err());
        assert!(owned(&file, 1, |_| unreachable!("there are none")).is_err());
        assert_eq!(encoded(libc::makedev(259, 0x1234)), 0x0121_0334);
    }
}
