//! A modelled SSD as a drive that is probed, in virtual time, with others beside the probe.

use std::{cmp::Reverse, collections::BinaryHeap, convert::Infallible};

use flash_model::{Command, Device, Done, NamespaceKind, NamespaceSpec, Placement, Profile};
use indef_core::probe::Drive;
use units::{Bytes, FileRange, Nanos};
use workloads::Numbers;

const MIB: u64 = 1 << 20;

/// The load of others beside the probe.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Others {
    /// Mean time between two of their commands; 0: there are none.
    pub(crate) every_ns: u64,
    /// How many in a hundred of these are writes.
    pub(crate) writes_percent: u32,
    /// Bytes of each.
    pub(crate) len: u64,
}

/// The host's own time for each read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Host {
    /// From one submission to the next.
    pub(crate) submit_ns: u64,
    /// Until a result is seen: at least, and how much longer on average.
    pub(crate) complete_ns: u64,
    pub(crate) jitter_ns: u64,
}

impl Host {
    /// A quick host beside a device whose times are ten times as long.
    pub(crate) const QUICK: Self = Self {
        submit_ns: 500,
        complete_ns: 1_000,
        jitter_ns: 500,
    };
}

/// The device, and a probe's file on it.
pub(crate) struct Modelled {
    pub(crate) device: Device,
    size: u64,
    now: u64,
    began: u64,
    host: Host,
    others: Others,
    next_other: u64,
    numbers: Numbers,
    pub(crate) reads: u64,
}

impl Modelled {
    /// A device of which the front is the probe's file.
    pub(crate) fn new(profile: &Profile, size: u64, seed: u64) -> Self {
        let spec = NamespaceSpec {
            kind: NamespaceKind::Conventional,
            size: Bytes(size),
        };
        Self {
            device: Device::new(profile, &[spec]).expect("the profile has such a namespace"),
            size,
            now: 0,
            began: 0,
            host: Host::QUICK,
            others: Others::default(),
            next_other: u64::MAX,
            numbers: Numbers::new(seed),
            reads: 0,
        }
    }

    pub(crate) fn with_host(mut self, host: Host) -> Self {
        self.host = host;
        self
    }

    /// From now on.
    pub(crate) fn with_others(mut self, others: Others) -> Self {
        self.others = others;
        self.next_other = self.now;
        self.draw_other();
        self
    }

    fn draw_other(&mut self) {
        self.next_other = match self.others.every_ns {
            0 => u64::MAX,
            mean => self.next_other + exponential(&mut self.numbers, mean),
        };
    }

    /// Write a range in order, a MiB at a time, and wait until it is on flash.
    pub(crate) fn write(&mut self, range: FileRange) {
        for at in (range.start.0..range.end().0).step_by(MIB as usize) {
            self.write_one(at, MIB.min(range.end().0 - at));
        }
        self.finish(&Command::Flush);
        // Nothing takes longer than some erases and programs.
        self.now += 1_000_000_000;
        self.begin();
    }

    /// The probe begins now.
    pub(crate) fn begin(&mut self) {
        self.settle();
        self.began = self.now;
    }

    /// Without others from now on, once it has done what they asked for.
    pub(crate) fn alone(mut self) -> Self {
        self.next_other = u64::MAX;
        self.others = Others::default();
        self.now += 1_000_000_000;
        self.settle();
        self
    }

    pub(crate) fn write_one(&mut self, offset: u64, len: u64) {
        self.others_until(self.now);
        self.finish(&Command::Write {
            offset,
            len,
            fua: false,
            placement: Placement::RoundRobin,
        });
    }

    fn finish(&mut self, command: &Command<'_>) {
        let accepted = self.device.submit(Nanos(self.now), 0, command);
        match accepted.expect("the command is sound").done {
            Done::At(at) => self.now = self.now.max(at.0),
            Done::Later(ticket) => loop {
                let next = self.device.next_event().expect("it is not done yet");
                self.now = self.now.max(next.0);
                let mut ended = Vec::new();
                self.device.advance(next, &mut ended);
                if let Some((_, at)) = ended.iter().find(|(which, _)| *which == ticket) {
                    self.now = self.now.max(at.0);
                    return;
                }
            },
        }
    }

    fn settle(&mut self) {
        self.device.advance(Nanos(self.now), &mut Vec::new());
    }

    /// Let others send what they have sent by now.
    fn others_until(&mut self, now: u64) {
        while self.next_other <= now {
            let len = self.others.len;
            // Their data is on the second half.
            let half = self.size / 2;
            let offset = half + self.numbers.below((half - len) / 4096) * 4096;
            let command = match self.numbers.percent(self.others.writes_percent) {
                true => Command::Write {
                    offset,
                    len,
                    fua: false,
                    placement: Placement::RoundRobin,
                },
                false => Command::Read { offset, len },
            };
            let at = Nanos(self.next_other);
            let _ = self.device.submit(at, 0, &command);
            self.draw_other();
        }
    }
}

/// A time of an event that happens by chance, `mean` on average.
pub(crate) fn exponential(numbers: &mut Numbers, mean: u64) -> u64 {
    let part = 1.0 - numbers.fraction();
    (-part.ln() * mean as f64) as u64
}

impl Drive for Modelled {
    type Error = Infallible;

    fn read(&mut self, reads: &[FileRange], depth: usize) -> Result<Nanos, Infallible> {
        let began = self.now;
        let mut free = self.now;
        let mut flying = BinaryHeap::new();
        let mut last = self.now;
        for read in reads {
            if flying.len() == depth
                && let Some(Reverse(done)) = flying.pop()
            {
                free = free.max(done);
            }
            free += self.host.submit_ns;
            self.others_until(free);
            let command = Command::Read {
                offset: read.start.0,
                len: read.len.0,
            };
            let accepted = self.device.submit(Nanos(free), 0, &command);
            let Done::At(at) = accepted.expect("it is in range").done else {
                unreachable!("the end of a read is known at once");
            };
            let jitter = exponential(&mut self.numbers, self.host.jitter_ns);
            let seen = at.0 + self.host.complete_ns + jitter;
            flying.push(Reverse(seen));
            last = last.max(seen);
            self.reads += 1;
        }
        self.now = last;
        self.others_until(self.now);
        self.settle();
        Ok(Nanos(last - began))
    }

    fn elapsed(&self) -> Nanos {
        Nanos(self.now - self.began)
    }
}

impl Modelled {
    /// The time that the probe took.
    pub(crate) fn seconds(&self) -> f64 {
        (self.now - self.began) as f64 / 1e9
    }
}
