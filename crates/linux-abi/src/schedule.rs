//! `sched_setscheduler`: the scheduling policy of a thread (linux/sched.h, v6.1), and whether a session is this process's own.

use std::io;

use crate::check;

/// Let the calling thread run only while no other thread wants its processor (`SCHED_IDLE`): a thread
/// that wakes up takes its place at once.
///
/// # Errors
///
/// The system call is not allowed.
pub fn become_idle() -> io::Result<()> {
    set(libc::SCHED_IDLE)
}

/// Let it run as others do again (`SCHED_OTHER`).
///
/// # Errors
///
/// The system call is not allowed: it takes `CAP_SYS_NICE`, or `RLIMIT_NICE` for the thread's nice value.
pub fn become_usual() -> io::Result<()> {
    set(libc::SCHED_OTHER)
}

/// Whether this process began the session that it is in (setsid(2)).
///
/// The session of a process in a container may have begun outside: its number there is 0 (`pid_nr_ns`, kernel/pid.c, v6.1),
/// which is no process.
#[must_use]
pub fn leads_its_session() -> bool {
    // SAFETY: it takes no memory; 0 means the calling process.
    let session = unsafe { libc::getsid(0) };
    u32::try_from(session) == Ok(std::process::id())
}

fn set(policy: libc::c_int) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the structure is read and not kept; 0 means the calling thread.
    check(unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_may_always_become_idle() {
        std::thread::spawn(|| become_idle().unwrap())
            .join()
            .unwrap();
    }
}
