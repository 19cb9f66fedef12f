//! `F2FS_IOC_OFFLOAD`: give ranges of files new, contiguous blocks, and have the device copy the data
//! (kernel/f2fs/f2fs_offload.h; a kernel without that patch returns `ENOTTY`).

use std::{
    fmt, io,
    mem::{offset_of, size_of},
    os::fd::{AsFd, AsRawFd, BorrowedFd},
};

use crate::{abi::AbiItem, ioctl};

/// Largest number of ranges in one call.
pub const MAX_RANGES: usize = 1024;

/// Largest number of 4 KiB blocks in one step.
pub const MAX_STEP_BLOCKS: u32 = 131_072;

bitflags::bitflags! {
    /// `F2FS_OFFLOAD_*`: which ways the kernel may use. An unknown flag is `EINVAL`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Flags: u32 {
        /// Not by In_Device_Defragment.
        const NO_IN_DEVICE = 0x01;
        /// Not by NVMe Copy.
        const NO_COPY = 0x02;
        /// Not by reading and writing in the host.
        const NO_HOST = 0x04;
        /// Write a checkpoint before returning, which makes the moves durable.
        const CHECKPOINT = 0x08;
        /// Move nothing: only report the available way.
        const QUERY = 0x10;
    }
}

/// A way that is not in the header; the source of an [`io::Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownWay(pub u32);

impl fmt::Display for UnknownWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the kernel knows a way {}", self.0)
    }
}

impl std::error::Error for UnknownWay {}

/// `enum f2fs_offload_way`: the way in which clean data is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// Not at all.
    None,
    /// Read and written by the host.
    Host,
    /// By the device, with NVMe's Copy command.
    Copy,
    /// By the device, with InDeF's In_Device_Defragment.
    InDevice,
}

impl Way {
    const fn from_raw(raw: u32) -> Option<Self> {
        Some(match raw {
            0 => Self::None,
            1 => Self::Host,
            2 => Self::Copy,
            3 => Self::InDevice,
            _ => return None,
        })
    }
}

/// `enum f2fs_offload_status`: the outcome for a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It is contiguous now.
    Done,
    /// The call ended before this range.
    NotReached,
    /// It was contiguous before; nothing was moved.
    Contiguous,
    /// It has no blocks.
    Hole,
    /// Not a regular file, or not open for reading.
    NotRegular,
    /// The file is on another file system than the one of the call.
    OtherFs,
    /// The start or the length is unaligned, the range is empty, or it lies past the end.
    Range,
    /// The file is pinned.
    Pinned,
    /// The file is compressed.
    Compressed,
    /// The file is being written atomically.
    Atomic,
    /// The file has fs-verity.
    Verity,
    /// The file is in use for swapping.
    Swap,
    /// The data is in the inode.
    Inline,
    /// There is no free section for the rest.
    NoSection,
    /// A command to the device failed, with this positive errno.
    Device(i32),
    /// The file was truncated or deleted meanwhile.
    Changed,
    /// A signal ended the call.
    Interrupted,
    /// A number that this version does not know.
    Unknown(u32),
}

impl Status {
    const fn from_raw(raw: u32, error: i32) -> Self {
        match raw {
            0 => Self::Done,
            1 => Self::NotReached,
            2 => Self::Contiguous,
            3 => Self::Hole,
            4 => Self::NotRegular,
            5 => Self::OtherFs,
            6 => Self::Range,
            7 => Self::Pinned,
            8 => Self::Compressed,
            9 => Self::Atomic,
            10 => Self::Verity,
            11 => Self::Swap,
            12 => Self::Inline,
            13 => Self::NoSection,
            14 => Self::Device(error.wrapping_neg()),
            15 => Self::Changed,
            16 => Self::Interrupted,
            _ => Self::Unknown(raw),
        }
    }
}

/// A range of a file, in bytes, both multiples of 4 KiB and within the file's size rounded up.
#[derive(Clone, Copy, Debug)]
pub struct Range<'a> {
    /// The file, open for reading.
    pub file: BorrowedFd<'a>,
    /// Its first byte.
    pub start: u64,
    /// Its length.
    pub len: u64,
}

/// The outcome for a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeOutcome {
    /// Its status.
    pub status: Status,
    /// Bytes of it that have new blocks: all except holes, or fewer if it did not end with
    /// [`Status::Done`].
    pub moved: u64,
}

/// The available way, and the capacity of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// The best way that the device has and the flags allow.
    pub way: Way,
    /// Largest number of 4 KiB blocks that one command moves.
    pub max_blocks: u32,
    /// Number of logs that calls can move data to side by side ([`Steps::log`]), at least 1.
    pub logs: u32,
}

/// The outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The way in which clean data was moved.
    pub capability: Capability,
    /// For each range, in the order of the call.
    pub ranges: Vec<RangeOutcome>,
    /// Bytes that the device moved with In_Device_Defragment.
    pub bytes_in_device: u64,
    /// Bytes that the device moved with Copy.
    pub bytes_copied: u64,
    /// Bytes that the host read and wrote.
    pub bytes_host: u64,
    /// Bytes that were dirty in the page cache and were written from there.
    pub bytes_from_memory: u64,
    /// Commands to the device.
    pub commands: u64,
    /// Bytes of data and descriptors that went over the bus.
    pub bus_bytes: u64,
    /// Number of times that files were locked to move data.
    pub steps: u32,
    /// The longest time that they were, in nanoseconds.
    pub locked_ns: u64,
    /// Number of 4 KiB blocks that were moved in that time.
    pub locked_blocks: u32,
    /// Number of times that they were locked for longer than [`Steps::stall_ns`].
    pub stalls: u32,
}

/// How files are locked to move data, and where it goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// At most this many 4 KiB blocks are moved each time, up to [`MAX_STEP_BLOCKS`]; 0: 8192.
    pub blocks: u32,
    /// Times that take longer are counted, in nanoseconds; 0: none.
    pub stall_ns: u64,
    /// The log that the data goes to, less than [`Capability::logs`]. Calls for different logs keep the
    /// device at work for one of them while the files of the other are updated.
    pub log: u32,
}

/// `struct f2fs_offload_range`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct RawRange {
    fd: i32,
    status: u32,
    start: u64,
    len: u64,
    moved: u64,
    error: i32,
    reserved: [u32; 3],
}

/// `struct f2fs_offload`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Offload {
    size: u32,
    flags: u32,
    count: u32,
    done: u32,
    ranges: u64,
    way: u32,
    max_blocks: u32,
    bytes_in_device: u64,
    bytes_copied: u64,
    bytes_host: u64,
    bytes_from_memory: u64,
    commands: u64,
    bus_bytes: u64,
    step_blocks: u32,
    steps: u32,
    locked_ns: u64,
    locked_blocks: u32,
    stalls: u32,
    stall_ns: u64,
    log: u32,
    logs: u32,
    reserved: [u32; 2],
}

const _: () = {
    assert!(size_of::<RawRange>() == 48);
    assert!(offset_of!(RawRange, start) == 8);
    assert!(offset_of!(RawRange, moved) == 24);
    assert!(offset_of!(RawRange, error) == 32);
    assert!(size_of::<Offload>() == 128);
    assert!(offset_of!(Offload, ranges) == 16);
    assert!(offset_of!(Offload, way) == 24);
    assert!(offset_of!(Offload, bytes_in_device) == 32);
    assert!(offset_of!(Offload, step_blocks) == 80);
    assert!(offset_of!(Offload, locked_ns) == 88);
    assert!(offset_of!(Offload, stall_ns) == 104);
    assert!(offset_of!(Offload, log) == 112);
    assert!(offset_of!(Offload, reserved) == 120);
    assert!(<Offload as ioctl::IoctlArgument>::REQUEST == 0xC080_F540);
};

/// Structures and numbers of this module, for `cargo xtask abi-check`.
pub const ABI: &[AbiItem] = &[
    AbiItem {
        header: "f2fs_offload.h",
        c_type: "struct f2fs_offload_range",
        size: size_of::<RawRange>(),
        fields: &[
            ("fd", offset_of!(RawRange, fd)),
            ("status", offset_of!(RawRange, status)),
            ("start", offset_of!(RawRange, start)),
            ("len", offset_of!(RawRange, len)),
            ("moved", offset_of!(RawRange, moved)),
            ("error", offset_of!(RawRange, error)),
            ("reserved", offset_of!(RawRange, reserved)),
        ],
        requests: &[],
    },
    AbiItem {
        header: "f2fs_offload.h",
        c_type: "struct f2fs_offload",
        size: size_of::<Offload>(),
        fields: &[
            ("size", offset_of!(Offload, size)),
            ("flags", offset_of!(Offload, flags)),
            ("count", offset_of!(Offload, count)),
            ("done", offset_of!(Offload, done)),
            ("ranges", offset_of!(Offload, ranges)),
            ("way", offset_of!(Offload, way)),
            ("max_blocks", offset_of!(Offload, max_blocks)),
            ("bytes_in_device", offset_of!(Offload, bytes_in_device)),
            ("bytes_copied", offset_of!(Offload, bytes_copied)),
            ("bytes_host", offset_of!(Offload, bytes_host)),
            ("bytes_from_memory", offset_of!(Offload, bytes_from_memory)),
            ("commands", offset_of!(Offload, commands)),
            ("bus_bytes", offset_of!(Offload, bus_bytes)),
            ("step_blocks", offset_of!(Offload, step_blocks)),
            ("steps", offset_of!(Offload, steps)),
            ("locked_ns", offset_of!(Offload, locked_ns)),
            ("locked_blocks", offset_of!(Offload, locked_blocks)),
            ("stalls", offset_of!(Offload, stalls)),
            ("stall_ns", offset_of!(Offload, stall_ns)),
            ("log", offset_of!(Offload, log)),
            ("logs", offset_of!(Offload, logs)),
            ("reserved", offset_of!(Offload, reserved)),
        ],
        requests: &[
            (
                "F2FS_IOC_OFFLOAD",
                <Offload as ioctl::IoctlArgument>::REQUEST,
            ),
            ("F2FS_OFFLOAD_MAX_RANGES", MAX_RANGES as u32),
            ("F2FS_OFFLOAD_MAX_STEP", MAX_STEP_BLOCKS),
            ("F2FS_OFFLOAD_NO_IN_DEVICE", Flags::NO_IN_DEVICE.bits()),
            ("F2FS_OFFLOAD_NO_COPY", Flags::NO_COPY.bits()),
            ("F2FS_OFFLOAD_NO_HOST", Flags::NO_HOST.bits()),
            ("F2FS_OFFLOAD_CHECKPOINT", Flags::CHECKPOINT.bits()),
            ("F2FS_OFFLOAD_QUERY", Flags::QUERY.bits()),
            ("F2FS_OFFLOAD_WAY_IN_DEVICE", 3),
            ("F2FS_OFFLOAD_NO_SECTION", 13),
            ("F2FS_OFFLOAD_DEVICE", 14),
            ("F2FS_OFFLOAD_INTERRUPTED", 16),
        ],
    },
];

// SAFETY: F2FS_IOC_OFFLOAD is _IOWR(0xf5, 64, struct f2fs_offload); the kernel reads and writes these
// 128 bytes, and `count` structures f2fs_offload_range at `ranges`, which `call` owns for the call.
// Every bit pattern is valid for plain integers.
unsafe impl ioctl::IoctlArgument for Offload {
    const REQUEST: u32 = ioctl::request(ioctl::READ | ioctl::WRITE, 0xF5, 64, size_of::<Offload>());
}

/// Ask for the available way on the file system of `file`; this moves nothing.
///
/// # Errors
///
/// The kernel's errno: `ENOTTY` where it (or the file system) does not have this ioctl, `EPERM`
/// without `CAP_SYS_ADMIN`.
pub fn query(file: impl AsFd, flags: Flags) -> io::Result<Capability> {
    let steps = Steps::default();
    call(file.as_fd(), &[], flags | Flags::QUERY, steps).map(|report| report.capability)
}

/// Give each of these ranges contiguous blocks, in the given order. `on` is any file or folder of the
/// file system. Ranges that follow each other share a step and a command, of whatever files they are,
/// as long as they fit into 8192 blocks. A range that could not be moved is not an error but has a
/// [`Status`]. A signal ends the call early: the remaining ranges are [`Status::NotReached`].
///
/// # Errors
///
/// The kernel's errno: `ENOTTY` where it (or the file system) does not have this ioctl, `EPERM`
/// without `CAP_SYS_ADMIN`, `EROFS`, `E2BIG` with more than [`MAX_RANGES`] ranges, `EOPNOTSUPP` where
/// the file system is not zoned and mounted `mode=lfs`, or the flags leave no way, `EIO` where it was
/// shut down or the checkpoint failed. With `EIO` some ranges may have been moved.
pub fn offload(on: impl AsFd, ranges: &[Range<'_>], flags: Flags) -> io::Result<Report> {
    call(on.as_fd(), ranges, flags, Steps::default())
}

/// As [`offload`], in these steps. Files are locked for the time of a step.
///
/// # Errors
///
/// Those of [`offload`], `E2BIG` with more than [`MAX_STEP_BLOCKS`] blocks, and `EINVAL` for a log that is
/// not there.
pub fn offload_in_steps(
    on: impl AsFd,
    ranges: &[Range<'_>],
    flags: Flags,
    steps: Steps,
) -> io::Result<Report> {
    call(on.as_fd(), ranges, flags, steps)
}

fn call(
    on: BorrowedFd<'_>,
    ranges: &[Range<'_>],
    flags: Flags,
    steps: Steps,
) -> io::Result<Report> {
    let too_many = || io::Error::from_raw_os_error(libc::E2BIG);
    let mut raw: Vec<RawRange> = ranges
        .iter()
        .map(|range| RawRange {
            fd: range.file.as_raw_fd(),
            status: 1,
            start: range.start,
            len: range.len,
            ..RawRange::default()
        })
        .collect();
    let mut argument = Offload {
        size: size_of::<Offload>() as u32,
        flags: flags.bits(),
        count: u32::try_from(raw.len()).map_err(|_| too_many())?,
        // Valid, exclusive and unmoved until the ioctl returns.
        ranges: raw.as_mut_ptr() as u64,
        step_blocks: steps.blocks,
        stall_ns: steps.stall_ns,
        log: steps.log,
        ..Offload::default()
    };
    ioctl::call(on, &mut argument)?;
    let unknown = || io::Error::other(UnknownWay(argument.way));
    Ok(Report {
        capability: Capability {
            way: Way::from_raw(argument.way).ok_or_else(unknown)?,
            max_blocks: argument.max_blocks,
            // A kernel from before there was a choice leaves it as it was.
            logs: argument.logs.max(1),
        },
        ranges: raw
            .iter()
            .map(|range| RangeOutcome {
                status: Status::from_raw(range.status, range.error),
                moved: range.moved,
            })
            .collect(),
        bytes_in_device: argument.bytes_in_device,
        bytes_copied: argument.bytes_copied,
        bytes_host: argument.bytes_host,
        bytes_from_memory: argument.bytes_from_memory,
        commands: argument.commands,
        bus_bytes: argument.bus_bytes,
        steps: argument.steps,
        locked_ns: argument.locked_ns,
        locked_blocks: argument.locked_blocks,
        stalls: argument.stalls,
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_file_system_without_it_says_so() {
        let file = File::open("/proc/self/exe").unwrap();
        let error = query(&file, Flags::empty()).unwrap_err();
        assert!(
            matches!(error.raw_os_error(), Some(libc::ENOTTY | libc::EOPNOTSUPP)),
            "{error}"
        );
        let range = Range {
            file: file.as_fd(),
            start: 0,
            len: 4096,
        };
        assert!(offload(&file, &[range], Flags::CHECKPOINT).is_err());
    }

    #[test]
    fn numbers_have_names_and_errors_are_positive() {
        assert_eq!(Status::from_raw(0, 0), Status::Done);
        assert_eq!(Status::from_raw(14, -libc::EIO), Status::Device(libc::EIO));
        assert_eq!(Status::from_raw(17, 0), Status::Unknown(17));
        assert_eq!(Way::from_raw(3), Some(Way::InDevice));
        assert_eq!(Way::from_raw(4), None);
    }
}
