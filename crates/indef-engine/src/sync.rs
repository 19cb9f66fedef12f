//! Locks that outlive a panic. The data that they guard is whole between any two statements, and a
//! panic in one worker must not spread to the others.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
