//! Virtual time: threads that run, and a device that they wait for.
//!
//! A [`Program`] is a set of threads. [`Disk::run`] lets the thread run whose time has come; it does one step, which
//! takes no time, and says when it goes on: at a time, when a batch of its commands is done, or when another thread
//! wakes it. Time jumps to the next of these. What happens at the same time happens in the order in which it was
//! arranged, so the same program on the same device gives the same result, to the nanosecond.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
};

use flash_model::{Command, Device, Done, Refused, Stats, Ticket};
use units::Nanos;

use crate::block::Full;

/// The namespace that everything lies on.
const NAMESPACE: usize = 0;

/// Commands whose end somebody waits for, together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch(usize);

/// When a thread goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// At this time; at once, if it has passed.
    At(Nanos),
    /// When all commands of the batch are done. The batch is used up.
    Done(Batch),
    /// When fewer commands are under way than the device's queue takes.
    Slot,
    /// When another thread wakes it ([`Disk::wake`]).
    Parked,
}

/// Threads.
pub trait Program {
    /// Lets a thread do its next step.
    ///
    /// # Errors
    ///
    /// The step cannot be done; the run ends.
    fn step(&mut self, thread: usize, disk: &mut Disk) -> Result<Next, Failure>;

    /// Whether there is nothing more to do; asked after each step.
    fn is_over(&self) -> bool;
}

/// The end of a run that cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The device refused a command.
    #[error("the device refused {command}: {source}")]
    Refused {
        /// The command.
        command: String,
        /// Why.
        source: Refused,
    },
    /// No space for a write.
    #[error(transparent)]
    Full(#[from] Full),
    /// Cleaning was needed, and would have freed nothing.
    #[error("no section is worth cleaning: the volume holds more than its reserve allows")]
    NothingToClean,
    /// Every thread waits for another.
    #[error("every thread waits for another")]
    Stuck,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Elapsed {
    /// The time that it took.
    pub time: Nanos,
    /// The device's counters over this time.
    pub stats: Stats,
    /// Steps of threads.
    pub steps: u64,
    /// Commands to the device.
    pub commands: u64,
}

impl Elapsed {
    /// The share of the time in which the dies were busy, in percent, on average.
    #[must_use]
    pub fn busy_percent(&self) -> f64 {
        let busy: u64 = self.stats.dies.iter().map(|die| die.busy_ns).sum();
        let most = self.stats.dies.len() as f64 * self.time.0 as f64;
        100.0 * busy as f64 / most.max(1.0)
    }

    /// Bytes in a second, in MB/s (10⁶ bytes).
    #[must_use]
    pub fn megabytes_per_second(&self, bytes: u64) -> f64 {
        bytes as f64 * 1e3 / (self.time.0 as f64).max(1.0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Run(usize),
    Ended(usize),
}

#[derive(Clone, Copy, Debug, Default)]
struct BatchState {
    left: usize,
    waiter: Option<usize>,
    in_use: bool,
}

/// A device and what is arranged for the time to come.
#[derive(Clone, Debug)]
pub struct Disk {
    device: Device,
    queue_depth: usize,
    now: u64,
    /// (time, number, event): of events at one time, the one that was arranged first.
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    arranged: u64,
    /// Commands whose end the device does not know yet.
    later: HashMap<Ticket, usize>,
    /// The batches of each command under way.
    commands: Vec<Vec<Batch>>,
    free_commands: Vec<usize>,
    batches: Vec<BatchState>,
    waiting_for_slot: Vec<usize>,
    in_flight: usize,
    submitted: u64,
}

impl Disk {
    /// A device that nothing has been arranged for; `queue_depth`: commands at which [`Next::Slot`] waits.
    #[must_use]
    pub fn new(device: Device, queue_depth: usize) -> Self {
        Self {
            now: device.stats().now_ns.0,
            device,
            queue_depth,
            events: BinaryHeap::new(),
            arranged: 0,
            later: HashMap::new(),
            commands: Vec::new(),
            free_commands: Vec::new(),
            batches: Vec::new(),
            waiting_for_slot: Vec::new(),
            in_flight: 0,
            submitted: 0,
        }
    }

    /// The same with another queue.
    #[must_use]
    pub fn with_queue_depth(mut self, queue_depth: usize) -> Self {
        self.queue_depth = queue_depth;
        self
    }

    /// The time.
    #[must_use]
    pub const fn now(&self) -> Nanos {
        Nanos(self.now)
    }

    /// The device.
    #[must_use]
    pub const fn device(&self) -> &Device {
        &self.device
    }

    /// Whether the device has zones.
    #[must_use]
    pub fn is_zoned(&self) -> bool {
        !self.device.zones(NAMESPACE).is_empty()
    }

    /// Whether the queue takes another command before [`Next::Slot`] would wait.
    #[must_use]
    pub const fn has_slot(&self) -> bool {
        self.in_flight < self.queue_depth
    }

    /// Commands so far.
    #[must_use]
    pub const fn submitted(&self) -> u64 {
        self.submitted
    }

    /// Begins a batch. It has to be waited for, once.
    pub fn begin(&mut self) -> Batch {
        let free = self.batches.iter().position(|batch| !batch.in_use);
        let index = free.unwrap_or_else(|| {
            self.batches.push(BatchState::default());
            self.batches.len() - 1
        });
        self.batches[index] = BatchState {
            in_use: true,
            ..BatchState::default()
        };
        Batch(index)
    }

    /// Submits a command that these batches wait for.
    ///
    /// # Errors
    ///
    /// The device refused it.
    pub fn submit(&mut self, command: &Command<'_>, batches: &[Batch]) -> Result<(), Failure> {
        let accepted = self.device.submit(Nanos(self.now), NAMESPACE, command);
        let accepted = accepted.map_err(|source| Failure::Refused {
            command: format!("{command:?}"),
            source,
        })?;
        let number = self.free_commands.pop().unwrap_or_else(|| {
            self.commands.push(Vec::new());
            self.commands.len() - 1
        });
        self.commands[number].extend_from_slice(batches);
        for batch in batches {
            self.batches[batch.0].left += 1;
        }
        self.in_flight += 1;
        self.submitted += 1;
        match accepted.done {
            Done::At(at) => self.arrange(at.0, Event::Ended(number)),
            Done::Later(ticket) => drop(self.later.insert(ticket, number)),
        }
        Ok(())
    }

    /// Lets a parked thread go on.
    pub fn wake(&mut self, thread: usize) {
        self.arrange(self.now, Event::Run(thread));
    }

    /// Lets the threads run until the program is over.
    ///
    /// # Errors
    ///
    /// A step failed, or no thread can go on.
    pub fn run(&mut self, program: &mut impl Program, threads: usize) -> Result<Elapsed, Failure> {
        self.settle();
        let (begun, before) = (self.now, self.device.stats());
        let (mut steps, submitted) = (0, self.submitted);
        (0..threads).for_each(|thread| self.wake(thread));
        while !program.is_over() {
            let thread = self.next_thread()?;
            steps += 1;
            match program.step(thread, self)? {
                Next::At(at) => self.arrange(at.0.max(self.now), Event::Run(thread)),
                Next::Done(batch) => self.wait(thread, batch),
                Next::Slot if self.has_slot() => self.wake(thread),
                Next::Slot => self.waiting_for_slot.push(thread),
                Next::Parked => {}
            }
        }
        Ok(Elapsed {
            time: Nanos(self.now - begun),
            stats: self.device.stats().since(&before),
            steps,
            commands: self.submitted - submitted,
        })
    }

    /// Lets time pass in which no command comes: the device may tidy up.
    pub fn idle(&mut self, time: Nanos) {
        self.settle();
        self.now += time.0;
        self.device.advance(Nanos(self.now), &mut Vec::new());
    }

    /// Lets the device end everything, and forgets the threads of an earlier run.
    fn settle(&mut self) {
        let ends = self
            .events
            .iter()
            .filter_map(|Reverse((at, _, event))| matches!(event, Event::Ended(_)).then_some(*at));
        self.now = ends.max().unwrap_or_default().max(self.now);
        let mut finished = Vec::new();
        self.device.advance(Nanos(self.now), &mut finished);
        while let Some(next) = self.device.next_event().filter(|_| !self.later.is_empty()) {
            self.now = self.now.max(next.0);
            self.device.advance(Nanos(self.now), &mut finished);
            for (ticket, _) in finished.drain(..) {
                self.later.remove(&ticket);
            }
        }
        self.events.clear();
        self.later.clear();
        self.batches.clear();
        self.commands.clear();
        self.free_commands.clear();
        self.waiting_for_slot.clear();
        self.in_flight = 0;
    }

    fn arrange(&mut self, at: u64, event: Event) {
        self.arranged += 1;
        self.events.push(Reverse((at, self.arranged, event)));
    }

    /// Lets time pass until a thread can run.
    fn next_thread(&mut self) -> Result<usize, Failure> {
        let mut finished = Vec::new();
        loop {
            let event = self.events.peek().map(|Reverse((at, ..))| *at);
            // The end of every command is known: the device goes on by itself.
            let device = match self.later.is_empty() {
                true => None,
                false => self.device.next_event().map(Nanos::get),
            };
            let next = event
                .into_iter()
                .chain(device)
                .min()
                .ok_or(Failure::Stuck)?;
            self.now = self.now.max(next);
            self.device.advance(Nanos(self.now), &mut finished);
            for (ticket, at) in finished.drain(..) {
                if let Some(number) = self.later.remove(&ticket) {
                    self.arrange(at.0, Event::Ended(number));
                }
            }
            let due = |Reverse((at, ..)): &Reverse<(u64, u64, Event)>| *at <= self.now;
            if self.events.peek().is_some_and(due)
                && let Some(Reverse((_, _, event))) = self.events.pop()
            {
                match event {
                    Event::Run(thread) => return Ok(thread),
                    Event::Ended(number) => self.end(number),
                }
            }
        }
    }

    fn end(&mut self, number: usize) {
        self.in_flight -= 1;
        let mut batches = std::mem::take(&mut self.commands[number]);
        for batch in batches.drain(..) {
            let state = &mut self.batches[batch.0];
            state.left -= 1;
            if state.left == 0
                && let Some(thread) = state.waiter
            {
                state.in_use = false;
                self.wake(thread);
            }
        }
        // Given back for its memory.
        self.commands[number] = batches;
        self.free_commands.push(number);
        if self.has_slot() {
            for thread in std::mem::take(&mut self.waiting_for_slot) {
                self.wake(thread);
            }
        }
    }

    fn wait(&mut self, thread: usize, batch: Batch) {
        let state = &mut self.batches[batch.0];
        if state.left == 0 {
            state.in_use = false;
            self.wake(thread);
        } else {
            state.waiter = Some(thread);
        }
    }
}

#[cfg(test)]
mod tests;
