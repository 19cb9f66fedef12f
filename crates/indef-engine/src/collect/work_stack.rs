//! The work that all walkers share: last in, first out, so that the walk goes deep before it goes
//! wide and little is pending at any time.

use std::sync::{
    Condvar, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use crate::{Cancel, sync::lock};

pub(super) struct WorkStack<T> {
    state: Mutex<Pending<T>>,
    changed: Condvar,
    waiting: AtomicUsize,
}

struct Pending<T> {
    stack: Vec<T>,
    /// Walkers that hold an item, and so may push more.
    active: usize,
}

impl<T> WorkStack<T> {
    pub(super) fn new(stack: Vec<T>) -> Self {
        Self {
            state: Mutex::new(Pending { stack, active: 0 }),
            changed: Condvar::new(),
            waiting: AtomicUsize::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pending<T>> {
        // A visitor that panics ends the walk through its thread's scope; the stack stays whole.
        lock(&self.state)
    }

    /// The next item; `None` when there will be none any more. [`Active`] must live until the item
    /// is worked off.
    pub(super) fn next(&self, cancel: &Cancel) -> Option<(T, Active<'_, T>)> {
        let mut state = self.lock();
        loop {
            if cancel.is_cancelled() {
                state.stack.clear();
            }
            if let Some(item) = state.stack.pop() {
                state.active += 1;
                return Some((item, Active(self)));
            }
            if state.active == 0 {
                self.changed.notify_all();
                return None;
            }
            self.waiting.fetch_add(1, Ordering::Relaxed);
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Add items; the last is taken first.
    pub(super) fn push(&self, items: impl IntoIterator<Item = T>) {
        let mut state = self.lock();
        let before = state.stack.len();
        state.stack.extend(items);
        let added = state.stack.len() - before;
        drop(state);
        for _ in 0..added.min(self.waiting.load(Ordering::Relaxed)) {
            self.changed.notify_one();
        }
    }

    /// Whether somebody has nothing to do.
    pub(super) fn is_hungry(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}

/// While it lives, its walker may push more items.
pub(super) struct Active<'a, T>(&'a WorkStack<T>);

impl<T> Drop for Active<'_, T> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.active -= 1;
        if state.active == 0 && state.stack.is_empty() {
            self.0.changed.notify_all();
        }
    }
}
