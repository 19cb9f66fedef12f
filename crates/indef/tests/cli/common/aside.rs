//! A process that traces while all others go first.

use std::{fs, thread, time::Duration};

/// `SCHED_IDLE` (linux/sched.h, v6.1).
const IDLE: u32 = 5;

/// Its threads, and the group of its session.
#[derive(Debug)]
pub(crate) struct Aside {
    threads: Vec<Thread>,
    /// None where the kernel makes no such groups.
    group: Option<String>,
}

/// Name, nice value and policy (proc_pid_stat(5), fields 2, 19 and 41).
#[derive(Debug)]
struct Thread {
    name: String,
    nice: i32,
    policy: u32,
}

impl Aside {
    /// What there is of a process now.
    pub(crate) fn of(pid: u32) -> Self {
        Self {
            threads: threads(pid),
            group: fs::read_to_string(format!("/proc/{pid}/autogroup")).ok(),
        }
    }

    /// Wait until a process traces, for a minute.
    pub(crate) fn wait_for(pid: u32) -> Self {
        let mut found = Self::of(pid);
        for _ in 0..1200 {
            if found.traces() {
                break;
            }
            thread::sleep(Duration::from_millis(50));
            found = Self::of(pid);
        }
        found
    }

    /// Whether it has the thread that traces.
    pub(crate) fn traces(&self) -> bool {
        self.threads
            .iter()
            .any(|thread| thread.name == "aside" && thread.policy == IDLE)
    }

    #[track_caller]
    pub(crate) fn assert_gives_way(&self) {
        let policy = |name: &str| {
            let thread = self.threads.iter().find(|thread| thread.name == name);
            thread.map(|thread| (thread.nice, thread.policy))
        };
        assert_eq!(policy("aside"), Some((19, IDLE)), "{self:?}");
        assert_eq!(policy("indef"), Some((19, 0)), "{self:?}");
        if let Some(group) = &self.group {
            assert!(group.trim_end().ends_with(" nice 19"), "{group}");
        }
    }
}

fn threads(pid: u32) -> Vec<Thread> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let stats = tasks.map_while(|task| fs::read_to_string(task.ok()?.path().join("stat")).ok());
    stats
        .map(|stat| {
            let (name, fields) = stat.rsplit_once(") ").unwrap();
            let fields: Vec<&str> = fields.split(' ').collect();
            let number = |field: usize| fields[field - 3].parse::<i32>().unwrap();
            Thread {
                name: name.split_once('(').unwrap().1.to_owned(),
                nice: number(19),
                policy: number(41) as u32,
            }
        })
        .collect()
}
