//! Other processes, as `/proc` shows them (proc(5)).

use std::fs;

use rustix::{
    io::Errno,
    process::{Pid, test_kill_process},
};

/// `PF_EXITING` and `PF_SIGNALED` (linux/sched.h, v6.1): on its way out.
const ENDING: u64 = 0x4 | 0x400;

/// Bit of `SIGKILL` in a mask of pending signals.
const KILL: u64 = 1 << (9 - 1);

/// When a process began, in clock ticks since the machine did: with its number it is unmistakable.
/// `None` where `/proc` hides it.
pub(crate) fn started(pid: u32) -> Option<u64> {
    field(pid, 22)?.parse().ok()
}

/// Whether there is such a process, the one that began then.
pub(crate) fn is_alive(pid: u32, since: Option<u64>) -> bool {
    let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let exists = number.is_some_and(|pid| {
        // A process that we may not signal exists.
        !matches!(test_kill_process(pid), Err(Errno::SRCH))
    });
    let same = match (started(pid), since) {
        (Some(now), Some(then)) => now == then,
        _ => true,
    };
    exists && same && state(pid) != Some('Z')
}

/// Whether a process is ending, or was killed and cannot end yet: it waits for a device, or inside
/// of an ioctl. Everything that it holds is free in a moment.
pub(crate) fn is_ending(pid: u32) -> bool {
    let flags = field(pid, 9).and_then(|flags| flags.parse::<u64>().ok());
    let killed = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let pending = |line: &str| {
            let mask = line
                .strip_prefix("SigPnd:")
                .or_else(|| line.strip_prefix("ShdPnd:"))?;
            u64::from_str_radix(mask.trim(), 16).ok()
        };
        status
            .lines()
            .filter_map(pending)
            .any(|mask| mask & KILL != 0)
    };
    flags.is_some_and(|flags| flags & ENDING != 0) || state(pid) == Some('Z') || killed()
}

/// The command line of this process, for a person.
pub(crate) fn command() -> String {
    let words: Vec<String> = std::env::args_os()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    printable(&words.join(" "))
}

/// Make a text printable, and short: text that others wrote must not disturb a terminal.
pub(crate) fn printable(text: &str) -> String {
    const LONGEST: usize = 200;
    let plain = |c: char| if c.is_control() { '?' } else { c };
    let mut short: String = text.chars().take(LONGEST).map(plain).collect();
    if text.chars().nth(LONGEST).is_some() {
        short.push('…');
    }
    short
}

fn state(pid: u32) -> Option<char> {
    field(pid, 3)?.chars().next()
}

/// A field of `/proc/PID/stat`, counted from 1 as in proc(5), after the name, which may hold
/// anything.
fn field(pid: u32, number: usize) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    rest.split_ascii_whitespace()
        .nth(number.checked_sub(3)?)
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_lives_and_another_does_not() {
        let me = std::process::id();
        let since = started(me);
        assert!(since.is_some());
        assert!(is_alive(me, since) && is_alive(me, None));
        assert!(!is_alive(me, Some(1)), "the number of another one");
        assert!(!is_ending(me));
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let (pid, since) = (child.id(), started(child.id()));
        assert!(is_alive(pid, since) && !is_ending(pid));
        child.kill().unwrap();
        // Whether it is gone already or not: it is ending.
        assert!(is_ending(pid));
        child.wait().unwrap();
        assert!(!is_alive(pid, since));
    }

    #[test]
    fn a_command_line_is_one_short_line() {
        assert_eq!(printable("a\u{1b}[2J\nb"), "a?[2J?b");
        assert_eq!(printable(&"x".repeat(500)).chars().count(), 201);
    }
}
