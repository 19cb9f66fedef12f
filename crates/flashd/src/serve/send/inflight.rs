//! The command identifiers that are in use on a connection.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// One bit for each identifier.
#[derive(Debug)]
pub(super) struct Inflight {
    bits: Vec<AtomicU64>,
    count: AtomicUsize,
}

impl Inflight {
    pub(super) fn new() -> Self {
        Self {
            bits: (0..1 << 16 >> 6).map(|_| AtomicU64::new(0)).collect(),
            count: AtomicUsize::new(0),
        }
    }

    /// Take an identifier; false if a command with it is not done yet.
    pub(super) fn begin(&self, cid: u16) -> bool {
        let bit = 1 << (cid % 64);
        let before = self.bits[usize::from(cid / 64)].fetch_or(bit, Ordering::AcqRel);
        if before & bit != 0 {
            return false;
        }
        self.count.fetch_add(1, Ordering::AcqRel);
        true
    }

    /// Free an identifier; false if no command with it is on its way.
    pub(super) fn end(&self, cid: u16) -> bool {
        let bit = 1 << (cid % 64);
        let before = self.bits[usize::from(cid / 64)].fetch_and(!bit, Ordering::AcqRel);
        if before & bit == 0 {
            return false;
        }
        self.count.fetch_sub(1, Ordering::AcqRel);
        true
    }

    /// Number of commands that are not done.
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }
}
