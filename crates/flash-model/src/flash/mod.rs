//! Dies and channels with their timelines.

mod calendar;
mod die;
mod rate;

pub(crate) use calendar::Calendar;
pub(crate) use die::{Die, DieTimes, PageRead, Span};
pub(crate) use rate::Rate;

/// The counters of one die.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DieCounts {
    pub(crate) reads: u64,
    pub(crate) programs: u64,
    pub(crate) erases: u64,
    /// Host reads that found the die taken, and how long they waited for it.
    pub(crate) collisions: u64,
    pub(crate) collision_wait: u64,
}

/// All dies and channels. Die `d` is on channel `d % channels`.
#[derive(Clone, Debug)]
pub(crate) struct Flash {
    pub(crate) times: DieTimes,
    pub(crate) dies: Vec<Die>,
    pub(crate) channels: Vec<Calendar>,
    pub(crate) counts: Vec<DieCounts>,
    /// No operation begins before this any more.
    pub(crate) clock: u64,
}

impl Flash {
    pub(crate) fn new(times: DieTimes, dies: u32, channels: u32) -> Self {
        Self {
            times,
            dies: vec![Die::default(); dies as usize],
            channels: vec![Calendar::default(); channels as usize],
            counts: vec![DieCounts::default(); dies as usize],
            clock: 0,
        }
    }

    /// Returns the time from which on channels may still be booked: data for a program may have
    /// come while the array worked on the one before.
    const fn channel_clock(&self) -> u64 {
        self.clock.saturating_sub(self.times.program)
    }

    /// Reads for the host; counts a collision if the read has to wait for the die. Calls `arrived`
    /// with the time at which each piece is in the controller, and its bytes.
    pub(crate) fn host_read(
        &mut self,
        die: u32,
        ready: u64,
        bytes: u64,
        arrived: &mut dyn FnMut(u64, u64),
    ) -> Span {
        let read = PageRead {
            ready,
            bytes,
            urgent: true,
        };
        let span = self.read_page(die, read, arrived);
        let counts = &mut self.counts[die as usize];
        if span.start > ready {
            counts.collisions += 1;
            counts.collision_wait += span.start - ready;
        }
        span
    }

    /// Senses a page and sends `bytes` of it to the controller.
    pub(crate) fn read(&mut self, die: u32, ready: u64, bytes: u64) -> Span {
        let read = PageRead {
            ready,
            bytes,
            urgent: false,
        };
        self.read_page(die, read, &mut |_, _| ())
    }

    fn read_page(&mut self, die: u32, read: PageRead, arrived: &mut dyn FnMut(u64, u64)) -> Span {
        let (channel, clock) = (die as usize % self.channels.len(), self.channel_clock());
        self.counts[die as usize].reads += 1;
        self.dies[die as usize].read(
            &self.times,
            &mut self.channels[channel],
            clock,
            read,
            arrived,
        )
    }

    /// Sends `bytes` to the die and programs them, not before `begin`.
    pub(crate) fn program(&mut self, die: u32, ready: u64, begin: u64, bytes: u64) -> Span {
        let (channel, clock) = (die as usize % self.channels.len(), self.channel_clock());
        self.counts[die as usize].programs += 1;
        self.dies[die as usize].program(
            &self.times,
            &mut self.channels[channel],
            clock,
            ready,
            begin,
            bytes,
        )
    }

    /// Copies a page within the die, without any transfer.
    pub(crate) fn copyback(&mut self, die: u32, ready: u64) -> Span {
        let counts = &mut self.counts[die as usize];
        counts.reads += 1;
        counts.programs += 1;
        let duration = self.times.read + self.times.program;
        self.dies[die as usize].occupy(self.clock, ready, duration)
    }

    /// Erases for `duration`.
    pub(crate) fn erase(&mut self, die: u32, ready: u64, duration: u64, blocks: u64) -> Span {
        self.counts[die as usize].erases += blocks;
        self.dies[die as usize].occupy(self.clock, ready, duration)
    }
}
