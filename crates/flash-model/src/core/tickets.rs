//! Commands whose end is not known yet: flushes, FUA writes, migrations.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

use units::Nanos;

use crate::command::Ticket;

/// A command that waits for programs.
#[derive(Clone, Debug)]
struct Waiter {
    ticket: u64,
    /// Numbers of the programs, both included.
    from: u64,
    to: u64,
    remaining: u64,
    end: u64,
}

/// All tickets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tickets {
    last: u64,
    waiters: Vec<Waiter>,
    finished: BinaryHeap<Reverse<(u64, u64)>>,
    /// The ends of the programs for the host, as far as they are known; those that have passed are left
    /// out from the oldest on.
    ends: VecDeque<Option<u64>>,
    /// The number of programs before those; programs are numbered from 1.
    before: u64,
}

impl Tickets {
    pub(crate) fn issue(&mut self) -> Ticket {
        self.last += 1;
        Ticket(self.last)
    }

    /// Gives a number to a program for the host.
    pub(crate) fn number(&mut self) -> u64 {
        self.ends.push_back(None);
        self.last_number()
    }

    /// Returns the number that was given last.
    pub(crate) fn last_number(&self) -> u64 {
        self.before + self.ends.len() as u64
    }

    /// Waits for the programs from number `from` on, 1 for all. `Ok`: when they are done.
    pub(crate) fn wait_for_programs(&mut self, from: u64, ready: u64) -> Result<u64, Ticket> {
        let to = self.last_number();
        let (remaining, end) = self.remaining(from, to, ready);
        if remaining == 0 {
            return Ok(end);
        }
        let ticket = self.issue();
        self.waiters.push(Waiter {
            ticket: ticket.0,
            from,
            to,
            remaining,
            end,
        });
        Err(ticket)
    }

    /// Lets a command whose data came at `ready` end then, or with its programs (first and last
    /// number).
    pub(crate) fn wait_as(&mut self, ticket: Ticket, programs: Option<(u64, u64)>, ready: u64) {
        let Some((from, to)) = programs else {
            return self.finish(ticket, ready);
        };
        let (remaining, end) = self.remaining(from, to, ready);
        if remaining == 0 {
            return self.finish(ticket, end);
        }
        self.waiters.push(Waiter {
            ticket: ticket.0,
            from,
            to,
            remaining,
            end,
        });
    }

    /// Returns how many programs of a range have no known end, and the latest of the known ends.
    fn remaining(&self, from: u64, to: u64, ready: u64) -> (u64, u64) {
        let skipped = from.saturating_sub(self.before + 1) as usize;
        let until = to.saturating_sub(self.before) as usize;
        // Programs before those have ended before any command that asks now.
        let (mut remaining, mut end) = (0, ready);
        for known in self.ends.iter().take(until).skip(skipped) {
            match known {
                Some(known) => end = end.max(*known),
                None => remaining += 1,
            }
        }
        (remaining, end)
    }

    /// Notes that the program of that number will be done at `end`; it is `clock` now.
    pub(crate) fn programmed(&mut self, number: u64, end: u64, clock: u64) {
        self.ends[(number - self.before - 1) as usize] = Some(end);
        while let Some(&Some(known)) = self.ends.front()
            && known <= clock
        {
            self.before += 1;
            self.ends.pop_front();
        }
        let finished = &mut self.finished;
        self.waiters.retain_mut(|waiter| {
            if !(waiter.from..=waiter.to).contains(&number) {
                return true;
            }
            waiter.remaining -= 1;
            waiter.end = waiter.end.max(end);
            if waiter.remaining == 0 {
                finished.push(Reverse((waiter.end, waiter.ticket)));
            }
            waiter.remaining > 0
        });
    }

    /// Notes that the command is done at `end`.
    pub(crate) fn finish(&mut self, ticket: Ticket, end: u64) {
        self.finished.push(Reverse((end, ticket.0)));
    }

    /// Returns when the next command is done, as far as known.
    pub(crate) fn next(&self) -> Option<u64> {
        self.finished.peek().map(|entry| entry.0.0)
    }

    /// Moves those that are done at `now` to `out`, in order of time.
    pub(crate) fn take_finished(&mut self, now: u64, out: &mut Vec<(Ticket, Nanos)>) {
        while let Some(&Reverse((end, ticket))) = self.finished.peek()
            && end <= now
        {
            self.finished.pop();
            out.push((Ticket(ticket), Nanos(end)));
        }
    }
}
