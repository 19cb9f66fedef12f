//! `BTRFS_IOC_START_SYNC`: begin to commit the running transaction (linux/btrfs.h, v6.1).

use std::{io, mem::size_of, os::fd::AsFd};

use crate::{abi::AbiItem, ioctl};

/// The number of the transaction, which the kernel writes.
#[repr(C)]
struct StartSync {
    transaction: u64,
}

// SAFETY: BTRFS_IOC_START_SYNC is _IOR(0x94, 24, __u64); the kernel writes these 8 bytes.
unsafe impl ioctl::IoctlArgument for StartSync {
    const REQUEST: u32 = ioctl::request(ioctl::READ, super::MAGIC, 24, size_of::<StartSync>());
}

/// Structures and numbers of this module, for `cargo xtask abi-check`.
pub(crate) const ABI: &[AbiItem] = &[AbiItem {
    header: "linux/btrfs.h",
    c_type: "__u64",
    size: size_of::<StartSync>(),
    fields: &[],
    requests: &[(
        "BTRFS_IOC_START_SYNC",
        <StartSync as ioctl::IoctlArgument>::REQUEST,
    )],
}];

/// Begin to commit the running transaction of the file system that `fd` is on, if there is one, and return its number; else
/// that of the last one. File data that is only in memory is not written for it (but with the mount option
/// `flushoncommit`). The call returns once the changes of reference counts that wait are in the trees, and the kernel's
/// own thread does the rest.
///
/// # Errors
///
/// `EROFS`, or that of a transaction that was aborted; `ENOTTY` where it is not Btrfs.
pub fn start_commit(fd: impl AsFd) -> io::Result<u64> {
    let mut argument = StartSync { transaction: 0 };
    ioctl::call(fd, &mut argument)?;
    Ok(argument.transaction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_file_system_has_no_transactions() {
        assert!(start_commit(tempfile::tempfile().unwrap()).is_err());
    }
}
