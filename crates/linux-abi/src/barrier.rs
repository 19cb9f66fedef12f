//! Wait for all running RCU readers: membarrier(2).

use std::io;

use crate::check;

/// `MEMBARRIER_CMD_GLOBAL` (linux/membarrier.h, v6.1).
const GLOBAL: libc::c_long = 1;

/// Return when every RCU reader that runs now has ended (kernel/sched/membarrier.c, v6.1: the
/// command is `synchronize_rcu`). A BPF program of a tracepoint is one.
///
/// # Errors
///
/// `EINVAL` on kernels with `nohz_full` processors, `ENOSYS` without the call.
pub fn wait_for_readers() -> io::Result<()> {
    // SAFETY: membarrier takes three integers and touches no memory.
    check(unsafe { libc::syscall(libc::SYS_membarrier, GLOBAL, 0, 0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_returns() {
        if let Err(error) = wait_for_readers() {
            assert!(matches!(
                error.raw_os_error(),
                Some(libc::EINVAL | libc::ENOSYS)
            ));
        }
    }
}
