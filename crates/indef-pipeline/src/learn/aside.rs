//! Work beside others: on a thread that runs only where nobody else wants its processor.
//!
//! A nice value is not enough for that: a thread with one that has begun to run keeps the processor for a slice of it (0.7 to
//! 3 ms, kernel/sched/fair.c, v6.12), whoever wakes up meanwhile. One of the policy `SCHED_IDLE` gives way at once.
//!
//! Both count only among the threads of one scheduling group. Where the kernel makes a group of each session
//! (`sched_autogroup_enabled`, sched(7)), a service has one of its own, which has as much weight as that of an application,
//! whatever is nice in it. So the group itself gets the least weight meanwhile. Moves are not made that way: an application
//! may wait for a lock that a step holds, and would wait for all others, too.

use std::{fs, io, panic::resume_unwind, thread};

use linux_abi::schedule::{become_idle, become_usual, leads_its_session};

/// The nice value of the group of this process's session: it can be read and written (sched(7)).
const GROUP: &str = "/proc/self/autogroup";
/// The least weight.
const LAST: i32 = 19;

/// Do `work` on a thread of its own, beside others.
///
/// # Errors
///
/// There can be no further thread.
pub(crate) fn aside<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let group = LastGroup::enter();
    let done = thread::scope(|scope| {
        let thread = thread::Builder::new().name("aside".to_owned());
        let thread = thread.spawn_scoped(scope, || {
            if let Err(error) = become_idle() {
                tracing::debug!(%error, "SCHED_IDLE is not allowed");
            }
            work()
        })?;
        Ok(thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
    });
    drop(group);
    done
}

/// Run as others do from now on: somebody waits for the end, and shall not wait for all others.
pub(crate) fn hurry() {
    if let Err(error) = become_usual() {
        tracing::debug!(%error, "SCHED_IDLE cannot be left");
    }
}

/// The group of this session, as long as it has the least weight.
struct LastGroup {
    before: i32,
}

impl LastGroup {
    /// `None` where sessions have no groups, or this process is in the session of others, like a shell.
    fn enter() -> Option<Self> {
        if !leads_its_session() {
            return None;
        }
        let before = nice_of(&fs::read_to_string(GROUP).ok()?)?;
        fs::write(GROUP, LAST.to_string()).ok()?;
        Some(Self { before })
    }
}

impl Drop for LastGroup {
    fn drop(&mut self) {
        if let Err(error) = fs::write(GROUP, self.before.to_string()) {
            tracing::debug!(%error, "the session's group keeps its nice value");
        }
    }
}

/// `/autogroup-25 nice 0`.
fn nice_of(text: &str) -> Option<i32> {
    let (_, nice) = text.trim_end().rsplit_once(" nice ")?;
    nice.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The policy of a thread: field 41 of proc_pid_stat(5), where 5 is `SCHED_IDLE`.
    fn policy() -> String {
        let stat = fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, behind_name) = stat.rsplit_once(") ").unwrap();
        behind_name.split(' ').nth(41 - 3).unwrap().to_owned()
    }

    #[test]
    fn it_runs_where_nobody_else_wants_to() {
        let before = policy();
        let threads_too = || thread::spawn(policy).join().unwrap();
        assert_eq!(
            aside(|| (policy(), threads_too())).unwrap(),
            ("5".into(), "5".into())
        );
        assert_eq!(policy(), before);
        // Root of a container may not leave the policy, and others not without RLIMIT_NICE.
        let may_leave = aside(|| become_usual().is_ok()).unwrap();
        let hurried = aside(|| {
            hurry();
            policy()
        });
        assert_eq!(hurried.unwrap(), if may_leave { "0" } else { "5" });
        let panics = std::panic::catch_unwind(|| aside::<()>(|| panic!("as it was told")));
        assert!(panics.is_err());
    }

    #[test]
    fn the_nice_value_of_a_group_is_understood() {
        assert_eq!(nice_of("/autogroup-25 nice 0\n"), Some(0));
        assert_eq!(nice_of("/autogroup-3 nice -7\n"), Some(-7));
        assert_eq!(nice_of(""), None);
    }

    /// The name of the next test, for a process in which it shall see a session from outside.
    const SELF: &str = "learn::aside::tests::a_session_from_outside_is_that_of_others";
    const INSIDE: &str = "INDEF_TEST_INSIDE";

    #[test]
    fn a_session_from_outside_is_that_of_others() {
        if std::env::var_os(INSIDE).is_some() {
            assert!(LastGroup::enter().is_none());
            return;
        }
        // As in a container: the number of the session that this process is in does not exist there.
        let inside = std::process::Command::new("unshare")
            .args(["--map-root-user", "--pid", "--fork"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", SELF])
            .env(INSIDE, "1")
            .output();
        let inside = match inside {
            Ok(inside) => inside,
            Err(error) => return scratch_fs::skip(&format!("no unshare: {error}")),
        };
        let told = String::from_utf8_lossy(&inside.stdout);
        if told.is_empty() && !inside.status.success() {
            let why = String::from_utf8_lossy(&inside.stderr);
            return scratch_fs::skip(&format!("no namespace of processes: {why}"));
        }
        assert!(told.contains("1 passed"), "{told}");
    }
}
