//! Open a file by its identity instead of by a name: open_by_handle_at(2).
//!
//! A handle is made of the inode number and its generation, in the way of each file system
//! (include/linux/exportfs.h, v6.1), so one can be built from a trace.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
};

use crate::check;

/// `struct file_handle` with room for the longest kind used here (asm-generic/fcntl.h, v6.1).
#[repr(C)]
struct RawHandle {
    handle_bytes: u32,
    handle_type: i32,
    f_handle: [u8; 24],
}

const _: () = {
    assert!(std::mem::size_of::<RawHandle>() == 32);
    assert!(std::mem::offset_of!(RawHandle, f_handle) == 8);
};

/// The identity by which the kernel finds a file without a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileHandle {
    /// `FILEID_INO32_GEN`: ext4, F2FS and most others.
    Inode32 {
        /// Inode number.
        inode: u32,
        /// Its generation.
        generation: u32,
    },
    /// `FILEID_INO32_GEN` with the flag of XFS for 64-bit numbers (fs/xfs/xfs_export.h, v6.1).
    Xfs64 {
        /// Inode number.
        inode: u64,
        /// Its generation.
        generation: u32,
    },
    /// `FILEID_BTRFS_WITHOUT_PARENT` (fs/btrfs/export.h, v6.1).
    Btrfs {
        /// Inode number.
        inode: u64,
        /// The tree of its subvolume.
        subvolume: u64,
        /// Its generation.
        generation: u32,
    },
}

impl FileHandle {
    fn raw(self) -> RawHandle {
        let mut f_handle = [0; 24];
        let mut used = 0;
        let mut push = |bytes: &[u8]| {
            f_handle[used..used + bytes.len()].copy_from_slice(bytes);
            used += bytes.len();
        };
        let handle_type = match self {
            Self::Inode32 { inode, generation } => {
                push(&inode.to_ne_bytes());
                push(&generation.to_ne_bytes());
                1
            }
            Self::Xfs64 { inode, generation } => {
                push(&inode.to_ne_bytes());
                push(&generation.to_ne_bytes());
                0x81
            }
            Self::Btrfs {
                inode,
                subvolume,
                generation,
            } => {
                push(&inode.to_ne_bytes());
                push(&subvolume.to_ne_bytes());
                push(&generation.to_ne_bytes());
                0x4d
            }
        };
        RawHandle {
            handle_bytes: used as u32,
            handle_type,
            f_handle,
        }
    }
}

/// Get the handle of an open file.
///
/// # Errors
///
/// `EOPNOTSUPP` if the file system has no handles, or has a kind that is unknown here.
pub fn of(file: impl AsFd) -> io::Result<FileHandle> {
    let mut raw = RawHandle {
        handle_bytes: 24,
        handle_type: 0,
        f_handle: [0; 24],
    };
    let mut mount_id = 0_i32;
    // SAFETY: the path is a constant that ends with a NUL; the kernel writes the header and at most
    // `handle_bytes` bytes after it, all inside of `raw`, and an int. Both outlive the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            file.as_fd().as_raw_fd(),
            c"".as_ptr(),
            &raw mut raw,
            &raw mut mount_id,
            libc::AT_EMPTY_PATH,
        )
    };
    check(result)?;
    let word = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|i| raw.f_handle[at + i]));
    let long =
        |at: usize| u64::from_ne_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|i| raw.f_handle[at + i]));
    match (raw.handle_type, raw.handle_bytes) {
        (1, 8..) => Ok(FileHandle::Inode32 {
            inode: word(0),
            generation: word(4),
        }),
        (0x81, 12..) => Ok(FileHandle::Xfs64 {
            inode: long(0),
            generation: word(8),
        }),
        (0x4d, 20..) => Ok(FileHandle::Btrfs {
            inode: long(0),
            subvolume: long(8),
            generation: word(16),
        }),
        _ => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
    }
}

/// Open the file (`O_PATH`: to examine, not to read) on the file system that `mount` lies on.
///
/// # Errors
///
/// `ESTALE` where the file is gone, `EPERM` without `CAP_DAC_READ_SEARCH`, `EOPNOTSUPP` where the
/// file system has no handles.
pub fn open(mount: impl AsFd, handle: FileHandle) -> io::Result<OwnedFd> {
    open_with(mount, handle, libc::O_PATH)
}

/// The same, to read the file. Neither its access time changes, nor is a lease on it waited for.
///
/// # Errors
///
/// As [`open`]; `EAGAIN` where somebody has a lease.
pub fn open_to_read(mount: impl AsFd, handle: FileHandle) -> io::Result<OwnedFd> {
    let flags = libc::O_RDONLY | libc::O_NOATIME | libc::O_NONBLOCK | libc::O_NOCTTY;
    open_with(mount, handle, flags)
}

fn open_with(mount: impl AsFd, handle: FileHandle, flags: libc::c_int) -> io::Result<OwnedFd> {
    let mut raw = handle.raw();
    // SAFETY: the kernel reads `handle_bytes` (at most 24) bytes after the two header fields, all
    // inside of `raw`, which outlives the call.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_open_by_handle_at,
            mount.as_fd().as_raw_fd(),
            &raw mut raw,
            flags | libc::O_CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just returned this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_have_the_lengths_of_their_kinds() {
        let ext4 = FileHandle::Inode32 {
            inode: 0x0102_0304,
            generation: 5,
        };
        assert_eq!((ext4.raw().handle_bytes, ext4.raw().handle_type), (8, 1));
        assert_eq!(ext4.raw().f_handle[..4], 0x0102_0304_u32.to_ne_bytes());
        let xfs = FileHandle::Xfs64 {
            inode: 1 << 40,
            generation: 5,
        };
        assert_eq!((xfs.raw().handle_bytes, xfs.raw().handle_type), (12, 0x81));
        let btrfs = FileHandle::Btrfs {
            inode: 257,
            subvolume: 256,
            generation: 5,
        };
        assert_eq!(
            (btrfs.raw().handle_bytes, btrfs.raw().handle_type),
            (20, 0x4d)
        );
    }
}
