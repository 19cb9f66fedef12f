//! A running test: a process group with a time limit.

use std::{
    fs, io,
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::Result;

use super::{
    outcome::{self, End, Spent, TestResult},
    process::{has_ended, processor_time, terminate},
    room::TestRoom,
    schedule::TestJob,
};

/// A running test. Dropping it ends all processes that it has started.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) job: TestJob,
    child: Child,
    begun: Instant,
    ended: bool,
    // Cleared last, when the process group is gone.
    room: TestRoom,
}

impl Running {
    pub(crate) fn start(mut command: Command, job: TestJob, room: TestRoom) -> io::Result<Self> {
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
