//! `FS_IOC_GETFSUUID`: which file system this is, across reboots (linux/fs.h, v6.9).

use std::{io, mem::size_of, os::fd::AsFd};

use crate::ioctl::{self, IoctlArgument, READ};

/// `struct fsuuid2`.
#[repr(C)]
struct Raw {
    len: u8,
    uuid: [u8; 16],
}

const _: () = assert!(size_of::<Raw>() == 17);

// SAFETY: FS_IOC_GETFSUUID is _IOR(0x15, 0, struct fsuuid2), 17 bytes without pointers. (Headers
// before v6.9 do not have it, so abi-check cannot hold it against them.)
unsafe impl IoctlArgument for Raw {
    const REQUEST: u32 = ioctl::request(READ, 0x15, 0, size_of::<Self>());
}

/// The UUID of the file system of an open file or folder.
///
/// # Errors
///
/// `ENOTTY` before Linux 6.9, and where a file system has none.
pub fn of(fd: impl AsFd) -> io::Result<[u8; 16]> {
    let mut raw = Raw {
        len: 0,
        uuid: [0; 16],
    };
    ioctl::call(fd, &mut raw)?;
    Ok(raw.uuid)
}
