//! `ioprio_set`: the priority of a thread's I/O (linux/ioprio.h, v6.1).

use std::io;

use crate::check;

/// `IOPRIO_CLASS_SHIFT`.
const CLASS_SHIFT: u32 = 13;
/// `IOPRIO_WHO_PROCESS`: despite the name, one thread.
const WHO_PROCESS: libc::c_long = 1;

/// A scheduling class, with the level where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoPriority {
    /// As the thread's CPU priority (`IOPRIO_CLASS_NONE`): the default of every thread.
    Default,
    /// `IOPRIO_CLASS_BE`: from 0, the most urgent, to 7.
    BestEffort(u8),
    /// `IOPRIO_CLASS_IDLE`: when nobody else wants the device.
    Idle,
}

impl IoPriority {
    const fn value(self) -> u32 {
        match self {
            Self::Default => 0,
            Self::BestEffort(level) => {
                2 << CLASS_SHIFT | (if level > 7 { 7 } else { level }) as u32
            }
            Self::Idle => 3 << CLASS_SHIFT,
        }
    }
}

/// Set the I/O priority of the calling thread. Its effect depends on the device's I/O scheduler; many
/// ignore it.
///
/// # Errors
///
/// The system call is not allowed.
pub fn set_for_this_thread(priority: IoPriority) -> io::Result<()> {
    // SAFETY: ioprio_set takes three integers and touches no memory; 0 means the calling thread.
    let result = unsafe {
        libc::syscall(
            libc::SYS_ioprio_set,
            WHO_PROCESS,
            0 as libc::c_long,
            libc::c_long::from(priority.value()),
        )
    };
    check(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_may_always_become_less_urgent() {
        for priority in [
            IoPriority::BestEffort(7),
            IoPriority::Idle,
            IoPriority::Default,
        ] {
            set_for_this_thread(priority).unwrap();
        }
    }
}
