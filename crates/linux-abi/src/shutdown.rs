//! `XFS_IOC_GOINGDOWN`, `EXT4_IOC_SHUTDOWN`, `F2FS_IOC_SHUTDOWN`: stop a file system as a power cut
//! would (xfs/xfs_fs.h, v6.1; `FS_IOC_SHUTDOWN` of linux/fs.h, v7.0).

use std::{io, mem::size_of, os::fd::AsFd};

use crate::ioctl::{self, IoctlArgument, READ};

/// Neither data nor journal is written any more.
const NO_LOG_FLUSH: u32 = 2;

#[repr(transparent)]
struct How(u32);

// SAFETY: the request is _IOR('X', 125, __u32); the kernel reads these 4 bytes.
unsafe impl IoctlArgument for How {
    const REQUEST: u32 = ioctl::request(READ, b'X', 125, size_of::<Self>());
}

/// Cut the file system of an open file off from its device: from now on every call on it fails. For
/// experiments; what is on the device is what a power cut leaves if the device's cache is durable.
///
/// # Errors
///
/// `EPERM` without `CAP_SYS_ADMIN`, `ENOTTY` where the file system cannot.
pub fn cut(fd: impl AsFd) -> io::Result<()> {
    ioctl::call(fd, &mut How(NO_LOG_FLUSH)).map(drop)
}
