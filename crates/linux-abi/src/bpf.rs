//! Run-time statistics of BPF programs: bpf(2).

use std::{
    io,
    mem::{offset_of, size_of},
    os::fd::{FromRawFd, OwnedFd, RawFd},
    time::Duration,
};

use crate::abi::AbiItem;

/// `BPF_OBJ_GET_INFO_BY_FD` of `enum bpf_cmd` (linux/bpf.h, v6.1).
const OBJ_GET_INFO_BY_FD: libc::c_long = 15;

/// `struct bpf_prog_info`, as far as it was in Linux 6.1.
#[repr(C)]
struct ProgInfo {
    /// Names, sizes, and arrays that the kernel fills where it is told their length: it is 0.
    before: [u64; 24],
    run_time_ns: u64,
    run_cnt: u64,
    after: [u64; 3],
}

/// The part of `union bpf_attr` that the command reads.
#[repr(C)]
struct GetInfo {
    bpf_fd: u32,
    info_len: u32,
    info: u64,
}

const _: () = {
    assert!(size_of::<ProgInfo>() == 232);
    assert!(offset_of!(ProgInfo, run_time_ns) == 192);
    assert!(size_of::<GetInfo>() == 16);
};

/// Structures of this module, for `cargo xtask abi-check`.
pub const ABI: &[AbiItem] = &[AbiItem {
    header: "linux/bpf.h",
    c_type: "struct bpf_prog_info",
    size: size_of::<ProgInfo>(),
    fields: &[
        ("run_time_ns", offset_of!(ProgInfo, run_time_ns)),
        ("run_cnt", offset_of!(ProgInfo, run_cnt)),
        ("recursion_misses", offset_of!(ProgInfo, after)),
    ],
    requests: &[
        ("BPF_OBJ_GET_INFO_BY_FD", OBJ_GET_INFO_BY_FD as u32),
        ("BPF_ENABLE_STATS", ENABLE_STATS as u32),
        ("BPF_STATS_RUN_TIME", RUN_TIME),
    ],
}];

/// How often a program ran, and how long in all, while statistics were on ([`enable_run_time`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// Runs on all processors.
    pub count: u64,
    /// Their time.
    pub time: Duration,
}

/// The runs of the program that `program` is a descriptor of. One call; the same figures from /proc take three and a page of text.
///
/// # Errors
///
/// `EBADF` where it is no descriptor, `EINVAL` where it is none of a BPF object.
pub fn runs(program: RawFd) -> io::Result<Runs> {
    let mut info = ProgInfo {
        before: [0; 24],
        run_time_ns: 0,
        run_cnt: 0,
        after: [0; 3],
    };
    let attributes = GetInfo {
        bpf_fd: program as u32,
        info_len: size_of::<ProgInfo>() as u32,
        info: (&raw mut info) as u64,
    };
    // SAFETY: the kernel reads the attributes, reads `info`, in which no array has a length, and writes at most `info_len`
    // bytes there; both live for the call, and it keeps no pointer.
    let done = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            OBJ_GET_INFO_BY_FD,
            &raw const attributes,
            size_of::<GetInfo>(),
        )
    };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Runs {
        count: info.run_cnt,
        time: Duration::from_nanos(info.run_time_ns),
    })
}

/// `BPF_ENABLE_STATS` of `enum bpf_cmd`, and `BPF_STATS_RUN_TIME` of `enum bpf_stats_type`
/// (linux/bpf.h, v6.1).
const ENABLE_STATS: libc::c_long = 32;
const RUN_TIME: u32 = 0;

/// The part of `union bpf_attr` that the command reads.
#[repr(C)]
struct EnableStats {
    kind: u32,
}

/// Let the kernel count the runs of all BPF programs and their time, as long as the descriptor is
/// open. Each run then takes two more readings of the clock.
///
/// # Errors
///
/// `EPERM` without `CAP_SYS_ADMIN`, `EINVAL` before Linux 5.8.
pub fn enable_run_time() -> io::Result<OwnedFd> {
    let attributes = EnableStats { kind: RUN_TIME };
    // SAFETY: the kernel reads as many bytes as it is told, and they are there; it keeps no pointer.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            ENABLE_STATS,
            &raw const attributes,
            size_of::<EnableStats>(),
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened it for us; descriptors are small integers.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_program_has_no_runs() {
        let file = tempfile::tempfile().unwrap();
        // EPERM where bpf(2) is not allowed at all.
        for fd in [-1, std::os::fd::AsRawFd::as_raw_fd(&file)] {
            assert!(runs(fd).is_err(), "{fd}");
        }
    }

    #[test]
    fn only_an_administrator_may() {
        match enable_run_time() {
            Ok(_) => {}
            Err(error) => assert!(
                matches!(
                    error.raw_os_error(),
                    Some(libc::EPERM | libc::EINVAL | libc::ENOSYS)
                ),
                "{error}"
            ),
        }
    }
}
