//! Mutexes that a panic does not poison.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Lock a mutex whose critical sections only insert, remove and assign: a thread that panicked
/// inside of one has left the data consistent.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
