//! A load beside a migration: fileserver's flows, straight on the device.

use flash_model::{Command, OwnedCommand, Placement, Zone, ZoneAction};
use workloads::{
    Numbers,
    filebench::{APPEND_BYTES, FLOWS, IO_BYTES},
};

use super::{Host, Submission, ZONED};
use crate::layout::{Extent, Layout};

const FILE_BYTES: u64 = 4 << 20;

/// A step of a flow: writing a file of 4 MiB, appending, reading a whole file.
struct Flow {
    commands: Vec<Step>,
    waits_for: usize,
}

/// Bytes that are submitted at once.
enum Step {
    Write(u64),
    Read(Vec<Extent>),
}

/// The load: it never ends.
pub(crate) struct Load<'a> {
    layout: &'a Layout,
    io_bytes: u64,
    numbers: Numbers,
    flows: Vec<Flow>,
    /// Zones to write to in turn.
    zones: Vec<Zone>,
    zone: usize,
    pointer: u64,
    ready: Vec<Submission>,
    /// Bytes of each command under way, and of all that are done.
    sizes: Vec<(usize, u64)>,
    pub(crate) bytes_done: u64,
}

impl<'a> Load<'a> {
    /// It reads these files, and writes to these zones again and again.
    pub(crate) fn new(layout: &'a Layout, io_bytes: u64, zones: Vec<Zone>) -> Self {
        let flow = |_| Flow {
            commands: Vec::new(),
            waits_for: 0,
        };
        Self {
            layout,
            io_bytes,
            numbers: Numbers::new(15),
            flows: (0..FLOWS).map(flow).collect(),
            zones,
            zone: 0,
            pointer: 0,
            ready: Vec::new(),
            sizes: Vec::new(),
            bytes_done: 0,
        }
    }

    /// The next iteration of fileserver's flow, backwards.
    fn iteration(&mut self) -> Vec<Step> {
        let file = &self.layout.files[self.numbers.below(self.layout.files.len())];
        let reads = Layout {
            files: vec![file.clone()],
        };
        let mut steps: Vec<Step> = reads.reads(self.io_bytes).map(Step::Read).collect();
        steps.reverse();
        let append = 1 + self.numbers.below(APPEND_BYTES);
        steps.push(Step::Write(append.next_multiple_of(4096)));
        steps.extend((0..FILE_BYTES / IO_BYTES).map(|_| Step::Write(IO_BYTES)));
        steps
    }

    fn submit(&mut self, flow: usize, bytes: u64, command: OwnedCommand) {
        self.flows[flow].waits_for += 1;
        self.ready.push(Submission {
            number: self.sizes.len(),
            namespace: ZONED,
            command,
        });
        self.sizes.push((flow, bytes));
    }

    /// Write at the log's end, across zones. A zone that comes again is reset first.
    fn write(&mut self, flow: usize, mut bytes: u64) {
        while bytes > 0 {
            let zone = self.zones[self.zone % self.zones.len()];
            if self.pointer == zone.capacity {
                self.zone += 1;
                self.pointer = 0;
                let zone = self.zones[self.zone % self.zones.len()];
                if self.zone >= self.zones.len() {
                    let command = Command::Zone {
                        start: zone.start,
                        all: false,
                        action: ZoneAction::Reset,
                    };
                    self.submit(flow, 0, command.into());
                }
                continue;
            }
            let len = bytes.min(zone.capacity - self.pointer);
            let command = Command::Write {
                offset: zone.start + self.pointer,
                len,
                fua: false,
                placement: Placement::RoundRobin,
            };
            self.pointer += len;
            bytes -= len;
            self.submit(flow, len, command.into());
        }
    }
}

impl Host for Load<'_> {
    fn next(&mut self) -> Option<Submission> {
        if let Some(ready) = self.ready.pop() {
            return Some(ready);
        }
        let flow = self.flows.iter().position(|flow| flow.waits_for == 0)?;
        if self.flows[flow].commands.is_empty() {
            self.flows[flow].commands = self.iteration();
        }
        match self.flows[flow].commands.pop()? {
            Step::Write(bytes) => self.write(flow, bytes),
            Step::Read(pieces) => {
                for piece in pieces {
                    let command = Command::Read {
                        offset: piece.place,
                        len: piece.bytes,
                    };
                    self.submit(flow, piece.bytes, command.into());
                }
            }
        }
        // In order: writes to a zone, and its reset before them.
        self.ready.reverse();
        self.ready.pop()
    }

    fn done(&mut self, number: usize) {
        let (flow, bytes) = self.sizes[number];
        self.flows[flow].waits_for -= 1;
        self.bytes_done += bytes;
    }

    fn is_over(&self) -> bool {
        false
    }
}
