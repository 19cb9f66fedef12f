//! Run-time statistics of BPF programs: bpf(2).

use std::{
    io,
    mem::size_of,
    os::fd::{FromRawFd, OwnedFd},
};

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
