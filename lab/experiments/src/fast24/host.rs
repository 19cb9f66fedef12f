//! A host with a file system of the simplest kind: it appends to and overwrites files, syncs each
//! write, and reads a file with direct I/O, as the programs that made FAST'24's figures do.

use std::{cmp::Reverse, collections::BinaryHeap};

use flash_model::{Command, Device, Done, Placement, Span};
use units::Nanos;

/// 2¹⁰ bytes.
pub const KIB: u64 = 1 << 10;
/// 2²⁰ bytes.
pub const MIB: u64 = 1 << 20;

/// The largest command: the emulator's MDTS is 6, in units of 4 KiB (NVMeVirt, `ssd_config.h`).
const COMMAND: u64 = 256 * KIB;
/// The bytes that the programs read with each system call and wait for (artifact,
/// `append_maker.cpp`).
const SYSTEM_CALL: u64 = MIB;
/// The unit in which the file system maps.
const BLOCK: u64 = 4 * KIB;

/// The places of a file's bytes, in their order.
#[derive(Clone, Debug, Default)]
pub struct File {
    pieces: Vec<Span>,
}

impl File {
    /// Its bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.len).sum()
    }

    /// Whether nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The places, in the order of its bytes; neighbours are one.
    #[must_use]
    pub fn pieces(&self) -> &[Span] {
        &self.pieces
    }

    /// Returns the file's 4 KiB blocks on the device.
    pub fn blocks(&self) -> impl Iterator<Item = u64> {
        self.pieces
            .iter()
            .flat_map(|piece| piece.offset / BLOCK..piece.end() / BLOCK)
    }

    fn push(&mut self, piece: Span) {
        match self.pieces.last_mut() {
            Some(last) if last.end() == piece.offset => last.len += piece.len,
            _ => self.pieces.push(piece),
        }
    }

    /// Returns the device's spans that hold the file's `len` bytes at `start`.
    fn spans(&self, start: u64, len: u64) -> Vec<Span> {
        let mut file_offset = 0;
        let mut spans = Vec::new();
        for piece in &self.pieces {
            let from = start.max(file_offset);
            let to = (start + len).min(file_offset + piece.len);
            if from < to {
                spans.push(Span {
                    offset: piece.offset + from - file_offset,
                    len: to - from,
                });
            }
            file_offset += piece.len;
        }
        spans
    }
}

/// The host, and its device.
pub struct Host {
    device: Device,
    now: Nanos,
    next_free: u64,
    hints: bool,
    per_call: Nanos,
}

impl Host {
    /// Makes a host of `device`'s first namespace. With `hints`, the file system marks each write
    /// as append or overwrite, as FAST'24's ext4 does. Every system call that reads costs the host
    /// `per_call`.
    #[must_use]
    pub fn new(device: Device, hints: bool, per_call: Nanos) -> Self {
        Self {
            device,
            now: Nanos(0),
            next_free: 0,
            hints,
            per_call,
        }
    }

    /// The device as it is.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The present time.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Submits at the present time; returns when the command is done. Time goes on until that is
    /// known.
    ///
    /// # Panics
    ///
    /// If the device refuses the command: the host is wrong then.
    pub fn submit(&mut self, command: &Command<'_>) -> Nanos {
        let accepted = self.device.submit(self.now, 0, command);
        let done = accepted.expect("it is in range").done;
        let at = self.device.finish(done).expect("it is under way");
        if let Done::Later(_) = done {
            self.now = self.now.max(at);
        }
        at
    }

    /// Goes on to this time.
    pub fn wait_until(&mut self, then: Nanos) {
        self.now = self.now.max(then);
        self.device.advance(self.now, &mut Vec::new());
    }

    /// Lets the device finish everything, the collector included.
    pub fn idle(&mut self) {
        let rest = self.device.rest();
        self.now = self.now.max(rest);
    }

    /// Flushes: everything written so far is on flash afterwards; the collector may still be at
    /// work.
    pub fn sync(&mut self) {
        let done = self.submit(&Command::Flush);
        self.wait_until(done);
    }

    /// Appends `len` bytes at the next free place, and syncs.
    pub fn append(&mut self, file: &mut File, len: u64) {
        self.append_unsynced(file, len);
        self.sync();
    }

    /// As [`append`](Self::append), without waiting for the flash.
    pub fn append_unsynced(&mut self, file: &mut File, len: u64) {
        for start in (0..len).step_by(COMMAND as usize) {
            let placement = match file.pieces.last() {
                Some(last) if self.hints => Placement::After {
                    predecessor: last.end() - BLOCK,
                },
                _ => Placement::RoundRobin,
            };
            let piece = Span {
                offset: self.next_free,
                len: COMMAND.min(len - start),
            };
            self.next_free = piece.end();
            file.push(piece);
            self.write(piece, placement);
        }
    }

    /// Overwrites a part of `file` in place, and syncs.
    pub fn overwrite(&mut self, file: &File, start: u64, len: u64) {
        self.overwrite_unsynced(file, start, len);
        self.sync();
    }

    /// As [`overwrite`](Self::overwrite), without waiting for the flash.
    pub fn overwrite_unsynced(&mut self, file: &File, start: u64, len: u64) {
        let placement = if self.hints {
            Placement::Overwrite
        } else {
            Placement::RoundRobin
        };
        for span in file.spans(start, len) {
            self.write(span, placement);
        }
    }

    fn write(&mut self, Span { offset, len }: Span, placement: Placement) {
        let done = self.submit(&Command::Write {
            offset,
            len,
            fua: false,
            placement,
        });
        self.wait_until(done);
    }

    /// Reads these spans in order, each by one command, `depth` of them in flight. Returns how long it took.
    ///
    /// # Panics
    ///
    /// If `depth` is 0.
    pub fn read_spans(&mut self, spans: impl IntoIterator<Item = Span>, depth: usize) -> Nanos {
        let began = self.now;
        let (mut flying, mut last) = (BinaryHeap::new(), self.now);
        for Span { offset, len } in spans {
            if flying.len() == depth {
                let Reverse(done) = flying.pop().expect("the depth is not 0");
                self.wait_until(done);
            }
            let done = self.submit(&Command::Read { offset, len });
            last = last.max(done);
            flying.push(Reverse(done));
        }
        self.wait_until(last);
        Nanos(last.0 - began.0)
    }

    /// Reads the whole file by one system call, in requests of at most `request` bytes, `depth` of them in
    /// flight. Returns how long it took.
    pub fn read_at_depth(&mut self, file: &File, request: u64, depth: usize) -> Nanos {
        let requests: Vec<Span> = file
            .spans(0, file.len())
            .into_iter()
            .flat_map(|span| in_requests(span, request))
            .collect();
        self.read_spans(requests, depth)
    }

    /// Reads the whole file with direct I/O, one system call after the other: a command for each
    /// contiguous span, all at once. Returns how long it took.
    pub fn read(&mut self, file: &File) -> Nanos {
        self.read_beside(file, |_| ())
    }

    /// As [`read`](Self::read); before each call, the host does `other`, and does not wait for it.
    pub fn read_beside(&mut self, file: &File, mut other: impl FnMut(&mut Self)) -> Nanos {
        let mut time = Nanos(0);
        for start in (0..file.len()).step_by(SYSTEM_CALL as usize) {
            other(self);
            let began = self.now;
            let mut done = self.now;
            for span in file.spans(start, SYSTEM_CALL) {
                for Span { offset, len } in in_requests(span, COMMAND) {
                    done = done.max(self.submit(&Command::Read { offset, len }));
                }
            }
            self.wait_until(done + self.per_call);
            time += Nanos(self.now.0 - began.0);
        }
        time
    }

    /// Reads the whole file through the page cache, as a program that reads it from end to end: while it works on a
    /// window, which takes the host `work`, the next one is on its way. Returns how long it took.
    pub fn read_ahead(&mut self, file: &File, window: u64, work: Nanos) -> Nanos {
        let began = self.now;
        let mut working_until = self.now;
        for start in (0..file.len()).step_by(window as usize) {
            let mut done = self.now;
            for span in file.spans(start, window) {
                for Span { offset, len } in in_requests(span, COMMAND) {
                    done = done.max(self.submit(&Command::Read { offset, len }));
                }
            }
            self.wait_until(done.max(working_until));
            working_until = self.now + work;
        }
        self.wait_until(working_until);
        Nanos(self.now.0 - began.0)
    }
}

/// A span in pieces of at most `request` bytes.
fn in_requests(span: Span, request: u64) -> impl Iterator<Item = Span> {
    let starts = (span.offset..span.end()).step_by(request as usize);
    starts.map(move |offset| Span {
        offset,
        len: request.min(span.end() - offset),
    })
}

/// Returns the speed in MiB/s, which the artifact's scripts print as "MB/s".
#[must_use]
pub fn mib_per_s(bytes: u64, time: Nanos) -> f64 {
    bytes as f64 / MIB as f64 / (time.0 as f64 / 1e9)
}
