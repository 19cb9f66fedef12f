//! Answers at the model's time, and an honest count of how late they really were.
//!
//! [`Pace`] is a heap of deadlines with a thread of its own: it sleeps until 60 µs before the next
//! one and then spins, because a sleeping thread alone is 25 µs late. [`Lateness`] counts how late
//! each answer was when it had been sent. [`LatencyHold`] keeps the processors out of deep sleep
//! states meanwhile, and [`Spinners`] out of any. A device without latencies uses none of this: no
//! thread is started.

mod clock;
mod hold;
mod lateness;

use std::{
    cmp::Ordering as Order,
    collections::BinaryHeap,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

pub use clock::Clock;
pub use hold::{LatencyHold, Spinners};
pub use lateness::{Lateness, LatenessLimit, LatenessReport, ParseLimitError};

/// How long before a deadline the thread stops sleeping. Waking up takes up to about 50 µs.
const SPIN: Duration = Duration::from_micros(60);
/// No deadline.
const NEVER: u64 = u64::MAX;

/// A job to do at a time. Its lateness counts until it has returned.
type Job = Box<dyn FnOnce() + Send>;

struct TimedJob {
    /// In nanoseconds of the [`Clock`]'s real time.
    deadline_ns: u64,
    /// Equal deadlines keep their order.
    sequence: u64,
    /// Whether it is an answer whose lateness counts.
    measured: bool,
    job: Job,
}

impl PartialEq for TimedJob {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Order::Equal
    }
}

impl Eq for TimedJob {}

impl PartialOrd for TimedJob {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}

impl Ord for TimedJob {
    /// The earliest is the greatest: it is on top of the heap.
    fn cmp(&self, other: &Self) -> Order {
        (other.deadline_ns, other.sequence).cmp(&(self.deadline_ns, self.sequence))
    }
}

#[derive(Default)]
struct Deadlines {
    heap: BinaryHeap<TimedJob>,
    sequence: u64,
    sleeping: bool,
}

struct Shared {
    clock: Clock,
    lateness: Arc<Lateness>,
    queue: Mutex<Deadlines>,
    wake: Condvar,
    /// The next deadline, for the thread to see while it spins.
    earliest_ns: AtomicU64,
    stop: AtomicBool,
}

/// The heap of deadlines.
pub struct Pace {
    shared: Arc<Shared>,
    thread: OnceLock<Mutex<Option<JoinHandle<()>>>>,
}

impl std::fmt::Debug for Pace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pace")
            .field("waiting", &self.waiting())
            .finish_non_exhaustive()
    }
}

impl Pace {
    /// An empty heap. Its thread starts with the first deadline.
    #[must_use]
    pub fn new(clock: Clock, lateness: Arc<Lateness>) -> Self {
        let queue = Deadlines {
            // Enough for the deepest queues expected; it grows if they are deeper still.
            heap: BinaryHeap::with_capacity(4096),
            ..Deadlines::default()
        };
        Self {
            shared: Arc::new(Shared {
                clock,
                lateness,
                queue: Mutex::new(queue),
                wake: Condvar::new(),
                earliest_ns: AtomicU64::new(NEVER),
                stop: AtomicBool::new(false),
            }),
            thread: OnceLock::new(),
        }
    }

    /// Send an answer at `deadline_ns` (real time of the clock). `job` runs on the heap's thread
    /// and should return as soon as the answer is sent: that is when its lateness is taken.
    pub fn answer_at(&self, deadline_ns: u64, job: impl FnOnce() + Send + 'static) {
        self.push(deadline_ns, true, Box::new(job));
    }

    /// Run a job at `deadline_ns` that is no answer.
    pub fn run_at(&self, deadline_ns: u64, job: impl FnOnce() + Send + 'static) {
        self.push(deadline_ns, false, Box::new(job));
    }

    /// Deadlines that have not come yet.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.lock().heap.len()
    }

    fn push(&self, deadline_ns: u64, measured: bool, job: Job) {
        self.thread.get_or_init(|| {
            let shared = Arc::clone(&self.shared);
            let spawned = std::thread::Builder::new()
                .name("flashd-pace".to_owned())
                .spawn(move || shared.run())
                .expect("a process that cannot start a thread cannot go on");
            Mutex::new(Some(spawned))
        });
        let mut queue = self.shared.lock();
        queue.sequence += 1;
        let sequence = queue.sequence;
        queue.heap.push(TimedJob {
            deadline_ns,
            sequence,
            measured,
            job,
        });
        let earliest = self.shared.earliest_ns.load(Ordering::Relaxed);
        if deadline_ns < earliest {
            self.shared
                .earliest_ns
                .store(deadline_ns, Ordering::Release);
            if queue.sleeping {
                self.shared.wake.notify_one();
            }
        }
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        // With the lock, so that the thread is either before its check or in its sleep.
        drop(self.shared.lock());
        self.shared.wake.notify_one();
        let thread = self.thread.get().and_then(|thread| {
            let mut thread = thread.lock().unwrap_or_else(|e| e.into_inner());
            thread.take()
        });
        // The last owner may be an answer on the thread itself.
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Deadlines> {
        self.queue.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn run(&self) {
        // 1 ns of slack instead of 50 µs: a timed sleep then ends when it should.
        if let Some(slack) = std::num::NonZeroU64::new(1) {
            let _ = rustix::thread::set_current_timer_slack(Some(slack));
        }
        let mut due: Vec<TimedJob> = Vec::with_capacity(1024);
        while !self.stop.load(Ordering::Acquire) {
            self.collect(&mut due);
            for entry in due.drain(..) {
                (entry.job)();
                if entry.measured {
                    let late = self.clock.real_ns().saturating_sub(entry.deadline_ns);
                    self.lateness.count(late);
                }
            }
            let earliest = self.earliest_ns.load(Ordering::Acquire);
            if earliest > self.clock.real_ns().saturating_add(SPIN.as_nanos() as u64) {
                self.sleep();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// Take the entries that are due.
    fn collect(&self, due: &mut Vec<TimedJob>) {
        if self.earliest_ns.load(Ordering::Acquire) > self.clock.real_ns() {
            return;
        }
        let mut queue = self.lock();
        let now = self.clock.real_ns();
        while queue
            .heap
            .peek()
            .is_some_and(|next| next.deadline_ns <= now)
        {
            due.extend(queue.heap.pop());
        }
        let next = queue.heap.peek().map_or(NEVER, |next| next.deadline_ns);
        self.earliest_ns.store(next, Ordering::Release);
    }

    fn sleep(&self) {
        let mut queue = self.lock();
        if self.stop.load(Ordering::Acquire) {
            return;
        }
        let next = queue.heap.peek().map_or(NEVER, |next| next.deadline_ns);
        let until = next.saturating_sub(self.clock.real_ns() + SPIN.as_nanos() as u64);
        if until == 0 {
            return;
        }
        queue.sleeping = true;
        let (mut queue, _) = self
            .wake
            .wait_timeout(queue, Duration::from_nanos(until.min(3_600_000_000_000)))
            .unwrap_or_else(|e| e.into_inner());
        queue.sleeping = false;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn answers_come_in_the_order_of_their_deadlines_and_not_early() {
        let clock = Clock::new(1.0, 0).unwrap();
        let lateness = Arc::new(Lateness::new());
        let pace = Pace::new(clock.clone(), Arc::clone(&lateness));
        let (sender, answers) = mpsc::channel();
        let now = clock.real_ns();
        for (index, after) in [3_000_000, 1_000_000, 2_000_000, 2_000_000]
            .into_iter()
            .enumerate()
        {
            let sender = sender.clone();
            let deadline = now + after;
            let clock = clock.clone();
            pace.answer_at(deadline, move || {
                sender.send((index, clock.real_ns() >= deadline)).unwrap();
            });
        }
        let order: Vec<(usize, bool)> = answers.iter().take(4).collect();
        assert_eq!(order, [(1, true), (2, true), (3, true), (0, true)]);
        drop(pace);
        assert_eq!(lateness.report().answers, 4);
    }

    #[test]
    fn nothing_waits_forever_and_dropping_ends_the_thread() {
        let clock = Clock::new(1.0, 0).unwrap();
        let pace = Pace::new(clock.clone(), Arc::new(Lateness::new()));
        pace.answer_at(NEVER - 1, || panic!("it is centuries away"));
        let (sender, answer) = mpsc::channel();
        pace.answer_at(0, move || sender.send(()).unwrap());
        answer.recv().unwrap();
        assert_eq!(pace.waiting(), 1);
    }
}
