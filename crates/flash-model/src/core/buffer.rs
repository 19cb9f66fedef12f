//! The write buffer: how much of it is taken, and when room comes back.

use std::{cmp::Reverse, collections::BinaryHeap};

/// Room for data that is not on flash yet.
#[derive(Clone, Debug)]
pub(crate) struct WriteBuffer {
    size: u64,
    used: u64,
    /// When how many bytes are on flash.
    releases: BinaryHeap<Reverse<(u64, u64)>>,
    /// Nothing is let in before this: who came first goes first.
    floor: u64,
    /// How long commands waited for room.
    waited: u64,
}

impl WriteBuffer {
    pub(crate) const fn new(size: u64) -> Self {
        Self {
            size,
            used: 0,
            releases: BinaryHeap::new(),
            floor: 0,
            waited: 0,
        }
    }

    /// Lets `bytes` in at `ready` or when there is room, if it is known when that is: not before
    /// `unknown_from`, from when on there may be room that is not known yet.
    pub(crate) fn admit(
        &mut self,
        bytes: u64,
        ready: u64,
        unknown_from: Option<u64>,
    ) -> Option<u64> {
        let mut at = ready.max(self.floor);
        loop {
            self.release_until(at);
            if self.used + bytes <= self.size {
                break;
            }
            match self.releases.peek() {
                Some(&Reverse((end, _))) if unknown_from.is_none_or(|from| end <= from) => at = end,
                Some(_) => return None,
                None if unknown_from.is_some() => return None,
                // Nothing is on its way to flash: the rest are pages that are not complete. A
                // device would find room elsewhere.
                None => break,
            }
        }
        self.used += bytes;
        self.waited += at - ready.max(self.floor);
        self.floor = at;
        Some(at)
    }

    fn release_until(&mut self, at: u64) {
        while let Some(&Reverse((end, bytes))) = self.releases.peek()
            && end <= at
        {
            self.releases.pop();
            self.used = self.used.saturating_sub(bytes);
        }
    }

    /// `bytes` will be on flash at `end`.
    pub(crate) fn release_at(&mut self, end: u64, bytes: u64) {
        if bytes > 0 {
            self.releases.push(Reverse((end, bytes)));
        }
    }

    /// `bytes` are not needed any more.
    pub(crate) fn forget(&mut self, bytes: u64) {
        self.used = self.used.saturating_sub(bytes);
    }

    /// Bytes in it at `now`.
    pub(crate) fn used_at(&self, now: u64) -> u64 {
        let gone = self.releases.iter().filter(|entry| entry.0.0 <= now);
        self.used.saturating_sub(gone.map(|entry| entry.0.1).sum())
    }

    /// How long commands waited for room.
    pub(crate) const fn waited(&self) -> u64 {
        self.waited
    }
}
