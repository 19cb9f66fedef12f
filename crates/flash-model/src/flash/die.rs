//! One die: a cell array and two page registers.
//!
//! The array does one thing at a time, in the order in which operations are given to it. Data
//! leaves and enters through the registers over the channel. With a cache register the array works
//! on the next page meanwhile; without one, the die is taken until the transfer is over.
//!
//! With a cache register, read k may only begin when the data of read k − 2 has left (else there
//! is no register for it), and the data for a program may only come once the operation before it
//! has begun. A program is given to the die when the array is free for it, and its data came
//! before that, in gaps that were left on the channel: so reads never wait for such data.

use super::{Calendar, Rate};

/// Times of the array, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DieTimes {
    pub(crate) read: u64,
    pub(crate) program: u64,
    pub(crate) erase: u64,
    /// The rate of transfers over the channel.
    pub(crate) transfer: Rate,
    /// Data that is read leaves in pieces of at most this many bytes, each of which goes on to the
    /// host when it has arrived; 0: as a whole.
    pub(crate) transfer_unit: u64,
    /// Whether the next page can be sensed, or come in, while the array or the channel works.
    pub(crate) cache_register: bool,
    /// The time that it costs a host read to interrupt a program or erase; `None`: the read waits
    /// for its end.
    pub(crate) suspend: Option<u64>,
}

/// A read of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageRead {
    /// The read does not begin before this.
    pub(crate) ready: u64,
    /// The bytes of the page that are sent.
    pub(crate) bytes: u64,
    /// Whether the read may interrupt a program or erase.
    pub(crate) urgent: bool,
}

impl DieTimes {
    /// Sends `bytes` from a register over `channel`, from `ready` on; returns when the last one has
    /// arrived.
    fn send(
        &self,
        channel: &mut Calendar,
        clock: u64,
        ready: u64,
        bytes: u64,
        arrived: &mut dyn FnMut(u64, u64),
    ) -> u64 {
        let piece = if self.transfer_unit == 0 {
            bytes
        } else {
            self.transfer_unit
        };
        let (mut out, mut left) = (ready, bytes);
        loop {
            let bytes = left.min(piece);
            out = channel.reserve(clock, out, self.transfer.time(bytes)).1;
            arrived(out, bytes);
            left -= bytes;
            if left == 0 {
                return out;
            }
        }
    }
}

/// The time at which an operation got the die, and the time of its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// The operation got the die (or its data began to go there).
    pub(crate) start: u64,
    /// Reads: the last byte has left over the channel. Others: the array is done.
    pub(crate) end: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Die {
    /// The array can begin something new from this time on.
    free_at: u64,
    /// When the array began the operation that was given to it last.
    array_start: u64,
    /// When the data of the last read, and of the one before it, has left.
    data_out: [u64; 2],
    /// Whether the operation that was given to it last is a program, an erase or a copyback.
    tail_can_be_suspended: bool,
    /// The time until which reads interrupt it.
    suspended_until: u64,
    /// The times at which it was busy.
    busy: Calendar,
}

impl Die {
    /// Returns when the array can begin something new.
    pub(crate) const fn free_at(&self) -> u64 {
        self.free_at
    }

    /// Returns when the data of the last read has left.
    pub(crate) const fn last_data_out(&self) -> u64 {
        self.data_out[0]
    }

    /// Returns the time that it was busy until `now`.
    pub(crate) fn busy_until(&self, now: u64) -> u64 {
        self.busy.busy_until(now)
    }

    /// Senses a page and sends the wanted bytes over `channel`; calls `arrived` with the time at
    /// which each piece has arrived, and its bytes.
    pub(crate) fn read(
        &mut self,
        times: &DieTimes,
        channel: &mut Calendar,
        clock: u64,
        read: PageRead,
        arrived: &mut dyn FnMut(u64, u64),
    ) -> Span {
        let PageRead {
            ready,
            bytes,
            urgent,
        } = read;
        if urgent && self.can_interrupt(times, ready) {
            return self.interrupting_read(times, channel, clock, read, arrived);
        }
        let register = if times.cache_register {
            self.data_out[1]
        } else {
            0
        };
        let start = ready.max(self.free_at).max(register);
        let sensed = start + times.read;
        let from_register = sensed.max(self.data_out[0]);
        let out = times.send(channel, clock, from_register, bytes, arrived);
        self.take(
            clock,
            start,
            if times.cache_register { sensed } else { out },
            false,
        );
        self.array_start = start;
        self.data_out = [out, self.data_out[0]];
        Span { start, end: out }
    }

    fn can_interrupt(&self, times: &DieTimes, ready: u64) -> bool {
        times.suspend.is_some()
            && self.tail_can_be_suspended
            && self.array_start <= ready
            && ready < self.free_at
    }

    /// Reads while the die's operation is suspended. That operation goes on afterwards, and ends
    /// later for the operations that come next.
    fn interrupting_read(
        &mut self,
        times: &DieTimes,
        channel: &mut Calendar,
        clock: u64,
        PageRead { ready, bytes, .. }: PageRead,
        arrived: &mut dyn FnMut(u64, u64),
    ) -> Span {
        let from = ready.max(self.suspended_until);
        // While it is suspended already, it need not be suspended again.
        let cost = if ready < self.suspended_until {
            0
        } else {
            times.suspend.unwrap_or(0)
        };
        let sensed = from + cost + times.read;
        let from_register = sensed.max(self.data_out[0]);
        let out = times.send(channel, clock, from_register, bytes, arrived);
        let until = if times.cache_register { sensed } else { out };
        self.suspended_until = until;
        self.busy.reserve(clock, self.free_at, until - from);
        self.free_at += until - from;
        self.data_out = [out, self.data_out[0]];
        Span {
            start: from,
            end: out,
        }
    }

    /// Takes `bytes` over `channel` and programs them, not before `begin`.
    pub(crate) fn program(
        &mut self,
        times: &DieTimes,
        channel: &mut Calendar,
        clock: u64,
        ready: u64,
        begin: u64,
        bytes: u64,
    ) -> Span {
        let register = if times.cache_register {
            self.array_start
                .max(self.data_out[0])
                .max(self.free_at.max(begin).saturating_sub(times.program))
        } else {
            self.free_at
        };
        let (start, arrived) =
            channel.reserve_in_pieces(clock, ready.max(register), times.transfer.time(bytes));
        let begin = arrived.max(self.free_at).max(begin);
        let end = begin + times.program;
        self.take(
            clock,
            if times.cache_register { begin } else { start },
            end,
            true,
        );
        self.array_start = begin;
        Span { start, end }
    }

    /// Keeps the array busy for `duration`: erase, or copyback within the die.
    pub(crate) fn occupy(&mut self, clock: u64, ready: u64, duration: u64) -> Span {
        let start = ready.max(self.free_at);
        self.take(clock, start, start + duration, true);
        self.array_start = start;
        Span {
            start,
            end: start + duration,
        }
    }

    fn take(&mut self, clock: u64, start: u64, end: u64, can_be_suspended: bool) {
        self.busy.reserve(clock, start, end - start);
        self.free_at = end;
        self.tail_can_be_suspended = can_be_suspended;
        self.suspended_until = 0;
    }
}
