//! A flag that asks everything to come to an end.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// Asks a walk or a run to stop at the next safe point. Clones share the flag; setting it is
/// async-signal-safe.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// A flag that is not set yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Set the flag.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the flag is set.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The flag itself, for signal handlers that set an [`AtomicBool`].
    #[must_use]
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}
