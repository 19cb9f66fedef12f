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

/// The runs of a program, on all processors, while statistics were on ([`enable_run_time`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// Their time, with one of the two readings of the clock that each of them takes more.
    pub time: Duration,
    /// Their number.
    pub count: u64,
}

/// The runs of the program that `program` is a descriptor of. One call; from /proc that takes three and a page of text.
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
    // SAFETY: in `info` no array has a length; the kernel writes at most `info_len` bytes there, and it lives for the call.
    unsafe { call(OBJ_GET_INFO_BY_FD, &attributes) }?;
    Ok(Runs {
        time: Duration::from_nanos(info.run_time_ns),
        count: info.run_cnt,
    })
}

/// bpf(2) with the part of `union bpf_attr` that a command reads. Returns what the kernel does.
///
/// # Safety
///
/// The attributes are those of the command, and what they point to is as it wants it, for as long as the call takes.
unsafe fn call<T>(command: libc::c_long, attributes: &T) -> io::Result<libc::c_long> {
    // SAFETY: the kernel reads as many bytes as it is told, and they are there; the rest is the caller's.
    let done = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_ref(attributes),
            size_of::<T>(),
        )
    };
    match done {
        0.. => Ok(done),
        _ => Err(io::Error::last_os_error()),
    }
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
    // SAFETY: these are the command's attributes, without a pointer.
    let fd = unsafe { call(ENABLE_STATS, &attributes) }?;
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
