//! `sched_setscheduler`: the scheduling policy of a thread (linux/sched.h, v6.1).

use std::io;

use crate::check;

/// Let the calling thread run only while no other thread wants its processor (`SCHED_IDLE`): a thread
/// that wakes up takes its place at once.
///
/// # Errors
///
/// The system call is not allowed.
pub fn become_idle() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the structure is read and not kept; 0 means the calling thread.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) })
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
