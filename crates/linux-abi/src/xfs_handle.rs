//! XFS: open a file so that changes through it leave its times alone (xfs/xfs_fs.h, v6.1).
//!
//! A file that `XFS_IOC_OPEN_BY_HANDLE` opened has the kernel's "no change and modification time
//! update" mode (fs/xfs/xfs_handle.c, v6.12), which exists for backup and defragmentation programs.

use std::{
    io,
    mem::{offset_of, size_of},
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
    ptr,
};

use crate::{
    abi::AbiItem,
    ioctl::{self, IoctlArgument, READ, WRITE},
};

/// `struct xfs_handle`: which file system, and which inode of it; opaque.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Handle([u64; 3]);

/// `struct xfs_fsop_handlereq`.
#[repr(C)]
struct RawRequest {
    fd: u32,
    path: *const u8,
    open_flags: u32,
    handle_in: *const Handle,
    handle_in_length: u32,
    handle_out: *mut Handle,
    handle_out_length: *mut u32,
}

const _: () = {
    assert!(size_of::<Handle>() == 24);
    assert!(size_of::<RawRequest>() == 56);
    assert!(offset_of!(RawRequest, handle_in) == 24);
    assert!(offset_of!(RawRequest, handle_out_length) == 48);
};

impl RawRequest {
    const EMPTY: Self = Self {
        fd: 0,
        path: ptr::null(),
        open_flags: 0,
        handle_in: ptr::null(),
        handle_in_length: 0,
        handle_out: ptr::null_mut(),
        handle_out_length: ptr::null_mut(),
    };
}

/// Only built by [`handle`], which keeps what it points at alive for the call.
#[expect(dead_code, reason = "only the kernel reads it")]
struct FdToHandle(RawRequest);

// SAFETY: XFS_IOC_FD_TO_HANDLE is _IOWR('X', 106, struct xfs_fsop_handlereq). It writes 24 bytes to
// `handle_out` and 4 to `handle_out_length`, which the only constructor makes valid.
unsafe impl IoctlArgument for FdToHandle {
    const REQUEST: u32 = ioctl::request(READ | WRITE, b'X', 106, size_of::<RawRequest>());
}

/// Only built by [`open_unnoticed`], which keeps what it points at alive for the call.
#[expect(dead_code, reason = "only the kernel reads it")]
struct OpenByHandle(RawRequest);

// SAFETY: XFS_IOC_OPEN_BY_HANDLE is _IOWR('X', 107, struct xfs_fsop_handlereq). It reads
// `handle_in_length` bytes at `handle_in`, which the only constructor makes valid.
unsafe impl IoctlArgument for OpenByHandle {
    const REQUEST: u32 = ioctl::request(READ | WRITE, b'X', 107, size_of::<RawRequest>());
}

/// Structures and numbers of this module, for `cargo xtask abi-check`.
pub const ABI: &[AbiItem] = &[AbiItem {
    header: "xfs/xfs.h",
    c_type: "struct xfs_fsop_handlereq",
    size: size_of::<RawRequest>(),
    fields: &[
        ("ihandle", offset_of!(RawRequest, handle_in)),
        ("ohandlen", offset_of!(RawRequest, handle_out_length)),
    ],
    requests: &[
        ("XFS_IOC_FD_TO_HANDLE", FdToHandle::REQUEST),
        ("XFS_IOC_OPEN_BY_HANDLE", OpenByHandle::REQUEST),
    ],
}];

fn handle(file: impl AsFd) -> io::Result<Handle> {
    let mut handle = Handle::default();
    let mut length = 0;
    let mut request = FdToHandle(RawRequest {
        fd: file.as_fd().as_raw_fd() as u32,
        handle_out: &raw mut handle,
        handle_out_length: &raw mut length,
        ..RawRequest::EMPTY
    });
    ioctl::call(file, &mut request)?;
    if length as usize == size_of::<Handle>() {
        Ok(handle)
    } else {
        Err(io::ErrorKind::InvalidData.into())
    }
}

/// Open `file` once more, for reading and writing, so that its times stay as they are whatever changes
/// are made through it. `directory` is any directory of the same file system *and* mount; the caller checks
/// that it got the same inode.
///
/// # Errors
///
/// `EPERM` without `CAP_SYS_ADMIN`.
pub fn open_unnoticed(file: impl AsFd, directory: impl AsFd) -> io::Result<OwnedFd> {
    let handle = handle(file)?;
    let mut request = OpenByHandle(RawRequest {
        open_flags: (libc::O_RDWR | libc::O_CLOEXEC) as u32,
        handle_in: &raw const handle,
        handle_in_length: size_of::<Handle>() as u32,
        ..RawRequest::EMPTY
    });
    let fd = ioctl::call(directory, &mut request)? as i32;
    // SAFETY: the kernel has just opened this descriptor for us; nobody else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // The kernel ignores O_CLOEXEC in this request.
    rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC)?;
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_those_of_the_header() {
        assert_eq!(FdToHandle::REQUEST, 0xC038_586A);
        assert_eq!(OpenByHandle::REQUEST, 0xC038_586B);
    }
}
