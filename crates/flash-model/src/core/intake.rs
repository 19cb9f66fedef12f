//! Data on its way into the write buffer, in the order in which commands came.
//!
//! As long as there is room, a write goes through at once. When there is none, what is left of it
//! waits here, with the programs that need it, and so does everything that comes after it; as
//! programs end, it goes on. Host reads pass meanwhile.

use std::collections::VecDeque;

use super::{Cause, Core, Entry, Owner, Work};
use crate::command::Ticket;

/// Where a write stands that is coming in.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Command {
    ready: u64,
    /// Over the host link.
    transfer: bool,
    /// When what came so far was all there.
    arrived: u64,
}

#[derive(Clone, Copy, Debug)]
enum Item {
    Begin(Command),
    Bytes {
        bytes: u64,
        zone: Option<(u32, u32)>,
    },
    Program {
        die: u32,
        entry: Entry,
    },
    /// The end, and the programs that it waits for, if it does.
    End {
        ticket: Ticket,
        programs: Option<(u64, u64)>,
    },
}

/// What waits for room; the first one is always `Bytes`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Intake {
    current: Command,
    waiting: VecDeque<Item>,
}

impl Core {
    /// A write begins to come in.
    pub(crate) fn begin_intake(&mut self, ready: u64, transfer: bool) {
        let command = Command {
            ready,
            transfer,
            arrived: ready,
        };
        if self.intake.waiting.is_empty() {
            self.intake.current = command;
        } else {
            self.intake.waiting.push_back(Item::Begin(command));
        }
    }

    /// Takes bytes of it into the write buffer, of a zone or not.
    pub(crate) fn take_in(&mut self, bytes: u64, zone: Option<(u32, u32)>) {
        let nothing_comes = self.queues.is_empty();
        let ready = self.intake.current.ready;
        let at = self.buffer.turn(ready);
        if self.intake.waiting.is_empty() && self.buffer.admit(bytes, at, ready, nothing_comes) {
            self.bytes_came(at, bytes);
            return;
        }
        self.intake.waiting.push_back(Item::Bytes { bytes, zone });
        self.queues.quiet_until = 0;
    }

    /// Queues a program that needs all that was taken in so far.
    pub(crate) fn queue_after_intake(&mut self, die: u32, mut entry: Entry) {
        if entry.number > 0 {
            entry.number = self.tickets.number();
        }
        if self.intake.waiting.is_empty() {
            entry.ready = entry.ready.max(self.intake.current.arrived);
            self.queues.push(die, entry);
        } else {
            self.intake.waiting.push_back(Item::Program { die, entry });
        }
    }

    /// The write is complete. `Ok`: when all of it is in the buffer. `programs`: its end waits for
    /// those from this number on.
    pub(crate) fn end_intake(&mut self, programs: Option<u64>) -> Result<u64, Ticket> {
        if self.intake.waiting.is_empty() {
            return Ok(self.intake.current.arrived);
        }
        let ticket = self.tickets.issue();
        let programs = programs.map(|from| (from, self.tickets.last_number()));
        self.intake
            .waiting
            .push_back(Item::End { ticket, programs });
        Err(ticket)
    }

    fn bytes_came(&mut self, at: u64, bytes: u64) {
        let time = self.timing.link.time(bytes);
        let came = if self.intake.current.transfer {
            self.link_in.reserve(self.flash.clock, at, time).1
        } else {
            at
        };
        self.intake.current.arrived = self.intake.current.arrived.max(came);
    }

    /// When what waits may go on.
    pub(super) fn intake_event(&self) -> Option<u64> {
        let Some(&Item::Bytes { bytes, .. }) = self.intake.waiting.front() else {
            return None;
        };
        let turn = self.buffer.turn(self.intake.current.ready);
        let at = turn.max(self.flash.clock);
        let nothing_comes = self.queues.is_empty().then_some(at);
        self.buffer.room_from(bytes, at).or(nothing_comes)
    }

    /// Lets in what waits, as far as there is room at `at`.
    pub(super) fn go_on_with_intake(&mut self, at: u64) {
        let nothing_comes = self.queues.is_empty();
        let Some(&Item::Bytes { bytes, .. }) = self.intake.waiting.front() else {
            return;
        };
        let ready = self.intake.current.ready;
        if !self.buffer.admit(bytes, at, ready, nothing_comes) {
            return;
        }
        self.bytes_came(at, bytes);
        self.intake.waiting.pop_front();
        while let Some(&item) = self.intake.waiting.front() {
            match item {
                Item::Bytes { .. } => break,
                Item::Begin(mut command) => {
                    // What came before it kept it waiting until now.
                    command.arrived = command.arrived.max(at);
                    self.intake.current = command;
                }
                Item::Program { die, mut entry } => {
                    entry.ready = entry.ready.max(self.intake.current.arrived);
                    self.queues.push(die, entry);
                }
                Item::End { ticket, programs } => {
                    self.tickets
                        .wait_as(ticket, programs, self.intake.current.arrived);
                }
            }
            self.intake.waiting.pop_front();
        }
    }

    /// Forgets what is queued for the pages of a zone that is reset, and what is on its way to it;
    /// `held` are the bytes of its pages that are not complete.
    pub(crate) fn drop_zone(&mut self, ns: u32, zone: u32, held: u64, now: u64) {
        let (bytes, mut numbers) = self.queues.drop_zone(ns, zone);
        self.buffer.forget(bytes + held);
        let buffer = &mut self.buffer;
        self.intake.waiting.retain_mut(|item| match item {
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
        for number in numbers {
            self.tickets.programmed(number, now);
        }
        self.in_flight[ns as usize].clear(zone);
        self.queues.quiet_until = 0;
    }
}

/// A program of data that is not a complete page, for a flush.
pub(crate) const fn flush_entry(ready: u64, bytes: u64) -> Entry {
    Entry {
        work: Work::Program,
        ready,
        bytes,
        release: 0,
        cause: Cause::Flush,
        owner: Owner::Nobody,
        number: 1,
    }
}
