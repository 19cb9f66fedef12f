//! Controller, host link, write buffer and flash: everything that namespaces share.
//!
//! Host reads are given to the dies when they arrive. Everything else is queued, and given to a die
//! when it is free: [`Core::step`] does that for one operation. Going through time this way keeps
//! the answers exact: the answer to a command never changes afterwards.

mod buffer;
mod intake;
mod pages;
mod queue;
mod read_cache;
mod tickets;
mod traffic;

use self::{
    intake::Intake,
    queue::{Candidate, DieQueues},
};
pub(crate) use self::{
    pages::PagesInFlight,
    queue::{DieWork, Owner, QueuedOperation},
    read_cache::{PageName, ReadCache},
    tickets::Tickets,
    traffic::{Cause, Traffic},
};
use crate::{
    command::Ticket,
    flash::{Calendar, Die, Flash, PagePlace, PageProgram, Planes, Span},
    profile::{CommandTimes, Profile, Timing},
};

/// One step through time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advance {
    /// A step of the core's own.
    Own,
    /// An operation of a migration's task was given to its die, and ends at `end`.
    OfTask { task: u32, end: u64 },
}

/// The parts of the device that namespaces share.
#[derive(Clone, Debug)]
pub(crate) struct Core {
    pub(crate) timing: Timing,
    /// Whether all operations take no time.
    pub(crate) instant: bool,
    pub(crate) flash: Flash,
    pub(crate) intake: Intake,
    pub(crate) tickets: Tickets,
    /// One for each namespace; empty for conventional ones.
    pub(crate) in_flight: Vec<PagesInFlight>,
    pub(crate) traffic: Traffic,
    /// Bytes of a page of all planes.
    pub(crate) unit: u64,
    /// Those of them that planes which read on their own hold each.
    array_unit: u64,
    /// The host link's direction to the host.
    pub(crate) link_out: Calendar,
    pub(crate) read_cache: ReadCache,
    queues: DieQueues,
    /// The controller takes no further command before this.
    controller_free: u64,
    /// The limit of draining lets nothing begin before this.
    drain_free: u64,
}

impl Core {
    pub(crate) fn new(profile: &Profile) -> Self {
        let geometry = profile.geometry();
        let timing = profile.timing;
        let arrays = if profile.independent_planes {
            geometry.planes
        } else {
            1
        };
        Self {
            flash: Flash::new(timing.die, geometry.dies(), geometry.channels, arrays),
            array_unit: geometry.program_unit().0 / u64::from(arrays),
            instant: profile.is_instant(),
            intake: Intake::new(profile.buffer_size().0, timing.link),
            tickets: Tickets::default(),
            in_flight: Vec::new(),
            traffic: Traffic::default(),
            unit: geometry.program_unit().0,
            link_out: Calendar::default(),
            read_cache: ReadCache::new(profile.read_cache_pages),
            queues: DieQueues::new(geometry.dies()),
            controller_free: 0,
            drain_free: 0,
            timing,
        }
    }

    /// Has the controller take a command at `now`; returns when it begins to work on it.
    pub(crate) fn take_command(&mut self, now: u64, times: CommandTimes) -> u64 {
        let start = now.max(self.controller_free);
        self.controller_free = start + times.serial;
        self.controller_free + times.latency
    }

    /// Has the controller take a short command; returns when it begins to work on it.
    pub(crate) fn take_short(&mut self, now: u64) -> u64 {
        self.take_command(now, self.timing.write)
    }

    /// Reads `bytes` of a page for the host, from the cache or from flash; returns when the host
    /// has them.
    pub(crate) fn host_read(
        &mut self,
        name: PageName,
        at: PagePlace,
        ready: u64,
        bytes: u64,
    ) -> u64 {
        if self.read_cache.is_off() {
            return self.sense_and_send(at, ready, bytes);
        }
        let arrived = self.read_cache.arrival(name).unwrap_or_else(|| {
            // The cache takes whole pages.
            self.traffic.sensed[Cause::Host as usize] += self.unit;
            let planes = Planes::ALL;
            let at = PagePlace { planes, ..at };
            let span = self.flash.host_read(at, ready, self.unit, &mut |_, _| ());
            self.read_cache.insert(name, span.end);
            span.end
        });
        self.send_to_host(ready.max(arrived), bytes)
    }

    /// Senses a page for the host and sends `bytes` of it; returns when the host has them.
    fn sense_and_send(&mut self, at: PagePlace, ready: u64, bytes: u64) -> u64 {
        self.traffic.sensed[Cause::Host as usize] += bytes;
        let (clock, link, link_out) = (self.flash.clock, self.timing.link, &mut self.link_out);
        let mut done = ready;
        self.flash
            .host_read(at, ready, bytes, &mut |arrived, part| {
                done = link_out.reserve(clock, arrived, link.time(part)).1;
            });
        done
    }

    /// Returns the planes that hold the bytes of a page of all planes from byte `from` on.
    pub(crate) const fn planes(&self, from: u64, bytes: u64) -> Planes {
        Planes::holding(from, bytes, self.array_unit)
    }

    /// Sends bytes that are in the controller's memory; returns when the host has them.
    pub(crate) fn send_to_host(&mut self, ready: u64, bytes: u64) -> u64 {
        self.link_out
            .reserve(self.flash.clock, ready, self.timing.link.time(bytes))
            .1
    }

    /// Queues an operation for a die.
    pub(crate) fn queue(&mut self, die: u32, mut entry: QueuedOperation) {
        if entry.number > 0 {
            entry.number = self.tickets.number();
        }
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

    /// Returns whether nothing is queued or on its way in.
    pub(crate) fn is_idle(&self) -> bool {
        self.queues.is_empty() && self.intake_event().is_none()
    }

    /// Returns when dies, channels and link are free, if nothing else comes.
    pub(crate) fn free_at(&self) -> u64 {
        let dies = self.flash.dies.iter().map(Die::free_at);
        let ways = self.flash.channels.iter();
        let ways = ways.chain([&self.intake.link, &self.link_out]);
        let ends = dies.chain(ways.map(Calendar::free_at));
        ends.max().unwrap_or_default()
    }

    fn intake_event(&self) -> Option<u64> {
        self.intake.next_event(&self.queues, self.flash.clock)
    }

    /// Takes the next step, if that is at `now` or before: gives one operation to its die, or lets
    /// in data that waits for room.
    pub(crate) fn step(&mut self, now: u64) -> Option<Advance> {
        if now < self.queues.quiet_until {
            return None;
        }
        let (intake, next) = (self.intake_event(), self.next_candidate());
        let begins = next.map_or(u64::MAX, |next| next.at);
        let at = begins.min(intake.unwrap_or(u64::MAX));
        if at > now || at == u64::MAX {
            self.queues.quiet_until = at;
            return None;
        }
        self.flash.clock = self.flash.clock.max(at);
        match next {
            Some(next) if intake.is_none_or(|intake| next.at < intake) => Some(self.commit(next)),
            _ => {
                let clock = self.flash.clock;
                self.intake
                    .go_on(&mut self.queues, &mut self.tickets, clock, at);
                Some(Advance::Own)
            }
        }
    }

    /// Returns when something happens next by itself.
    pub(crate) fn next_event(&self) -> Option<u64> {
        let begins = self.next_candidate().map(|next| next.at);
        let events = [begins, self.intake_event(), self.tickets.next()];
        events.into_iter().flatten().min()
    }

    fn commit(&mut self, next: Candidate) -> Advance {
        let Some(entry) = self.queues.take(next) else {
            return Advance::Own;
        };
        if entry.is_drained() {
            self.drain_free = next.at.max(self.drain_free) + self.timing.drain.time(entry.bytes);
        }
        let span = self.run(next, &entry);
        self.queues.served(next.die, span.end);
        self.intake.buffer.release_at(span.end, entry.release);
        if entry.number > 0 {
            self.tickets
                .programmed(entry.number, span.end, self.flash.clock);
        }
        match entry.owner {
            Owner::Nobody => Advance::Own,
            Owner::Page { ns, zone, page } => {
                self.in_flight[ns as usize].committed(zone, page, span.end);
                Advance::Own
            }
            Owner::Task(task) => Advance::OfTask {
                task,
                end: span.end,
            },
        }
    }

    fn run(&mut self, next: Candidate, entry: &QueuedOperation) -> Span {
        let die = next.die;
        let cause = entry.cause as usize;
        match entry.work {
            DieWork::Read => {
                self.traffic.sensed[cause] += entry.bytes;
                self.flash.read(die, entry.page, entry.ready, entry.bytes)
            }
            DieWork::Program => {
                self.traffic.programmed[cause] += self.unit;
                let mut ready = entry.ready;
                if matches!(entry.cause, Cause::Gc | Cause::Wear | Cause::Fold) {
                    // It programs the data that was just read from this die.
                    ready = ready.max(self.flash.dies[die as usize].last_data_out());
                }
                let program = PageProgram {
                    ready,
                    begin: next.at,
                    page: entry.page,
                    bytes: entry.bytes,
                };
                self.flash.program(die, program)
            }
            DieWork::Copyback { from } => {
                self.traffic.copied_back[cause] += self.unit;
                self.flash.copyback(die, from, entry.page, entry.ready)
            }
            DieWork::Erase { nanos, blocks } => {
                self.flash.erase(die, entry.ready, nanos, u64::from(blocks))
            }
        }
    }

    /// Counts an operation that takes no time.
    pub(crate) fn count_instant(&mut self, die: u32, entry: &QueuedOperation) {
        let (cause, counts) = (entry.cause as usize, &mut self.flash.counts[die as usize]);
        match entry.work {
            DieWork::Read => {
                counts.reads += 1;
                self.traffic.sensed[cause] += entry.bytes;
            }
            DieWork::Program => {
                counts.programs += 1;
                self.traffic.programmed[cause] += self.unit;
            }
            DieWork::Copyback { .. } => {
                counts.reads += 1;
                counts.programs += 1;
                self.traffic.copied_back[cause] += self.unit;
            }
            DieWork::Erase { blocks, .. } => counts.erases += u64::from(blocks),
        }
    }

    /// Begins a write that comes in.
    pub(crate) fn begin_intake(&mut self, ready: u64, transfer: bool) {
        self.intake.begin(ready, transfer);
    }

    /// Takes bytes of the write into the write buffer, of a zone or not.
    pub(crate) fn take_in(&mut self, bytes: u64, zone: Option<(u32, u32)>) {
        let clock = self.flash.clock;
        self.intake.take_in(&mut self.queues, clock, bytes, zone);
    }

    /// Queues a program that needs all data taken in so far.
    pub(crate) fn queue_after_intake(&mut self, die: u32, mut entry: QueuedOperation) {
        if entry.number > 0 {
            entry.number = self.tickets.number();
        }
        self.intake.queue_program(&mut self.queues, die, entry);
    }

    /// Ends the write. `Ok`: when all of it is in the buffer. `programs`: its end waits for those
    /// from this number on.
    pub(crate) fn end_intake(&mut self, programs: Option<u64>) -> Result<u64, Ticket> {
        self.intake.end(&mut self.tickets, programs)
    }

    /// Forgets the operations that are queued for the pages of a zone that is reset, and the data
    /// on its way to it; `held` are the bytes of its pages that are not complete.
    pub(crate) fn drop_zone(&mut self, ns: u32, zone: u32, held: u64, now: u64) {
        let (bytes, mut numbers) = self.queues.drop_zone(ns, zone);
        self.free_room(bytes + held);
        self.intake.drop_zone(ns, zone, &mut numbers);
        for number in numbers {
            self.tickets.programmed(number, now, self.flash.clock);
        }
        self.in_flight[ns as usize].clear(zone);
    }

    /// Frees `bytes` of the write buffer that are not needed any more. Data that waits for room may
    /// come in at once, before the time that the last step found to be the next.
    pub(crate) fn free_room(&mut self, bytes: u64) {
        self.intake.buffer.forget(bytes);
        self.queues.quiet_until = 0;
    }
}
