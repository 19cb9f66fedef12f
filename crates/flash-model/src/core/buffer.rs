//! The write buffer: how much of it is taken, and when room becomes free.

use std::{cmp::Reverse, collections::BinaryHeap};

/// Room for data that is not on flash yet.
#[derive(Clone, Debug)]
pub(crate) struct WriteBuffer {
    size: i64,
    /// Below zero for a moment when a zone is reset whose data is still waiting for room.
    used: i64,
    /// The times at which bytes are on flash, with their number.
    releases: BinaryHeap<Reverse<(u64, u64)>>,
    /// Nothing is let in before this: data enters in the order of arrival.
    floor: u64,
    /// The time that writes waited for room.
    waited: u64,
}

impl WriteBuffer {
    pub(crate) const fn new(size: u64) -> Self {
        Self {
            size: size as i64,
            used: 0,
            releases: BinaryHeap::new(),
            floor: 0,
            waited: 0,
        }
    }

    /// Returns when data that is ready at `ready` may come in, if there is room.
    pub(crate) fn turn(&self, ready: u64) -> u64 {
        ready.max(self.floor)
    }

    /// Returns when there may be room for `bytes`, from `at` on; `None`: nothing is known to make
    /// room.
    pub(crate) fn room_from(&self, bytes: u64, at: u64) -> Option<u64> {
        if self.used + bytes as i64 <= self.size {
            return Some(at);
        }
        self.releases.peek().map(|&Reverse((end, _))| end.max(at))
    }

    /// Lets `bytes` in at `at` if there is room, or if nothing will make room: then the rest are
    /// pages that are not complete, and a device would find room elsewhere.
    pub(crate) fn admit(&mut self, bytes: u64, at: u64, nothing_comes: bool) -> bool {
        while let Some(&Reverse((end, bytes))) = self.releases.peek()
            && end <= at
        {
            self.releases.pop();
            self.used -= bytes as i64;
        }
        let fits = self.used + bytes as i64 <= self.size;
        let overfull = nothing_comes && self.releases.is_empty();
        if !(fits || overfull) {
            return false;
        }
        self.used += bytes as i64;
        self.floor = at;
        true
    }

    /// Notes that a write has waited for so much longer.
    pub(crate) fn count_wait(&mut self, longer: u64) {
        self.waited += longer;
    }

    /// Frees `bytes` at `end`, when they are on flash.
    pub(crate) fn release_at(&mut self, end: u64, bytes: u64) {
        if bytes > 0 {
            self.releases.push(Reverse((end, bytes)));
        }
    }

    /// Frees `bytes` that are not needed any more.
    pub(crate) fn forget(&mut self, bytes: u64) {
        self.used -= bytes as i64;
    }

    /// Corrects the count: `bytes` that were forgotten had not come in.
    pub(crate) fn never_came(&mut self, bytes: u64) {
        self.used += bytes as i64;
    }

    /// Returns the bytes in it at `now`.
    pub(crate) fn used_at(&self, now: u64) -> u64 {
        let gone = self.releases.iter().filter(|entry| entry.0.0 <= now);
        let gone: u64 = gone.map(|entry| entry.0.1).sum();
        u64::try_from(self.used - gone as i64).unwrap_or(0)
    }

    /// The time that writes waited for room.
    pub(crate) const fn waited(&self) -> u64 {
        self.waited
    }
}
