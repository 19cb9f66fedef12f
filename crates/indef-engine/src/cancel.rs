//! A flag that asks everything to come to an end.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// Asks a walk or a run to stop at the next safe point. Clones share the flag; setting it is
/// async-signal-safe.
#[derive(Clone, Debug, Default)]
pub struct Cancel {
    flag: Arc<AtomicBool>,
    /// Another one that counts as well.
    parent: Option<Arc<AtomicBool>>,
}

impl Cancel {
    /// A flag that is not set yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A flag for a part of the work: it is set by itself, or with this one.
    #[must_use]
    pub fn child(&self) -> Self {
        Self {
            flag: Arc::default(),
            parent: Some(self.flag()),
        }
    }

    /// Set the flag.
    pub fn cancel(&self) {
        self.flag.store(true, Ordering::Relaxed);
    }

    /// Whether the flag is set.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        let is_set = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        is_set(&self.flag) || self.parent.as_deref().is_some_and(is_set)
    }

    /// The flag itself, for signal handlers that set an [`AtomicBool`].
    #[must_use]
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.flag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_ends_by_itself_or_with_the_whole() {
        let whole = Cancel::new();
        let (one, other) = (whole.child(), whole.child());
        one.clone().cancel();
        assert!(one.is_cancelled() && !other.is_cancelled() && !whole.is_cancelled());
        whole.cancel();
        assert!(other.is_cancelled());
    }
}
