//! Whether a processor of the machine is idle, and so could run one more test. On average a test uses half
//! of a processor: it waits for a disk, for time to pass, or for a guest that does.

use std::{
    fs,
    time::{Duration, Instant},
};

/// Time of an observation.
const WINDOW: Duration = Duration::from_secs(1);
/// Number of tests that may run beyond the usual ones, for the memory's sake.
pub(crate) const MORE: usize = 2;

/// An observation of the machine's idle time.
#[derive(Debug)]
pub(crate) struct Spare {
    begun: Instant,
    idle_before: Duration,
}

impl Spare {
    pub(crate) fn new() -> Self {
        Self {
            begun: Instant::now(),
            idle_before: idle(),
        }
    }

    /// Whether four fifths of a processor have been idle for a while. The next answer then needs another
    /// while: a test that has just begun must show what it uses.
    pub(crate) fn is_there(&mut self) -> bool {
        let time = self.begun.elapsed();
        if time < WINDOW {
            return false;
        }
        let idle = idle().saturating_sub(self.idle_before);
        *self = Self::new();
        is_enough(idle, time)
    }
}

fn is_enough(idle: Duration, time: Duration) -> bool {
    idle * 5 >= time * 4
}

/// The time for which processors were idle or waited for a disk, since the machine was started; zero where
/// that is not known.
fn idle() -> Duration {
    idle_in(&fs::read_to_string("/proc/stat").unwrap_or_default())
}

/// The fourth and the fifth number of the first line of proc(5)'s `stat`, in hundredths of a second.
fn idle_in(stat: &str) -> Duration {
    let numbers = stat.lines().next().unwrap_or_default().split_whitespace();
    let ticks = numbers
        .skip(4)
        .take(2)
        .filter_map(|n| n.parse::<u64>().ok());
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_what_the_kernel_says() {
        let stat = "cpu  1 2 3 400 50 6 7 8 0 0\ncpu0 9 9 9 9 9\n";
        assert_eq!(idle_in(stat), Duration::from_millis(4500));
        assert_eq!(idle_in(""), Duration::ZERO);
        assert!(idle() > Duration::ZERO);
        let second = Duration::from_secs(1);
        assert!(is_enough(second * 8 / 10, second));
        assert!(!is_enough(second * 7 / 10, second));
        // It has to be watched for a while.
        assert!(!Spare::new().is_there());
    }
}
