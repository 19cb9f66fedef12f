//! The reading programs of the paper, on the model: direct reads, each thread one after the other.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

use flash_model::{Command, Device, Span};
use units::Nanos;

use crate::model::{COMMAND, commands, idle, submit};

/// How files are read.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// Bytes that a thread reads with each system call and waits for.
    pub call: u64,
    /// Threads; each reads whole files.
    pub threads: usize,
    /// Commands of a thread that are under way at the same time.
    pub depth: usize,
    /// The longest command.
    pub command: u64,
}

impl Reading {
    /// One thread with calls of 1 MiB, as the programs of Figure 12 (artifact of FAST'24,
    /// `append_maker.cpp`), and Linux's depth for NVMe.
    pub const FIGURE_12: Self = Self {
        call: 1 << 20,
        threads: 1,
        depth: 1023,
        command: COMMAND,
    };

    /// Returns the time that the device takes to read these files, when it has nothing else to do.
    pub fn time(self, device: &mut Device, files: &[Vec<Span>]) -> Nanos {
        let began = idle(device);
        let mut left = files.iter();
        let mut threads: Vec<Thread> = left.by_ref().take(self.threads).map(Thread::new).collect();
        // When each thread goes on, the earliest first.
        let mut next: BinaryHeap<_> = (0..threads.len())
            .map(|thread| Reverse((began, thread)))
            .collect();
        let mut ended = began;
        while let Some(Reverse((now, number))) = next.pop() {
            device.advance(now, &mut Vec::new());
            let thread = &mut threads[number];
            match thread.go_on(self, device, now) {
                Some(then) => next.push(Reverse((then, number))),
                None => {
                    ended = ended.max(now);
                    if let Some(file) = left.next() {
                        *thread = Thread::new(file);
                        next.push(Reverse((now, number)));
                    }
                }
            }
        }
        Nanos(ended.0 - began.0)
    }
}

/// A thread that reads a file.
struct Thread<'a> {
    extents: &'a [Span],
    bytes: u64,
    /// Bytes that were asked for by calls so far.
    asked: u64,
    /// Commands of the present call that are not submitted yet.
    waiting: VecDeque<Span>,
    /// When each of those that are will be done.
    flying: BinaryHeap<Reverse<Nanos>>,
}

impl<'a> Thread<'a> {
    fn new(extents: &'a Vec<Span>) -> Self {
        Self {
            extents,
            bytes: extents.iter().map(|extent| extent.len).sum(),
            asked: 0,
            waiting: VecDeque::new(),
            flying: BinaryHeap::new(),
        }
    }

    /// Submits what can be submitted now; returns when there is more to do, or `None` at the file's end.
    fn go_on(&mut self, how: Reading, device: &mut Device, now: Nanos) -> Option<Nanos> {
        while self.flying.peek().is_some_and(|done| done.0 <= now) {
            self.flying.pop();
        }
        if self.waiting.is_empty() && self.flying.is_empty() {
            let len = how.call.min(self.bytes - self.asked);
            if len == 0 {
                return None;
            }
            self.waiting = commands(self.extents, self.asked, len, how.command).into();
            self.asked += len;
        }
        while self.flying.len() < how.depth
            && let Some(Span { offset, len }) = self.waiting.pop_front()
        {
            let done = submit(device, now, &Command::Read { offset, len });
            self.flying.push(Reverse(done));
        }
        self.flying.peek().map(|done| done.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tests::{device, write};

    const GRANULE: u64 = 32 << 10;

    #[test]
    fn pages_on_one_die_take_longer_than_pages_on_all() {
        // The same places in the namespace, written in order and with others in between.
        let mut whole = device();
        write(&mut whole, 0, 8 << 20);
        let mut pieces = device();
        for nth in 0..256 {
            write(&mut pieces, nth * GRANULE, GRANULE);
            write(&mut pieces, (16 << 20) + nth * 7 * GRANULE, 7 * GRANULE);
        }
        let file = vec![Span {
            offset: 0,
            len: 8 << 20,
        }];
        let [whole, pieces] = [&mut whole, &mut pieces].map(|device| {
            Reading::FIGURE_12
                .time(device, std::slice::from_ref(&file))
                .0 as f64
        });
        // docs/fast24.md: without the host's time the worst case has 0.160 of the speed.
        let share = whole / pieces;
        assert!((0.155..0.165).contains(&share), "{share}");
        // 2,573 MiB/s.
        assert!((3.05e6..3.17e6).contains(&whole), "{whole}");
    }

    /// Files of one granule, each on the die after the one before.
    fn granules(device: &mut Device) -> Vec<Vec<Span>> {
        let file = |number| {
            let offset = number * GRANULE;
            write(device, offset, GRANULE);
            vec![Span {
                offset,
                len: GRANULE,
            }]
        };
        (0..16).map(file).collect()
    }

    #[test]
    fn several_threads_keep_more_dies_busy() {
        let mut device = device();
        let files = granules(&mut device);
        let of = |threads| {
            let reading = Reading {
                threads,
                ..Reading::FIGURE_12
            };
            reading.time(&mut device.clone(), &files)
        };
        assert!(of(8).0 * 3 < of(1).0, "{:?} {:?}", of(8), of(1));
    }

    #[test]
    fn with_a_depth_of_1_extents_are_read_one_after_the_other() {
        let mut device = device();
        let files = granules(&mut device);
        let scattered: Vec<Span> = files.iter().rev().flatten().copied().collect();
        let of = |depth, files: &[Vec<Span>]| {
            let reading = Reading {
                depth,
                ..Reading::FIGURE_12
            };
            reading.time(&mut device.clone(), files).0
        };
        let one_file = std::slice::from_ref(&scattered);
        // As one thread reads file by file.
        assert_eq!(of(1, one_file), of(1023, &files));
        assert!(of(8, one_file) * 3 < of(1, one_file));
        assert!(of(2, one_file) < of(1, one_file));
    }
}
