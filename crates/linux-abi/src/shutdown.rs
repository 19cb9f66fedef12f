//! `EXT4_IOC_SHUTDOWN`, `XFS_IOC_GOINGDOWN` (fs/ext4/ext4.h, xfs/xfs_fs.h, v6.12; F2FS has it, too):
//! end all work on a file system at once, to test the state after a power cut.

use std::{io, os::fd::AsFd};

use crate::{
    abi::AbiItem,
    ioctl::{self, IoctlArgument, READ},
};

/// `*_GOING_FLAGS_NOLOGFLUSH`: everything that is only in memory is lost.
const NO_LOG_FLUSH: u32 = 2;

#[repr(transparent)]
struct Flags(u32);

// SAFETY: the request is _IOR('X', 125, uint32_t) on each of these file systems; the kernel reads
// this one integer, in spite of the direction.
unsafe impl IoctlArgument for Flags {
    const REQUEST: u32 = ioctl::request(READ, b'X', 125, size_of::<u32>());
}

/// Structures and numbers of this module, for `cargo xtask abi-check`.
pub const ABI: &[AbiItem] = &[AbiItem {
    header: "xfs/xfs.h",
    c_type: "",
    size: size_of::<Flags>(),
    fields: &[],
    requests: &[
        ("XFS_IOC_GOINGDOWN", Flags::REQUEST),
        ("XFS_FSOP_GOING_FLAGS_NOLOGFLUSH", NO_LOG_FLUSH),
    ],
}];

/// Shut the file system of `fd` down without flushing its log. Everything on it fails from then on;
/// it can only be unmounted.
///
/// # Errors
///
/// `EPERM` without `CAP_SYS_ADMIN`, `ENOTTY` where the file system has no such ioctl.
pub fn without_flush(fd: impl AsFd) -> io::Result<()> {
    ioctl::call(fd, &mut Flags(NO_LOG_FLUSH)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_is_that_of_the_header() {
        assert_eq!(Flags::REQUEST, 0x8004_587D);
    }

    #[test]
    fn what_is_no_file_system_of_a_disk_refuses() {
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        assert!(without_flush(&file).is_err());
    }
}
