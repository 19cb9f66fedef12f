//! Moments and spans as a store keeps them.

use std::time::{Duration, SystemTime};

/// Nanoseconds since 1970, saturating.
pub(super) fn since_1970(time: SystemTime) -> i64 {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => nanos(after),
        Err(before) => -nanos(before.duration()),
    }
}

pub(super) fn at_nanos(since_1970: i64) -> SystemTime {
    let span = Duration::from_nanos(since_1970.unsigned_abs());
    match since_1970 {
        0.. => SystemTime::UNIX_EPOCH + span,
        _ => SystemTime::UNIX_EPOCH - span,
    }
}

pub(super) fn nanos(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}
