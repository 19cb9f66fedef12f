//! Data on its way into the write buffer, in the order in which commands came.
//!
//! As long as there is room, a write goes through at once. When there is none, the rest of it waits
//! here, with the programs that need it, and so does everything that comes after it; as programs
//! end, it goes on. Host reads pass meanwhile.

use std::collections::VecDeque;

use super::{
    buffer::WriteBuffer,
    queue::{DieQueues, QueuedOperation},
    tickets::Tickets,
};
use crate::{
    command::Ticket,
    flash::{Calendar, Rate},
};

/// The progress of a write that is coming in.
#[derive(Clone, Copy, Debug, Default)]
struct Incoming {
    ready: u64,
    /// Whether the data comes over the host link.
    transfer: bool,
    /// When all bytes that came so far had arrived.
    arrived: u64,
    /// How long the last of them waited for room.
    waited: u64,
}

#[derive(Clone, Copy, Debug)]
enum Item {
    Begin(Incoming),
    Bytes {
        bytes: u64,
        zone: Option<(u32, u32)>,
    },
    Program {
        die: u32,
        entry: QueuedOperation,
    },
    /// The end, and the programs that it waits for, if it does.
    End {
        ticket: Ticket,
        programs: Option<(u64, u64)>,
    },
}

/// The write buffer, the way into it, and the items that wait for room; the first one is always
/// `Bytes`.
#[derive(Clone, Debug)]
pub(crate) struct Intake {
    pub(crate) buffer: WriteBuffer,
    /// The host link's direction to the device.
    pub(crate) link: Calendar,
    rate: Rate,
    current: Incoming,
    waiting: VecDeque<Item>,
}

impl Intake {
    pub(super) fn new(buffer_size: u64, rate: Rate) -> Self {
        Self {
            buffer: WriteBuffer::new(buffer_size),
            link: Calendar::default(),
            rate,
            current: Incoming::default(),
            waiting: VecDeque::new(),
        }
    }

    /// Begins a write that comes in.
    pub(super) fn begin(&mut self, ready: u64, transfer: bool) {
        let incoming = Incoming {
            ready,
            transfer,
            arrived: ready,
            waited: 0,
        };
        if self.waiting.is_empty() {
            self.current = incoming;
        } else {
            self.waiting.push_back(Item::Begin(incoming));
        }
    }

    /// Takes bytes of the write into the write buffer, of a zone or not.
    pub(super) fn take_in(
        &mut self,
        queues: &mut DieQueues,
        clock: u64,
        bytes: u64,
        zone: Option<(u32, u32)>,
    ) {
        let nothing_comes = queues.is_empty();
        let at = self.buffer.turn(self.current.ready);
        if self.waiting.is_empty() && self.admit(bytes, at, nothing_comes) {
            self.bytes_came(clock, at, bytes);
            return;
        }
        self.waiting.push_back(Item::Bytes { bytes, zone });
        queues.quiet_until = 0;
    }

    /// Queues a program that needs all data taken in so far.
    pub(super) fn queue_program(
        &mut self,
        queues: &mut DieQueues,
        die: u32,
        mut entry: QueuedOperation,
    ) {
        if self.waiting.is_empty() {
            entry.ready = entry.ready.max(self.current.arrived);
            queues.push(die, entry);
        } else {
            self.waiting.push_back(Item::Program { die, entry });
        }
    }

    /// Ends the write. `Ok`: when all of it is in the buffer. `programs`: its end waits for those
    /// from this number on.
    pub(super) fn end(
        &mut self,
        tickets: &mut Tickets,
        programs: Option<u64>,
    ) -> Result<u64, Ticket> {
        if self.waiting.is_empty() {
            return Ok(self.current.arrived);
        }
        let ticket = tickets.issue();
        let programs = programs.map(|from| (from, tickets.last_number()));
        self.waiting.push_back(Item::End { ticket, programs });
        Err(ticket)
    }

    /// Lets bytes of the write into the buffer at `at`, if that can be. All of a write wait together: their time
    /// counts once.
    fn admit(&mut self, bytes: u64, at: u64, nothing_comes: bool) -> bool {
        if !self.buffer.admit(bytes, at, nothing_comes) {
            return false;
        }
        let waited = at - self.current.ready;
        self.buffer.count_wait(waited - self.current.waited);
        self.current.waited = waited;
        true
    }

    fn bytes_came(&mut self, clock: u64, at: u64, bytes: u64) {
        let time = self.rate.time(bytes);
        let came = if self.current.transfer {
            self.link.reserve(clock, at, time).1
        } else {
            at
        };
        self.current.arrived = self.current.arrived.max(came);
    }

    /// Returns when the first item that waits may go on.
    pub(super) fn next_event(&self, queues: &DieQueues, clock: u64) -> Option<u64> {
        let Some(&Item::Bytes { bytes, .. }) = self.waiting.front() else {
            return None;
        };
        let turn = self.buffer.turn(self.current.ready);
        let at = turn.max(clock);
        let nothing_comes = queues.is_empty().then_some(at);
        self.buffer.room_from(bytes, at).or(nothing_comes)
    }

    /// Lets in the items that wait, as far as there is room at `at`.
    pub(super) fn go_on(
        &mut self,
        queues: &mut DieQueues,
        tickets: &mut Tickets,
        clock: u64,
        at: u64,
    ) {
        let nothing_comes = queues.is_empty();
        let Some(&Item::Bytes { bytes, .. }) = self.waiting.front() else {
            return;
        };
        if !self.admit(bytes, at, nothing_comes) {
            return;
        }
        self.bytes_came(clock, at, bytes);
        self.waiting.pop_front();
        while let Some(&item) = self.waiting.front() {
            match item {
                Item::Bytes { .. } => break,
                Item::Begin(mut incoming) => {
                    // The writes before it kept it waiting until now.
                    incoming.arrived = incoming.arrived.max(at);
                    self.current = incoming;
                }
                Item::Program { die, mut entry } => {
                    entry.ready = entry.ready.max(self.current.arrived);
                    queues.push(die, entry);
                }
                Item::End { ticket, programs } => {
                    tickets.wait_as(ticket, programs, self.current.arrived);
                }
            }
            self.waiting.pop_front();
        }
    }

    /// Forgets the items that are on their way to a zone that is reset; adds the numbers of their
    /// programs to `numbers`.
    pub(super) fn drop_zone(&mut self, ns: u32, zone: u32, numbers: &mut Vec<u64>) {
        let buffer = &mut self.buffer;
        self.waiting.retain_mut(|item| match item {
            Item::Bytes {
                bytes,
                zone: Some(of),
            } if *of == (ns, zone) => {
                buffer.never_came(std::mem::take(bytes));
                true
            }
            Item::Program { entry, .. } if entry.owner.is_page_of(ns, zone) => {
                buffer.forget(entry.release);
                numbers.push(entry.number);
                false
            }
            _ => true,
        });
    }
}
