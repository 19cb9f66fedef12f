//! `BTRFS_IOC_BALANCE_V2`: have the kernel empty a chunk (linux/btrfs.h, v6.1).

use std::{
    io,
    mem::{offset_of, size_of},
    os::fd::AsFd,
};

use crate::{abi::AbiItem, ioctl};

/// `BTRFS_BALANCE_DATA`: chunks of data take part.
const DATA: u64 = 1;
/// `BTRFS_BALANCE_TYPE_MASK`: with those of system and metadata.
const KINDS: u64 = 7;
/// `BTRFS_BALANCE_ARGS_VRANGE`: of these those that have an address in `vstart..vend`.
const VRANGE: u64 = 1 << 4;
/// `BTRFS_BALANCE_STATE_RUNNING`.
const RUNNING: u64 = 1;
/// `BTRFS_BALANCE_CTL_CANCEL`.
const CANCEL: libc::c_int = 2;

/// `struct btrfs_balance_args` (packed).
#[repr(C, packed)]
#[derive(Clone, Copy, Default)]
struct Filter {
    profiles: u64,
    usage: u64,
    devid: u64,
    pstart: u64,
    pend: u64,
    vstart: u64,
    vend: u64,
    target: u64,
    flags: u64,
    limit: u64,
    stripes_min: u32,
    stripes_max: u32,
    unused: [u64; 6],
}

/// `struct btrfs_ioctl_balance_args`, with `struct btrfs_balance_progress` in it.
#[repr(C)]
struct Balance {
    flags: u64,
    state: u64,
    data: Filter,
    meta: Filter,
    sys: Filter,
    expected: u64,
    considered: u64,
    completed: u64,
    unused: [u64; 72],
}

impl Filter {
    /// What it chooses chunks by, as far as this module has it.
    fn range(&self) -> (u64, u64, u64) {
        (self.flags, self.vstart, self.vend)
    }
}

impl Balance {
    /// Of the chunk of data at this address.
    fn of_chunk(start: u64) -> Self {
        Self {
            flags: DATA,
            state: 0,
            data: Filter {
                vstart: start,
                vend: start.saturating_add(1),
                flags: VRANGE,
                ..Filter::default()
            },
            meta: Filter::default(),
            sys: Filter::default(),
            expected: 0,
            considered: 0,
            completed: 0,
            unused: [0; 72],
        }
    }
}

// SAFETY: BTRFS_IOC_BALANCE_V2 is _IOWR(0x94, 32, struct btrfs_ioctl_balance_args); the kernel reads and writes these
// 1024 bytes, all of which are integers.
unsafe impl ioctl::IoctlArgument for Balance {
    const REQUEST: u32 = ioctl::request(
        ioctl::READ | ioctl::WRITE,
        super::MAGIC,
        32,
        size_of::<Balance>(),
    );
}

/// The same, told of a balance that is there.
#[repr(transparent)]
struct Progress(Balance);

// SAFETY: BTRFS_IOC_BALANCE_PROGRESS is _IOR(0x94, 34, struct btrfs_ioctl_balance_args); the kernel writes these 1024 bytes,
// all of which are integers.
unsafe impl ioctl::IoctlArgument for Progress {
    const REQUEST: u32 = ioctl::request(ioctl::READ, super::MAGIC, 34, size_of::<Balance>());
}

struct BalanceControl;

// SAFETY: BTRFS_IOC_BALANCE_CTL is _IOW(0x94, 33, int), and takes the number itself (fs/btrfs/ioctl.c,
// `btrfs_ioctl_balance_ctl`, v6.1).
unsafe impl ioctl::IoctlNumber for BalanceControl {
    const REQUEST: u32 = ioctl::request(ioctl::WRITE, super::MAGIC, 33, size_of::<libc::c_int>());
}

const _: () = {
    assert!(size_of::<Filter>() == 136);
    assert!(size_of::<Balance>() == 1024);
    assert!(offset_of!(Balance, data) == 16);
    assert!(offset_of!(Balance, expected) == 424);
};

/// Structures and numbers of this module, for `cargo xtask abi-check`.
pub(crate) const ABI: &[AbiItem] = &[
    AbiItem {
        header: "linux/btrfs.h",
        c_type: "struct btrfs_balance_args",
        size: size_of::<Filter>(),
        fields: &[
            ("vstart", offset_of!(Filter, vstart)),
            ("vend", offset_of!(Filter, vend)),
            ("flags", offset_of!(Filter, flags)),
        ],
        requests: &[("BTRFS_BALANCE_ARGS_VRANGE", VRANGE as u32)],
    },
    AbiItem {
        header: "linux/btrfs.h",
        c_type: "struct btrfs_ioctl_balance_args",
        size: size_of::<Balance>(),
        fields: &[
            ("flags", offset_of!(Balance, flags)),
            ("data", offset_of!(Balance, data)),
            ("stat", offset_of!(Balance, expected)),
        ],
        requests: &[
            (
                "BTRFS_IOC_BALANCE_V2",
                <Balance as ioctl::IoctlArgument>::REQUEST,
            ),
            (
                "BTRFS_IOC_BALANCE_PROGRESS",
                <Progress as ioctl::IoctlArgument>::REQUEST,
            ),
            ("BTRFS_BALANCE_CTL_CANCEL", CANCEL as u32),
            ("BTRFS_BALANCE_STATE_RUNNING", RUNNING as u32),
            ("BTRFS_BALANCE_DATA", DATA as u32),
        ],
    },
    AbiItem {
        header: "linux/btrfs.h",
        c_type: "int",
        size: size_of::<libc::c_int>(),
        fields: &[],
        requests: &[(
            "BTRFS_IOC_BALANCE_CTL",
            <BalanceControl as ioctl::IoctlNumber>::REQUEST,
        )],
    },
];

/// Move all data of the chunk of data at this address elsewhere, and give the chunk up. Extents stay whole, and shared.
/// Returns when that is done, or is cancelled; `false` where there was no such chunk.
///
/// # Errors
///
/// `EPERM` without `CAP_SYS_ADMIN`; `EINPROGRESS` while another such operation is under way on the file system, or
/// is paused; `ECANCELED`; `ENOSPC` where there is no place for an extent; `EROFS`; `EINVAL` where chunks have
/// data and metadata; `ETXTBSY` with a swap file in it.
pub fn empty_data_chunk(file: impl AsFd, start: u64) -> io::Result<bool> {
    let mut balance = Box::new(Balance::of_chunk(start));
    ioctl::call(file, &mut *balance)?;
    Ok(balance.completed > 0)
}

/// Whether what [`empty_data_chunk`] did with this chunk is paused, on which the kernel would go on, and does no other such
/// operation meanwhile.
///
/// # Errors
///
/// `EPERM` without `CAP_SYS_ADMIN`.
pub fn is_paused_at(file: impl AsFd, start: u64) -> io::Result<bool> {
    let mut told = Box::new(Progress(Balance::of_chunk(0)));
    match ioctl::call(file, &mut *told) {
        Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => return Ok(false),
        called => called?,
    };
    let (balance, wanted) = (told.0, Balance::of_chunk(start));
    let is_ours = balance.flags & KINDS == DATA && balance.data.range() == wanted.data.range();
    Ok(is_ours && balance.state & RUNNING == 0)
}

/// Cancel what [`empty_data_chunk`], or any other balance, does on this file system; returns when it has ended.
///
/// # Errors
///
/// `ENOTCONN` where there is none.
pub fn cancel_balance(file: impl AsFd) -> io::Result<()> {
    ioctl::call_number::<BalanceControl>(file, CANCEL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_file_system_has_no_chunks() {
        let file = tempfile::tempfile().unwrap();
        assert!(empty_data_chunk(&file, 0).is_err() && cancel_balance(&file).is_err());
        assert!(is_paused_at(&file, 0).is_err());
    }
}
