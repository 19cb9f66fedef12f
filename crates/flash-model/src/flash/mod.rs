//! Dies and channels with their timelines.

mod calendar;
mod cells;
mod die;
mod rate;

pub(crate) use calendar::Calendar;
pub(crate) use cells::{BITS_MAX, CellPage, PageTimes};
pub(crate) use die::{Die, DieTimes, PageProgram, PageRead, Planes, Span, SuspendTimes, Tail};
pub(crate) use rate::Rate;

/// The place of a page, as far as a read of it depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PagePlace {
    pub(crate) die: u32,
    pub(crate) page: CellPage,
    /// The planes that hold the wanted bytes.
    pub(crate) planes: Planes,
}

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

/// A die whose array is slower than the others'.
#[derive(Clone, Copy, Debug)]
struct SlowDie {
    die: u32,
    factor: f64,
    /// Of all dies, multiplied.
    times: DieTimes,
}

/// All dies and channels. Die `d` is on channel `d % channels`.
#[derive(Clone, Debug)]
pub(crate) struct Flash {
    pub(crate) times: DieTimes,
    pub(crate) dies: Vec<Die>,
    pub(crate) channels: Vec<Calendar>,
    pub(crate) counts: Vec<DieCounts>,
    /// Dies that are slower than the others, by number.
    slow: Vec<SlowDie>,
    /// Of the slowest page, on a die that is not slow.
    longest_program: u64,
    /// No operation begins before this any more.
    pub(crate) clock: u64,
}

impl Flash {
    /// Returns dies that have as many arrays each.
    pub(crate) fn new(times: DieTimes, dies: u32, channels: u32, arrays: u32) -> Self {
        Self {
            times,
            dies: vec![Die::new(arrays); dies as usize],
            channels: vec![Calendar::default(); channels as usize],
            counts: vec![DieCounts::default(); dies as usize],
            slow: Vec::new(),
            longest_program: times.program.longest(),
            clock: 0,
        }
    }

    /// Lets the array of a die take `factor` times as long for what it is given from now on.
    pub(crate) fn slow_down(&mut self, die: u32, factor: f64) {
        self.slow.retain(|slow| slow.die != die);
        if factor != 1.0 {
            let times = DieTimes {
                read: self.times.read.map(|nanos| scaled(nanos, factor)),
                program: self.times.program.map(|nanos| scaled(nanos, factor)),
                erase: scaled(self.times.erase, factor),
                ..self.times
            };
            self.slow.push(SlowDie { die, factor, times });
            self.slow.sort_unstable_by_key(|slow| slow.die);
        }
    }

    /// Returns the dies that are slow, by number, and their factors.
    pub(crate) fn slow_dies(&self) -> Vec<(u32, f64)> {
        self.slow
            .iter()
            .map(|slow| (slow.die, slow.factor))
            .collect()
    }

    fn times_of(&self, die: u32) -> DieTimes {
        let slow = self.slow.iter().find(|slow| slow.die == die);
        slow.map_or(self.times, |slow| slow.times)
    }

    /// Returns the time from which on channels may still be booked: data for a program may have
    /// come while the array worked on the one before.
    fn channel_clock(&self) -> u64 {
        self.clock.saturating_sub(self.longest_program)
    }

    /// Reads for the host; counts a collision if the read has to wait for the die. Calls `arrived`
    /// with the time at which each piece is in the controller, and its bytes.
    pub(crate) fn host_read(
        &mut self,
        at: PagePlace,
        ready: u64,
        bytes: u64,
        arrived: &mut dyn FnMut(u64, u64),
    ) -> Span {
        let PagePlace { die, page, planes } = at;
        let read = PageRead {
            ready,
            page,
            planes,
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

    /// Senses a page of all planes and sends `bytes` of it to the controller.
    pub(crate) fn read(&mut self, die: u32, page: CellPage, ready: u64, bytes: u64) -> Span {
        let read = PageRead {
            ready,
            page,
            planes: Planes::ALL,
            bytes,
            urgent: false,
        };
        self.read_page(die, read, &mut |_, _| ())
    }

    fn read_page(&mut self, die: u32, read: PageRead, arrived: &mut dyn FnMut(u64, u64)) -> Span {
        let (channel, clock) = (die as usize % self.channels.len(), self.channel_clock());
        let times = self.times_of(die);
        self.counts[die as usize].reads += 1;
        self.dies[die as usize].read(&times, &mut self.channels[channel], clock, read, arrived)
    }

    /// Sends a page to the die and programs it.
    pub(crate) fn program(&mut self, die: u32, mut program: PageProgram) -> Span {
        let (channel, clock) = (die as usize % self.channels.len(), self.channel_clock());
        let times = self.times_of(die);
        self.counts[die as usize].programs += 1;
        // The array of a slow die is known for longer than channels look back.
        program.ready = program.ready.max(clock);
        self.dies[die as usize].program(&times, &mut self.channels[channel], clock, program)
    }

    /// Copies a page within the die, without any transfer.
    pub(crate) fn copyback(&mut self, die: u32, from: CellPage, to: CellPage, ready: u64) -> Span {
        let counts = &mut self.counts[die as usize];
        counts.reads += 1;
        counts.programs += 1;
        let times = self.times_of(die);
        let duration = times.read.of(from) + times.program.of(to);
        self.dies[die as usize].occupy(Tail::Program, self.clock, ready, duration)
    }

    /// Erases for `duration` on a die that is not slow.
    pub(crate) fn erase(&mut self, die: u32, ready: u64, duration: u64, blocks: u64) -> Span {
        self.counts[die as usize].erases += blocks;
        let slow = self.slow.iter().find(|slow| slow.die == die);
        let duration = slow.map_or(duration, |slow| scaled(duration, slow.factor));
        self.dies[die as usize].occupy(Tail::Erase, self.clock, ready, duration)
    }
}

fn scaled(nanos: u64, factor: f64) -> u64 {
    (nanos as f64 * factor) as u64
}
