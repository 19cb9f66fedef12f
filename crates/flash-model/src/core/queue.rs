//! The background operations of each die: programs, collection, migration.
//!
//! An operation is only given to a die when the die is free for it, so that a host read that comes
//! meanwhile waits for the operation that runs, and not for the queued ones. When reads have kept
//! the queue of a die from going on for longer than the profile's `program_wait`, its next
//! operation is given to the die all the same, after the reads.

use std::collections::VecDeque;

use super::traffic::Cause;
use crate::flash::CellPage;

/// The number of operations of a die's queue that are looked at: one whose data is not there yet
/// lets others go first.
const LOOK_AHEAD: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DieWork {
    /// Sense and send to the controller.
    Read,
    /// Send to the die and program.
    Program,
    /// Sense `from` and program, within the die.
    Copyback { from: CellPage },
    /// Erase `blocks` blocks in `nanos` nanoseconds.
    Erase { nanos: u64, blocks: u32 },
}

/// The party that is notified when the operation was given to the die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Nobody,
    /// The page of a zone that is being programmed.
    Page {
        ns: u32,
        zone: u32,
        page: u32,
    },
    /// A task of a migration.
    Task(u32),
}

impl Owner {
    /// Returns whether it is a page of that zone.
    pub(crate) fn is_page_of(self, of_ns: u32, of_zone: u32) -> bool {
        matches!(self, Self::Page { ns, zone, .. } if (ns, zone) == (of_ns, of_zone))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueuedOperation {
    pub(crate) work: DieWork,
    /// The page that is read, or programmed.
    pub(crate) page: CellPage,
    /// It does not begin before this.
    pub(crate) ready: u64,
    /// Bytes that go over the channel.
    pub(crate) bytes: u64,
    /// Bytes that it frees in the write buffer.
    pub(crate) release: u64,
    pub(crate) cause: Cause,
    pub(crate) owner: Owner,
    /// Number among the programs that a flush waits for; 0 for others.
    pub(crate) number: u64,
}

impl QueuedOperation {
    /// Returns a program of data that is not a complete page, for a flush: to the first page of a
    /// word line, which needs none of the others.
    pub(crate) const fn of_flush(bytes: u64) -> Self {
        Self {
            work: DieWork::Program,
            page: CellPage::Native(0),
            ready: 0,
            bytes,
            release: 0,
            cause: Cause::Flush,
            owner: Owner::Nobody,
            number: 1,
        }
    }

    /// Returns whether it falls under the limit of draining the write buffer.
    pub(crate) fn is_drained(&self) -> bool {
        self.release > 0 && self.work == DieWork::Program
    }
}

/// An operation that could be given to its die next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// When it is given to the die.
    pub(crate) at: u64,
    pub(crate) die: u32,
    pub(crate) index: usize,
}

/// One queue for each die.
#[derive(Clone, Debug)]
pub(crate) struct DieQueues {
    dies: Vec<VecDeque<QueuedOperation>>,
    /// For each die, when the last operation of its queue ends.
    served_until: Vec<u64>,
    /// Dies with something in their queue.
    waiting: Vec<u32>,
    /// Nothing happens before this.
    pub(crate) quiet_until: u64,
}

impl DieQueues {
    pub(crate) fn new(dies: u32) -> Self {
        Self {
            dies: vec![VecDeque::new(); dies as usize],
            served_until: vec![0; dies as usize],
            waiting: Vec::with_capacity(dies as usize),
            quiet_until: u64::MAX,
        }
    }

    pub(crate) fn push(&mut self, die: u32, entry: QueuedOperation) {
        let queue = &mut self.dies[die as usize];
        if queue.is_empty() {
            self.waiting.push(die);
        }
        queue.push_back(entry);
        self.quiet_until = self.quiet_until.min(entry.ready);
    }

    /// Notes that an operation of a die's queue was given to the die, and ends at `end`.
    pub(crate) fn served(&mut self, die: u32, end: u64) {
        self.served_until[die as usize] = end;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes an operation out of its queue.
    pub(crate) fn take(&mut self, candidate: Candidate) -> Option<QueuedOperation> {
        let queue = &mut self.dies[candidate.die as usize];
        let entry = queue.remove(candidate.index);
        if queue.is_empty() {
            self.waiting.retain(|&die| die != candidate.die);
        }
        entry
    }

    /// Takes out the operations for the pages of one zone; returns the bytes that it would have
    /// freed in the write buffer, and the numbers of the entries.
    pub(crate) fn drop_zone(&mut self, ns: u32, zone: u32) -> (u64, Vec<u64>) {
        let (mut bytes, mut numbers) = (0, Vec::new());
        for &die in &self.waiting {
            self.dies[die as usize].retain(|entry| {
                let drop = entry.owner.is_page_of(ns, zone);
                if drop {
                    bytes += entry.release;
                    numbers.push(entry.number);
                }
                !drop
            });
        }
        let dies = &self.dies;
        self.waiting.retain(|&die| !dies[die as usize].is_empty());
        numbers.sort_unstable();
        (bytes, numbers)
    }

    /// The next operation to be given to its die: the first in time, and among those on the lowest
    /// die.
    pub(crate) fn next(
        &self,
        wait: u64,
        drain_from: u64,
        free_at: impl Fn(u32) -> u64,
    ) -> Option<Candidate> {
        let mut best: Option<Candidate> = None;
        for &die in &self.waiting {
            let (free, served) = (free_at(die), self.served_until[die as usize]);
            for (index, entry) in self.dies[die as usize].iter().take(LOOK_AHEAD).enumerate() {
                let ready = if entry.is_drained() {
                    entry.ready.max(drain_from)
                } else {
                    entry.ready
                };
                let overdue = entry.ready.max(served).saturating_add(wait);
                let at = ready.max(free.min(overdue));
                let better =
                    best.is_none_or(|best| (at, die, index) < (best.at, best.die, best.index));
                if better {
                    best = Some(Candidate { at, die, index });
                }
                if ready <= free {
                    break;
                }
            }
        }
        best
    }
}
