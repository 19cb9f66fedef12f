//! Controller, host link, write buffer and flash: everything that namespaces share.
//!
//! Host reads are given to the dies when they arrive. Everything else is queued, and given to a die
//! when it is free: [`Core::step`] does that for one operation. Going through time this way keeps
//! the answers exact: what a command is told never changes afterwards.

mod buffer;
mod intake;
mod pages;
mod queue;
mod tickets;

pub(crate) use self::{
    buffer::WriteBuffer,
    intake::{Intake, flush_entry},
    pages::PagesInFlight,
    queue::{Candidate, Entry, Owner, Queues, Work},
    tickets::Tickets,
};
use crate::{
    flash::{Calendar, Flash, Span},
    migration::Tasks,
    profile::{CommandTimes, Profile, Timing},
};

/// Why the flash had to do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A read or write of the host.
    Host,
    /// Garbage collection of a conventional namespace.
    Gc,
    /// Wear levelling of a conventional namespace.
    Wear,
    /// Copy or migration inside the device.
    Migration,
    /// The rest of a zone that was finished.
    Padding,
    /// A page that was not complete when a flush wanted it.
    Flush,
}

impl Cause {
    /// How many there are.
    pub(crate) const COUNT: usize = 6;
}

/// Bytes that went into and out of the cells, by [`Cause`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) sensed: [u64; Cause::COUNT],
    pub(crate) programmed: [u64; Cause::COUNT],
    pub(crate) copied_back: [u64; Cause::COUNT],
}

/// What namespaces share.
#[derive(Clone, Debug)]
pub(crate) struct Core {
    pub(crate) timing: Timing,
    pub(crate) flash: Flash,
    pub(crate) buffer: WriteBuffer,
    pub(crate) tickets: Tickets,
    pub(crate) tasks: Tasks,
    /// One for each namespace; empty for conventional ones.
    pub(crate) in_flight: Vec<PagesInFlight>,
    pub(crate) traffic: Traffic,
    /// Bytes of a page of all planes.
    pub(crate) unit: u64,
    pub(crate) link_in: Calendar,
    pub(crate) link_out: Calendar,
    queues: Queues,
    intake: Intake,
    /// The controller takes no further command before this.
    controller_free: u64,
    /// The limit of draining lets nothing begin before this.
    drain_free: u64,
}

impl Core {
    pub(crate) fn new(profile: &Profile) -> Self {
        let geometry = profile.geometry();
        let timing = profile.timing;
        Self {
            flash: Flash::new(timing.die, geometry.dies(), geometry.channels),
            buffer: WriteBuffer::new(profile.buffer_size().0),
            tickets: Tickets::default(),
            tasks: Tasks::new(timing.migration_window),
            in_flight: Vec::new(),
            traffic: Traffic::default(),
            unit: geometry.program_unit().0,
            link_in: Calendar::default(),
            link_out: Calendar::default(),
            queues: Queues::new(geometry.dies()),
            intake: Intake::default(),
            controller_free: 0,
            drain_free: 0,
            timing,
        }
    }

    /// The controller takes a command at `now`; returns when it gets to work on it.
    pub(crate) fn take_command(&mut self, now: u64, times: CommandTimes) -> u64 {
        let start = now.max(self.controller_free);
        self.controller_free = start + times.serial;
        self.controller_free + times.latency
    }

    /// Senses a page for the host and sends `bytes` of it; returns when the host has them.
    pub(crate) fn host_read(&mut self, die: u32, ready: u64, bytes: u64) -> u64 {
        self.traffic.sensed[Cause::Host as usize] += bytes;
        let (clock, link, link_out) = (self.flash.clock, self.timing.link, &mut self.link_out);
        let mut done = ready;
        self.flash
            .host_read(die, ready, bytes, &mut |arrived, piece| {
                done = link_out.reserve(clock, arrived, link.time(piece)).1;
            });
        done
    }

    /// Sends bytes that are in the controller's memory; returns when the host has them.
    pub(crate) fn send_to_host(&mut self, ready: u64, bytes: u64) -> u64 {
        self.link_out
            .reserve(self.flash.clock, ready, self.timing.link.time(bytes))
            .1
    }

    /// Queues an operation for a die.
    pub(crate) fn queue(&mut self, die: u32, entry: Entry) {
        self.queues.push(die, entry);
    }

    fn next_candidate(&self) -> Option<Candidate> {
        if self.queues.is_empty() {
            return None;
        }
        let flash = &self.flash;
        self.queues
            .next(self.timing.program_wait, self.drain_free, |die| {
                flash.dies[die as usize].free_at()
            })
    }

    /// Does what comes next, if that is at `now` or before: gives one operation to its die, or
    /// lets in data that waits for room.
    pub(crate) fn step(&mut self, now: u64) -> bool {
        if now < self.queues.quiet_until {
            return false;
        }
        let (intake, next) = (self.intake_event(), self.next_candidate());
        let begins = next.map_or(u64::MAX, |next| next.at);
        let at = begins.min(intake.unwrap_or(u64::MAX));
        if at > now || at == u64::MAX {
            self.queues.quiet_until = at;
            return false;
        }
        self.flash.clock = self.flash.clock.max(at);
        match next {
            Some(next) if intake.is_none_or(|intake| next.at < intake) => self.commit(next),
            _ => self.go_on_with_intake(at),
        }
        true
    }

    /// When something happens next by itself.
    pub(crate) fn next_event(&self) -> Option<u64> {
        let begins = self.next_candidate().map(|next| next.at);
        let events = [begins, self.intake_event(), self.tickets.next()];
        events.into_iter().flatten().min()
    }

    fn commit(&mut self, next: Candidate) {
        let Some(entry) = self.queues.take(next) else {
            return;
        };
        if entry.is_drained() {
            self.drain_free = next.at.max(self.drain_free) + self.timing.drain.time(entry.bytes);
        }
        let span = self.run(next, &entry);
        self.queues.served(next.die, span.end);
        self.buffer.release_at(span.end, entry.release);
        if entry.number > 0 {
            self.tickets.programmed(entry.number, span.end);
        }
        match entry.owner {
            Owner::Nobody => {}
            Owner::Page { ns, zone, page } => {
                self.in_flight[ns as usize].committed(zone, page, span.end);
            }
            Owner::Task(task) => self.task_step(task, span.end),
        }
    }

    fn run(&mut self, next: Candidate, entry: &Entry) -> Span {
        let die = next.die;
        let cause = entry.cause as usize;
        match entry.work {
            Work::Read => {
                self.traffic.sensed[cause] += entry.bytes;
                self.flash.read(die, entry.ready, entry.bytes)
            }
            Work::Program => {
                self.traffic.programmed[cause] += self.unit;
                let mut ready = entry.ready;
                if matches!(entry.cause, Cause::Gc | Cause::Wear) {
                    // It programs what was just read from this die.
                    ready = ready.max(self.flash.dies[die as usize].last_data_out());
                }
                self.flash.program(die, ready, next.at, entry.bytes)
            }
            Work::Copyback => {
                self.traffic.copied_back[cause] += self.unit;
                self.flash.copyback(die, entry.ready)
            }
            Work::Erase { nanos, blocks } => {
                self.flash.erase(die, entry.ready, nanos, u64::from(blocks))
            }
        }
    }

    /// Counts an operation that takes no time.
    pub(crate) fn count_instant(&mut self, die: u32, entry: &Entry) {
        let (cause, counts) = (entry.cause as usize, &mut self.flash.counts[die as usize]);
        match entry.work {
            Work::Read => {
                counts.reads += 1;
                self.traffic.sensed[cause] += entry.bytes;
            }
            Work::Program => {
                counts.programs += 1;
                self.traffic.programmed[cause] += self.unit;
            }
            Work::Copyback => {
                counts.reads += 1;
                counts.programs += 1;
                self.traffic.copied_back[cause] += self.unit;
            }
            Work::Erase { blocks, .. } => counts.erases += u64::from(blocks),
        }
    }

    /// One operation of a migration's task was given to its die, and ends at `end`.
    fn task_step(&mut self, task: u32, end: u64) {
        self.tasks.step(task, end, &mut self.tickets);
        while let Some((die, entry)) = self.tasks.next_program(task) {
            self.queue(die, entry);
        }
    }
}
