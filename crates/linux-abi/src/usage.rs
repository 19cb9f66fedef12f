//! `wait4`: exit status and resource usage of a child (sys/resource.h, glibc 2.36; kernel/exit.c, v6.1).
//!
//! The peak that the kernel reports for a child includes the memory of the process that started it,
//! up to `execve` (fs/exec.c, `exec_mmap`): a large parent is measured in place of a small child.

use std::{
    io,
    mem::MaybeUninit,
    os::unix::process::ExitStatusExt,
    process::{Child, ExitStatus},
    time::Duration,
};

use units::Bytes;

/// Resources that a child used, with the children that it waited for.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// Peak of the resident memory of the largest of these processes (`ru_maxrss`).
    pub max_resident: Bytes,
    /// Processor time in user mode (`ru_utime`).
    pub user: Duration,
    /// Processor time in the kernel on its behalf (`ru_stime`).
    pub system: Duration,
}

/// Wait until `child` has ended.
///
/// # Errors
///
/// `ECHILD` where somebody else has waited for it already.
pub fn wait(child: Child) -> io::Result<(ExitStatus, Usage)> {
    let pid = child.id() as libc::pid_t;
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    loop {
        // SAFETY: both pointers are to live, writable memory of the types that wait4 fills; the
        // child is ours and not yet waited for, since we own `child`.
        let ended = unsafe { libc::wait4(pid, &raw mut status, 0, usage.as_mut_ptr()) };
        if ended == pid {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    // SAFETY: it was zeroed, which is a valid rusage, and wait4 has filled it.
    let usage = unsafe { usage.assume_init() };
    let usage = Usage {
        max_resident: Bytes::kib(usage.ru_maxrss.unsigned_abs()),
        user: duration(usage.ru_utime),
        system: duration(usage.ru_stime),
    };
    Ok((ExitStatus::from_raw(status), usage))
}

fn duration(time: libc::timeval) -> Duration {
    Duration::from_secs(time.tv_sec.unsigned_abs())
        + Duration::from_micros(time.tv_usec.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_child_that_used_memory_shows_it() {
        let child = Command::new("sh")
            .args([
                "-c",
                "x=$(head -c 30000000 /dev/zero | tr '\\0' x); exit ${#x}",
            ])
            .spawn()
            .unwrap();
        let (status, usage) = wait(child).unwrap();
        assert_eq!(status.code(), Some(30_000_000 & 0xFF));
        assert!(usage.max_resident > Bytes::mib(28), "{usage:?}");
        assert!(usage.max_resident < Bytes::gib(1), "{usage:?}");
        assert!(usage.user + usage.system > Duration::ZERO);
    }

    #[test]
    fn a_signal_is_told_from_an_exit() {
        let child = Command::new("sh")
            .args(["-c", "kill -9 $$"])
            .spawn()
            .unwrap();
        let (status, _) = wait(child).unwrap();
        assert_eq!((status.code(), status.signal()), (None, Some(9)));
    }
}
