//! The counters of the device's life.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU64},
};

use crate::store::{Life, Store};

/// The counters: those of earlier times with what came since.
#[derive(Debug)]
pub(super) struct Lived {
    pub(super) before: Life,
    pub(super) reads: AtomicU64,
    pub(super) writes: AtomicU64,
    pub(super) read_bytes: AtomicU64,
    pub(super) written_bytes: AtomicU64,
    pub(super) media_errors: AtomicU64,
    /// Everything is durable, and the process is about to end.
    pub(super) has_ended: AtomicBool,
    /// Held from the look at the counters until they are kept, so that none goes back.
    pub(super) keeping: Mutex<()>,
}

impl Lived {
    /// The power comes. Where it was not told to go before, it was gone without warning.
    pub(super) fn begin(store: &Store) -> Self {
        let mut before = store.life();
        before.power_cycles += 1;
        before.unsafe_shutdowns += u64::from(before.in_use);
        before.in_use = true;
        if let Err(error) = store.save_life(&before) {
            tracing::warn!(%error, "this start is not kept: SMART may not count it");
        }
        Self {
            before,
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            media_errors: AtomicU64::new(0),
            has_ended: AtomicBool::new(false),
            keeping: Mutex::default(),
        }
    }
}
