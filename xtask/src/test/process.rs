//! A process that was started: whether it has ended, its processor time, and its end.

use std::{
    io,
    process::Child,
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

/// Interval of looks at processes.
pub(crate) const TICK: Duration = Duration::from_millis(5);

/// Time limit for a process to end after the request.
const GRACE: Duration = Duration::from_secs(5);

/// Whether a process has ended; its status stays to be fetched.
pub(crate) fn has_ended(child: &Child) -> io::Result<bool> {
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
