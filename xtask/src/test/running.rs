//! A running test: a process group with a time limit.

use std::{
    fs, io,
    os::unix::process::CommandExt,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

use super::{
    TICK,
    outcome::{self, Spent, TestResult},
    room::Room,
    schedule::Job,
};

/// Time limit for a process to end after the request.
const GRACE: Duration = Duration::from_secs(5);

/// How a test's process ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Exited(ExitStatus),
    /// It was ended, after this time.
    TimedOut(Duration),
}

/// A running test. Dropping it ends all processes that it has started.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) job: Job,
    child: Child,
    begun: Instant,
    ended: bool,
    // Cleared last, when the process group is gone.
    room: Room,
}

impl Running {
    pub(crate) fn start(mut command: Command, job: Job, room: Room) -> io::Result<Self> {
        room.furnish(&mut command)?;
        // A group of its own: a signal reaches all processes that it has started, and Ctrl-C only
        // us.
        let child = command.stdin(Stdio::null()).process_group(0).spawn()?;
        Ok(Self {
            job,
            child,
            begun: Instant::now(),
            ended: false,
            room,
        })
    }

    /// The time for which it has been running.
    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Its results, once it has ended; past its limit it is ended.
    pub(crate) fn poll(&mut self) -> Result<Option<Vec<TestResult>>> {
        let mut processor = Duration::ZERO;
        if has_ended(&self.child)? {
            let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
            processor = processor_time(&stat.unwrap_or_default());
        }
        let (end, time) = match self.child.try_wait()? {
            Some(status) => (End::Exited(status), self.elapsed()),
            None if self.elapsed() > self.job.limit => {
                let time = self.elapsed();
                terminate(&mut self.child);
                (End::TimedOut(self.job.limit), time)
            }
            None => return Ok(None),
        };
        self.ended = true;
        let (said, skipped) = (self.room.said()?, self.room.skipped()?);
        Ok(Some(outcome::results(
            &self.job,
            end,
            Spent { time, processor },
            said,
            skipped,
        )))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            terminate(&mut self.child);
        }
    }
}

/// Whether a process has ended; its status stays to be fetched.
fn has_ended(child: &Child) -> io::Result<bool> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let status = rustix::process::waitid(WaitId::Pid(Pid::from_child(child)), options)?;
    Ok(status.is_some())
}

/// Processor time of a process and of the children that it has waited for: utime to cstime of proc(5),
/// in hundredths of a second; zero where its `stat` could not be read.
pub(crate) fn processor_time(stat: &str) -> Duration {
    // The name is in parentheses, and may contain some itself.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().skip(11).take(4);
    Duration::from_millis(
        ticks
            .filter_map(|field| field.parse::<u64>().ok())
            .sum::<u64>()
            * 10,
    )
}

/// Ask a process and its group to end, and end them if they do not.
pub(crate) fn terminate(child: &mut Child) {
    let group = Pid::from_child(child);
    let signal = |signal| {
        // Not every process leads a group.
        let _ = rustix::process::kill_process_group(group, signal);
        let _ = rustix::process::kill_process(group, signal);
    };
    signal(Signal::TERM);
    let asked = Instant::now();
    while asked.elapsed() < GRACE && matches!(child.try_wait(), Ok(None)) {
        thread::sleep(TICK);
    }
    // Members of the group that outlived its leader end, too: the group's number is taken as long
    // as they live.
    let _ = rustix::process::kill_process_group(group, Signal::KILL);
    if matches!(child.try_wait(), Ok(None)) {
        let _ = child.kill();
        let _ = child.wait();
    }
}
