//! The reading programs of the paper, on the model: direct reads, each thread one after the other.

use std::{cmp::Reverse, collections::BinaryHeap};

use flash_model::{Command, Device, Done, Span};
use units::Nanos;

/// The largest command: the emulator's MDTS is 6, in units of 4 KiB (NVMeVirt, `ssd_config.h`).
const COMMAND: u64 = 256 << 10;

/// How files are read.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// Bytes that a thread reads with each system call and waits for.
    pub call: u64,
    /// Threads; each reads whole files.
    pub threads: usize,
}

impl Reading {
    /// One thread with calls of 1 MiB, as the programs of Figure 12 (artifact of FAST'24,
    /// `append_maker.cpp`).
    pub const FIGURE_12: Self = Self {
        call: 1 << 20,
        threads: 1,
    };

    /// Returns the time that the device takes to read these files, when it has nothing else to do.
    pub fn time(self, device: &mut Device, files: &[Vec<Span>]) -> Nanos {
        let began = idle(device);
        // (when it goes on, file, offset in it), the earliest first.
        let mut next_file = 0..files.len();
        let mut begin = |at: Nanos| next_file.next().map(|file| Reverse((at, file, 0)));
        let mut threads: BinaryHeap<_> = (0..self.threads).map_while(|_| begin(began)).collect();
        let mut ended = began;
        while let Some(Reverse((now, file, offset))) = threads.pop() {
            device.advance(now, &mut Vec::new());
            let extents = &files[file];
            let bytes: u64 = extents.iter().map(|extent| extent.len).sum();
            if offset >= bytes {
                ended = ended.max(now);
                threads.extend(begin(now));
                continue;
            }
            let len = self.call.min(bytes - offset);
            let done = read(device, now, &within(extents, offset, len));
            threads.push(Reverse((done, file, offset + len)));
        }
        Nanos(ended.0 - began.0)
    }
}

/// Submits a read of each span at once; returns when all are done.
fn read(device: &mut Device, now: Nanos, spans: &[Span]) -> Nanos {
    let mut done = now;
    for span in spans {
        for offset in (span.offset..span.end()).step_by(COMMAND as usize) {
            let len = COMMAND.min(span.end() - offset);
            let accepted = device.submit(now, 0, &Command::Read { offset, len });
            match accepted.expect("extents are in the namespace").done {
                Done::At(at) => done = done.max(at),
                Done::Later(_) => unreachable!("the model knows when a read is done"),
            }
        }
    }
    done
}

/// Lets the device finish everything; returns when it has.
fn idle(device: &mut Device) -> Nanos {
    let now = device.stats().now_ns;
    let flush = device.submit(now, 0, &Command::Flush);
    flush.expect("a namespace can be flushed");
    while let Some(next) = device.next_event() {
        device.advance(next, &mut Vec::new());
    }
    // The last operations may still run; nothing on a die takes longer than an erase (3 ms).
    let idle = Nanos(device.stats().now_ns.0 + 10_000_000);
    device.advance(idle, &mut Vec::new());
    idle
}

/// The parts of the device that hold the file's `len` bytes at `start`; neighbours that touch are one.
fn within(extents: &[Span], start: u64, len: u64) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let mut at = 0;
    for extent in extents {
        let (from, to) = (start.max(at), (start + len).min(at + extent.len));
        if from < to {
            let offset = extent.offset + from - at;
            let len = to - from;
            match spans.last_mut() {
                Some(last) if last.end() == offset => last.len += len,
                _ => spans.push(Span { offset, len }),
            }
        }
        at += extent.len;
    }
    spans
}

#[cfg(test)]
mod tests {
    use flash_model::{NamespaceKind, NamespaceSpec, Placement, Profile};
    use units::Bytes;

    use super::*;

    const GRANULE: u64 = 32 << 10;

    fn device() -> Device {
        let profile = Profile::builtin("fast24").unwrap();
        let spec = NamespaceSpec {
            kind: NamespaceKind::Conventional,
            size: Bytes::mib(512),
        };
        Device::new(&profile, &[spec]).unwrap()
    }

    fn write(device: &mut Device, offset: u64, len: u64) {
        let command = Command::Write {
            offset,
            len,
            fua: false,
            placement: Placement::RoundRobin,
        };
        let now = device.stats().now_ns;
        device.submit(now, 0, &command).unwrap();
        idle(device);
    }

    #[test]
    fn parts_of_extents_that_touch_are_one() {
        let spans = |all: &[(u64, u64)]| -> Vec<Span> {
            let spans = all.iter();
            spans.map(|&(offset, len)| Span { offset, len }).collect()
        };
        let extents = spans(&[(0, 8), (8, 8), (100, 8)]);
        assert_eq!(within(&extents, 4, 16), spans(&[(4, 12), (100, 4)]));
    }

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

    #[test]
    fn several_threads_keep_more_dies_busy() {
        let mut device = device();
        let files: Vec<Vec<Span>> = (0..16)
            .map(|file| {
                // Each on the die after the one before.
                let offset = file * GRANULE;
                write(&mut device, offset, GRANULE);
                vec![Span {
                    offset,
                    len: GRANULE,
                }]
            })
            .collect();
        let of = |threads| {
            let reading = Reading {
                threads,
                ..Reading::FIGURE_12
            };
            reading.time(&mut device.clone(), &files)
        };
        assert!(of(8).0 * 3 < of(1).0, "{:?} {:?}", of(8), of(1));
    }
}
