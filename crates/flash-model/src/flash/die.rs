//! One die: a cell array and two page registers; or one of each for each plane.
//!
//! The array does one thing at a time, in the order in which operations are given to it. Data
//! leaves and enters through the registers over the channel. With a cache register the array works
//! on the next page meanwhile; without one, the die is taken until the transfer is over.
//!
//! With a cache register, read k may only begin when the data of read k − 2 has left (else there
//! is no register for it), and the data for a program may only come once the operation before it
//! has begun. A program is given to the die when the array is free for it, and its data came
//! before that, in gaps that were left on the channel: so reads never wait for such data.
//!
//! Where planes read on their own, each of them senses beside the others, and a read only takes the
//! planes that it touches. Programs, erases and copybacks take all planes of the die together.

use super::{Calendar, CellPage, PageTimes, Rate};

/// Times of the array, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DieTimes {
    pub(crate) read: PageTimes,
    pub(crate) program: PageTimes,
    pub(crate) erase: u64,
    /// The rate of transfers over the channel.
    pub(crate) transfer: Rate,
    /// Data that is read leaves in pieces of at most this many bytes, each of which goes on to the
    /// host when it has arrived; 0: as a whole.
    pub(crate) transfer_unit: u64,
    /// Whether the next page can be sensed, or come in, while the array or the channel works.
    pub(crate) cache_register: bool,
    /// The time that it costs a host read to interrupt what the array does; `None`: the read waits
    /// for its end.
    pub(crate) suspend: Option<SuspendTimes>,
}

/// The time from the command to suspend until the array can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SuspendTimes {
    /// A program, or the program of a copyback.
    pub(crate) program: u64,
    pub(crate) erase: u64,
}

/// The kind of the operation that a die was given last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    /// Nothing interrupts it.
    Read,
    Program,
    Erase,
}

impl Tail {
    /// Returns what it costs a read to interrupt it, if a read may.
    fn suspend(self, times: &DieTimes) -> Option<u64> {
        let suspend = times.suspend?;
        match self {
            Self::Read => None,
            Self::Program => Some(suspend.program),
            Self::Erase => Some(suspend.erase),
        }
    }
}

/// A read of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageRead {
    /// The read does not begin before this.
    pub(crate) ready: u64,
    pub(crate) page: CellPage,
    /// The planes that it touches.
    pub(crate) planes: Planes,
    /// The bytes of the page that are sent.
    pub(crate) bytes: u64,
    /// Whether the read may interrupt a program or erase.
    pub(crate) urgent: bool,
}

/// A program of a page of all planes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageProgram {
    /// Its data is not sent before this.
    pub(crate) ready: u64,
    /// The array does not begin before this.
    pub(crate) begin: u64,
    pub(crate) page: CellPage,
    /// Bytes that are sent.
    pub(crate) bytes: u64,
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

/// Arrays of a die, a bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Planes(u32);

impl Planes {
    /// Every array of the die.
    pub(crate) const ALL: Self = Self(u32::MAX);
    /// Arrays of a die at most.
    pub(crate) const MAX: u32 = u32::BITS;

    /// Returns those that hold the `bytes` (at least one) of a page of all planes from byte `from`
    /// on, where each array holds `each` bytes of it.
    pub(crate) const fn holding(from: u64, bytes: u64, each: u64) -> Self {
        let (first, last) = (from / each, (from + bytes - 1) / each);
        Self(u32::MAX >> (Self::MAX as u64 - 1 - (last - first)) << first)
    }

    /// Returns these and the others.
    pub(crate) const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }
}

/// The array of one plane, or of all where they do not read on their own.
#[derive(Clone, Debug, Default)]
struct Array {
    /// It can begin something new from this time on.
    free_at: u64,
    /// When it began the operation that was given to it last.
    began: u64,
    /// When the data of the last read, and of the one before it, has left.
    data_out: [u64; 2],
    /// The time until which a read interrupts the die's operation here.
    suspended_until: u64,
    /// The times at which it was busy.
    busy: Calendar,
}

#[derive(Clone, Debug)]
pub(crate) struct Die {
    arrays: Vec<Array>,
    tail: Tail,
}

impl Die {
    /// Returns a die with that many arrays: as many as planes if they read on their own, else one.
    pub(crate) fn new(arrays: u32) -> Self {
        Self {
            arrays: vec![Array::default(); arrays as usize],
            tail: Tail::Read,
        }
    }

    fn touched(&mut self, planes: Planes) -> impl Iterator<Item = &mut Array> {
        let arrays = (0..).zip(&mut self.arrays);
        arrays.filter_map(move |(number, array)| (planes.0 >> number & 1 == 1).then_some(array))
    }

    /// Returns the latest of the times that the arrays say.
    fn latest(&self, planes: Planes, time: impl Fn(&Array) -> u64) -> u64 {
        let arrays = (0..).zip(&self.arrays);
        let touched = arrays.filter(|(number, _)| planes.0 >> number & 1 == 1);
        touched.map(|(_, array)| time(array)).max().unwrap_or(0)
    }

    /// Returns when all of the die can begin something new.
    pub(crate) fn free_at(&self) -> u64 {
        self.latest(Planes::ALL, |array| array.free_at)
    }

    /// Returns when the data of the last read has left.
    pub(crate) fn last_data_out(&self) -> u64 {
        self.latest(Planes::ALL, |array| array.data_out[0])
    }

    /// Returns the time that it was busy until `now`: the mean of its arrays.
    pub(crate) fn busy_until(&self, now: u64) -> u64 {
        let busy = self.arrays.iter().map(|array| array.busy.busy_until(now));
        busy.sum::<u64>() / self.arrays.len() as u64
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
        if read.urgent
            && let Some(price) = self.price_of_interrupting(times, read.ready)
        {
            return self.interrupting_read(times, price, channel, clock, read, arrived);
        }
        let planes = read.planes;
        let register = if times.cache_register {
            self.latest(planes, |array| array.data_out[1])
        } else {
            0
        };
        let free = self.latest(planes, |array| array.free_at);
        let start = read.ready.max(free).max(register);
        let sensed = start + times.read.of(read.page);
        let from_register = sensed.max(self.latest(planes, |array| array.data_out[0]));
        let out = times.send(channel, clock, from_register, read.bytes, arrived);
        let until = if times.cache_register { sensed } else { out };
        self.take(planes, clock, start, until);
        self.tail = Tail::Read;
        for array in self.touched(planes) {
            array.began = start;
            array.data_out = [out, array.data_out[0]];
        }
        Span { start, end: out }
    }

    /// Returns the time that a read at `ready` would take to interrupt the operation that runs then;
    /// `None` if there is none, or it may not.
    fn price_of_interrupting(&self, times: &DieTimes, ready: u64) -> Option<u64> {
        let price = self.tail.suspend(times)?;
        let runs = self.latest(Planes::ALL, |array| array.began) <= ready && ready < self.free_at();
        runs.then_some(price)
    }

    /// Reads while the die's operation is suspended. That operation goes on afterwards, and ends
    /// later for the operations that come next.
    fn interrupting_read(
        &mut self,
        times: &DieTimes,
        price: u64,
        channel: &mut Calendar,
        clock: u64,
        read: PageRead,
        arrived: &mut dyn FnMut(u64, u64),
    ) -> Span {
        let (planes, ready) = (read.planes, read.ready);
        let from = ready.max(self.latest(planes, |array| array.suspended_until));
        let suspended = self.latest(Planes::ALL, |array| array.suspended_until);
        // While it is suspended already, it need not be suspended again.
        let cost = if ready < suspended { 0 } else { price };
        let sensed = from + cost + times.read.of(read.page);
        let from_register = sensed.max(self.latest(planes, |array| array.data_out[0]));
        let out = times.send(channel, clock, from_register, read.bytes, arrived);
        let until = if times.cache_register { sensed } else { out };
        for array in self.touched(planes) {
            array.suspended_until = until;
            array.data_out = [out, array.data_out[0]];
        }
        // Reads of several planes share a suspension.
        let longer = until.saturating_sub(suspended.max(ready));
        for array in &mut self.arrays {
            array.busy.reserve(clock, array.free_at, longer);
            array.free_at += longer;
        }
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
        program: PageProgram,
    ) -> Span {
        let PageProgram { ready, page, .. } = program;
        let (time, free) = (times.program.of(page), self.free_at());
        let register = if times.cache_register {
            self.latest(Planes::ALL, |array| array.began)
                .max(self.last_data_out())
                .max(free.max(program.begin).saturating_sub(time))
        } else {
            free
        };
        let transfer = times.transfer.time(program.bytes);
        let (start, arrived) = channel.reserve_in_pieces(clock, ready.max(register), transfer);
        let begin = arrived.max(free).max(program.begin);
        let end = begin + time;
        let from = if times.cache_register { begin } else { start };
        self.take_all(Tail::Program, clock, from, end, begin);
        Span { start, end }
    }

    /// Keeps the array busy for `duration`: erase, or copyback within the die.
    pub(crate) fn occupy(&mut self, kind: Tail, clock: u64, ready: u64, duration: u64) -> Span {
        let start = ready.max(self.free_at());
        let end = start + duration;
        self.take_all(kind, clock, start, end, start);
        Span { start, end }
    }

    /// Books all arrays for an operation that reads may interrupt; it `began` once its data was
    /// there.
    fn take_all(&mut self, kind: Tail, clock: u64, start: u64, end: u64, began: u64) {
        self.take(Planes::ALL, clock, start, end);
        self.tail = kind;
        for array in &mut self.arrays {
            array.began = began;
        }
    }

    fn take(&mut self, planes: Planes, clock: u64, start: u64, end: u64) {
        for array in self.touched(planes) {
            array.busy.reserve(clock, start, end - start);
            array.free_at = end;
            array.suspended_until = 0;
        }
    }
}
