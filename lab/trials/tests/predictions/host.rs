//! A host with readers that each wait for their read, on a modelled device, in virtual time.

use std::{cmp::Reverse, collections::BinaryHeap};

use flash_model::{Command, Device, Done, NamespaceKind, NamespaceSpec, Placement, Profile};
use indef_core::{access::Observed, calibrate::Sample, layout::Fragmentation};
use units::{Bytes, Nanos};
use workloads::Numbers;

pub(crate) const BLOCK: u64 = 4 << 10;
/// The bytes of a read.
pub(crate) const READ: u64 = 128 << 10;

/// A range of a file: where its pieces lie.
#[derive(Clone, Debug)]
pub(crate) struct Range {
    pub(crate) pieces: Vec<(u64, u64)>,
}

/// The same file twice: aged, and as a move of all of it leaves it.
pub(crate) struct File {
    pub(crate) aged: Vec<Range>,
    pub(crate) contiguous: Vec<Range>,
}

impl File {
    /// A file of so many ranges in a namespace of `size`. Range by range, from one piece to
    /// as many as it has blocks.
    pub(crate) fn new(size: u64, ranges: u64, numbers: &mut Numbers) -> Self {
        // The front of the namespace holds the contiguous file, the rest the pieces.
        let front = ranges * READ;
        let mut blocks: Vec<u64> = (front / BLOCK / 2..size / BLOCK / 2)
            .map(|i| 2 * i * BLOCK)
            .collect();
        numbers.shuffle(&mut blocks);
        let contiguous = |range: u64| Range {
            pieces: vec![(range * READ, READ)],
        };
        let mut aged = Vec::new();
        for range in 0..ranges {
            let pieces = 1 << numbers.below(6_u64);
            if pieces == 1 {
                aged.push(contiguous(range));
                continue;
            }
            let len = READ / pieces;
            let mut place = || {
                let at = blocks.pop().unwrap_or(0);
                (at.min(size - len), len)
            };
            aged.push(Range {
                pieces: (0..pieces).map(|_| place()).collect(),
            });
        }
        Self {
            aged,
            contiguous: (0..ranges).map(contiguous).collect(),
        }
    }
}

/// The times of reads of a range.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) reads: u64,
    pub(crate) time: u64,
    pub(crate) ahead: u64,
}

/// A device that holds data everywhere.
pub(crate) fn filled(profile: &Profile, size: u64) -> Device {
    let spec = NamespaceSpec {
        kind: NamespaceKind::Conventional,
        size: Bytes(size),
    };
    let mut device = Device::new(profile, &[spec]).expect("a device");
    let mut now = Nanos(0);
    for offset in (0..size).step_by(READ as usize) {
        let write = Command::Write {
            offset,
            len: READ,
            fua: false,
            placement: Placement::RoundRobin,
        };
        device.submit(now, 0, &write).expect("a write");
        // One after the other, and without a full buffer.
        while let Some(next) = device.next_event() {
            now = now.max(next);
            device.advance(now, &mut Vec::new());
        }
    }
    device
}

/// Read ranges of the file: `depth` readers, each with one read at a time, until so many reads are
/// done. Returns what was seen of each range.
pub(crate) fn read(
    device: &Device,
    file: &[Range],
    depth: usize,
    reads: u64,
    seed: u64,
) -> Vec<Seen> {
    let mut device = device.clone();
    let mut numbers = Numbers::new(seed);
    let mut seen = vec![Seen::default(); file.len()];
    let start = 1 << 50;
    let mut readers: BinaryHeap<Reverse<(u64, usize)>> = (0..depth)
        .map(|reader| Reverse((start + reader as u64, reader)))
        .collect();
    let mut in_flight: BinaryHeap<Reverse<u64>> = BinaryHeap::new();
    for _ in 0..reads {
        let Some(Reverse((now, reader))) = readers.pop() else {
            break;
        };
        while in_flight.peek().is_some_and(|done| done.0 <= now) {
            in_flight.pop();
        }
        let range = numbers.below(file.len() as u64) as usize;
        let ahead = in_flight.len() as u64;
        let mut end = now;
        for &(offset, len) in &file[range].pieces {
            let command = Command::Read { offset, len };
            let accepted = device.submit(Nanos(now), 0, &command).expect("a read");
            let Done::At(Nanos(at)) = accepted.done else {
                panic!("a read is done at a known time")
            };
            in_flight.push(Reverse(at));
            end = end.max(at);
        }
        let of = &mut seen[range];
        of.reads += 1;
        of.time += end - now;
        of.ahead += ahead;
        readers.push(Reverse((end, reader)));
    }
    seen
}

/// The mean time of a read.
pub(crate) fn mean_ns(seen: &[Seen]) -> f64 {
    let (reads, time) = seen.iter().fold((0, 0), |(reads, time), of| {
        (reads + of.reads, time + of.time)
    });
    time as f64 / reads as f64
}

/// How fragmented a range is.
pub(crate) fn degrees(range: &Range) -> Fragmentation {
    let pieces = range.pieces.len() as u64;
    Fragmentation {
        dolf: pieces,
        dopf: 0.0,
        requests: pieces,
    }
}

/// The input that a trace of these reads gives to the estimator.
pub(crate) fn samples(file: &[Range], seen: &[Seen]) -> Vec<Sample> {
    file.iter()
        .zip(seen)
        .filter(|(_, seen)| seen.reads > 0)
        .map(|(range, seen)| {
            let pieces = range.pieces.len() as u64;
            Sample {
                len: Bytes(READ),
                fragmentation: degrees(range),
                observed: Observed {
                    requests: pieces * seen.reads,
                    timed: seen.reads,
                    time: Nanos(seen.time),
                    ahead: Some(seen.ahead),
                },
                requests: pieces as f64,
            }
        })
        .collect()
}
