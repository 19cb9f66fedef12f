//! One call at a time: two of them in one allocation group take longer than one after the other (see
//! [`turn`](crate::xfs::turn)), and all of these are for files that have blocks in common.

use std::sync::{Mutex, MutexGuard, PoisonError};

static CALLS: Mutex<()> = Mutex::new(());

/// Held during a call.
pub(super) fn call_apart() -> MutexGuard<'static, ()> {
    CALLS.lock().unwrap_or_else(PoisonError::into_inner)
}
