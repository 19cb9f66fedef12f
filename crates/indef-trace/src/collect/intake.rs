//! The records of the programs' ring, read by a thread of its own and added up.
//!
//! The ring is small, and the user of a collector may be busy for seconds (a full disk, a locked
//! store). The thread is not: it looks often enough that the ring does not fill at millions of
//! records a second, and adds up what it reads. What it holds is bounded ([`Limits`]); beyond that,
//! accesses are counted as lost.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use foldhash::fast::RandomState;
use libbpf_rs::{MapCore, RingBuffer, RingBufferBuilder};

use super::{
    contract::{
        BLOCK_BITS, CountedEvent, Counters, EVENT_COUNTED, EVENT_ENDED, EVENT_FILE, EVENT_RANGE,
        EndedEvent, FileEvent, RING_BYTES, RangeEvent, RangeKey, TaskCalls,
    },
    meter, wire,
};

/// How often the ring is looked at: it holds 58,254 records, and two processors were seen to make a
/// million a second.
const CALM: Duration = Duration::from_millis(40);
const BUSY: Duration = Duration::from_millis(4);
/// The same where the programs choose fewer by themselves before it fills ([`Pace::Slow`]).
const SLOW: Duration = Duration::from_millis(160);
/// Records of a slot that still allow that: three or four slots, and what comes after the brake, take a quarter of the ring.
pub(super) const FEW: u64 = 2_500;
/// Records at once that count as busy.
const MANY: i32 = 8192;
/// Bytes before each record (BPF_RINGBUF_HDR_SZ in include/uapi/linux/bpf.h, v6.1).
const RING_HEADER: usize = 8;
const _: () = assert!(RING_BYTES as usize / (RING_HEADER + size_of::<CountedEvent>()) == 58_254);

/// The reader's nice value.
const FIRST: i32 = -10;

/// How many records may wait to be taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Different ranges.
    pub(super) ranges: usize,
    /// Single accesses.
    pub(super) accesses: usize,
}

/// How fast the ring may fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Pace {
    Usual,
    /// A slot brings no more than [`FEW`] records before the programs brake.
    Slow,
    /// Nothing comes: the programs are detached.
    Rests,
}

/// The table is in parts, each of which grows by itself: so the whole is never in memory twice, as a
/// table that grows is.
pub(super) const PARTS: usize = 16;

type Part = HashMap<RangeKey, Counters, RandomState>;

/// The part of the table in which a range is counted.
fn part_of(range: &RangeKey) -> usize {
    let mixed = (range.start >> BLOCK_BITS) ^ (u64::from(range.file) << 32) ^ (range.len << 20);
    (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as usize % PARTS
}

/// The records that have arrived and were not taken yet.
#[derive(Default)]
pub(super) struct Inbox {
    /// Files that were accessed for the first time.
    pub(super) files: Vec<FileEvent>,
    /// Single accesses.
    pub(super) accesses: Vec<RangeEvent>,
    counted: [Part; PARTS],
    /// Of tasks that have ended.
    pub(super) ended: Vec<TaskCalls>,
    /// Calls of those for which there was no room: what is known to have been made is less by all of them.
    pub(super) lost_calls: u64,
    /// Single accesses for which there was no room.
    pub(super) lost_accesses: u64,
    /// Accesses to ranges for which there was no room.
    pub(super) lost_counts: u64,
}

impl Inbox {
    fn receive(&mut self, record: &[u8], limits: Limits) {
        match wire::read::<u32>(record) {
            Some(EVENT_FILE) => self.files.extend(wire::read::<FileEvent>(record)),
            Some(EVENT_RANGE) if self.accesses.len() >= limits.accesses => self.lost_accesses += 1,
            Some(EVENT_RANGE) => self.accesses.extend(wire::read::<RangeEvent>(record)),
            Some(EVENT_COUNTED) => {
                if let Some(event) = wire::read::<CountedEvent>(record) {
                    self.count(&event.range, &event.counters, limits);
                }
            }
            Some(EVENT_ENDED) => {
                if let Some(event) = wire::read::<EndedEvent>(record) {
                    self.end(event.calls, limits);
                }
            }
            _ => {}
        }
    }

    fn count(&mut self, range: &RangeKey, more: &Counters, limits: Limits) {
        let part = &mut self.counted[part_of(range)];
        let full = part.len() >= limits.ranges.div_ceil(PARTS);
        match part.entry(*range) {
            Entry::Occupied(mut have) => add(have.get_mut(), more),
            Entry::Vacant(_) if full => self.lost_counts += u64::from(more.count),
            Entry::Vacant(free) => {
                free.insert(*more);
            }
        }
    }

    fn end(&mut self, calls: TaskCalls, limits: Limits) {
        if self.ended.len() < limits.ranges {
            self.ended.push(calls);
        } else {
            self.lost_calls += calls.made;
        }
    }

    /// Number of ranges.
    pub(super) fn ranges(&self) -> usize {
        self.counted.iter().map(HashMap::len).sum()
    }

    /// Take the counts of one of the [`PARTS`].
    pub(super) fn take_part(&mut self, part: usize) -> Vec<(RangeKey, Counters)> {
        self.counted[part].drain().collect()
    }
}

/// Times are added at full width; counts saturate.
fn add(into: &mut Counters, more: &Counters) {
    into.time += more.time;
    into.depth += more.depth;
    into.count = into.count.saturating_add(more.count);
    into.requests = into.requests.saturating_add(more.requests);
    into.timed = into.timed.saturating_add(more.timed);
    into.reads = into.reads.saturating_add(more.reads);
}

/// The ring with its reader.
pub(super) struct Intake {
    shared: Arc<Shared>,
    limits: Limits,
    reader: Option<JoinHandle<()>>,
}

struct Shared {
    ring: Mutex<RingBuffer<'static>>,
    inbox: Arc<Mutex<Inbox>>,
    stop: AtomicBool,
    /// A [`Pace`].
    pace: AtomicU8,
    /// Processor time of the reader, in nanoseconds.
    busy: AtomicU64,
}

impl Intake {
    /// Begin to read `ring`; `first`: before others run, where that is allowed.
    pub(super) fn begin(
        ring: &dyn MapCore,
        limits: Limits,
        first: bool,
    ) -> libbpf_rs::Result<Self> {
        let inbox = Arc::new(Mutex::new(Inbox::default()));
        let mut builder = RingBufferBuilder::new();
        let receiver = Arc::clone(&inbox);
        builder.add(ring, move |record| {
            lock(&receiver).receive(record, limits);
            0
        })?;
        let shared = Arc::new(Shared {
            ring: Mutex::new(builder.build()?),
            inbox,
            stop: AtomicBool::new(false),
            pace: AtomicU8::new(Pace::Usual as u8),
            busy: AtomicU64::new(0),
        });
        let reading = Arc::clone(&shared);
        let reader = thread::Builder::new()
            .name("trace-intake".to_owned())
            .spawn(move || reading.read_on(first))?;
        Ok(Self {
            shared,
            limits,
            reader: Some(reader),
        })
    }

    /// Read all records that are in the ring now.
    pub(super) fn catch_up(&self) {
        self.shared.read();
    }

    /// Let the reader sleep for as long as the ring does not fill, or wake it up again.
    pub(super) fn pace(&self, pace: Pace) {
        let before = self.shared.pace.swap(pace as u8, Ordering::Relaxed);
        if let (true, Some(reader)) = (before > pace as u8, &self.reader) {
            reader.thread().unpark();
        }
    }

    /// Processor time of the reader.
    pub(super) fn busy(&self) -> Duration {
        Duration::from_nanos(self.shared.busy.load(Ordering::Relaxed))
    }

    /// The records that have arrived.
    pub(super) fn inbox(&self) -> MutexGuard<'_, Inbox> {
        lock(&self.shared.inbox)
    }

    /// Add what was counted elsewhere.
    pub(super) fn count(&self, range: &RangeKey, counters: &Counters) {
        self.inbox().count(range, counters, self.limits);
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(reader) = self.reader.take() {
            reader.thread().unpark();
            let _ = reader.join();
        }
    }
}

impl Shared {
    fn read(&self) -> i32 {
        // The only error is one of the receiver, and ours has none.
        lock(&self.ring).consume_raw()
    }

    fn read_on(&self, first: bool) {
        if first {
            // Applications that keep all processors busy access the most. Without the right to run
            // first, the thread takes its turn. (On Linux this call affects the calling thread.)
            let _ = rustix::process::setpriority_process(None, FIRST);
        }
        while !self.stop.load(Ordering::Relaxed) {
            let busy = self.read() >= MANY;
            let time = meter::thread_time().as_nanos() as u64;
            self.busy.store(time, Ordering::Relaxed);
            let pace = self.pace.load(Ordering::Relaxed);
            match (busy, pace) {
                (_, pace) if pace == Pace::Rests as u8 => thread::park(),
                (true, _) => thread::park_timeout(BUSY),
                (false, pace) if pace == Pace::Slow as u8 => thread::park_timeout(SLOW),
                (false, _) => thread::park_timeout(CALM),
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        ranges: PARTS,
        accesses: 1,
    };

    fn counted(start: u64, count: u32) -> Vec<u8> {
        let event = CountedEvent {
            kind: EVENT_COUNTED,
            range: RangeKey {
                start,
                len: 4096,
                file: 1,
                kind: 0,
            },
            counters: Counters {
                count,
                ..Counters::default()
            },
            ..CountedEvent::default()
        };
        wire::bytes(&event).to_vec()
    }

    fn take_all(inbox: &mut Inbox) -> Vec<(u64, u32)> {
        let mut taken: Vec<_> = (0..PARTS)
            .flat_map(|part| inbox.take_part(part))
            .map(|(range, counters)| (range.start, counters.count))
            .collect();
        taken.sort_unstable();
        taken
    }

    #[test]
    fn ranges_add_up() {
        let mut inbox = Inbox::default();
        for (start, count) in [(0, 3), (0, 1), (0, 2)] {
            inbox.receive(&counted(start, count), LIMITS);
        }
        assert_eq!((inbox.ranges(), inbox.lost_counts), (1, 0));
        assert_eq!(take_all(&mut inbox), [(0, 6)]);
        assert_eq!(inbox.ranges(), 0);
    }

    #[test]
    fn what_finds_no_room_is_counted_as_lost() {
        let mut inbox = Inbox::default();
        for start in 0..1000 {
            inbox.receive(&counted(start * 4096, 7), LIMITS);
        }
        let held = inbox.ranges() as u64;
        assert!((1..=16).contains(&held), "{held}");
        assert_eq!(inbox.lost_counts + 7 * held, 7000);
    }

    #[test]
    fn calls_of_tasks_without_room_are_known() {
        let mut inbox = Inbox::default();
        let event = EndedEvent {
            kind: EVENT_ENDED,
            calls: TaskCalls {
                made: 100,
                exact: 10,
                counted: 64,
                ..TaskCalls::default()
            },
            ..EndedEvent::default()
        };
        for _ in 0..PARTS + 3 {
            inbox.receive(wire::bytes(&event), LIMITS);
        }
        assert_eq!((inbox.ended.len(), inbox.lost_calls), (PARTS, 3 * 100));
    }

    #[test]
    fn ranges_spread_over_the_parts() {
        let limits = Limits {
            ranges: 1 << 20,
            accesses: 1,
        };
        for step in [4096, 128 << 10, 1 << 30] {
            let mut inbox = Inbox::default();
            for n in 0..16_000 {
                inbox.receive(&counted(n * step, 1), limits);
            }
            let most = inbox.counted.iter().map(HashMap::len).max();
            assert!(most <= Some(1500), "{most:?} in steps of {step}");
        }
    }

    #[test]
    fn records_that_are_cut_are_none() {
        let mut inbox = Inbox::default();
        let whole = counted(0, 1);
        for len in 0..whole.len() {
            inbox.receive(&whole[..len], LIMITS);
        }
        assert_eq!((inbox.ranges(), inbox.lost_counts), (0, 0));
    }
}
