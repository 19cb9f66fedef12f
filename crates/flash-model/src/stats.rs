//! What the device did so far.

use serde::Serialize;
use units::Nanos;

/// Counters since the device was made. They only grow; the difference of two is an interval.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// The time up to which they hold.
    pub now_ns: Nanos,
    /// Bytes that the host read.
    pub host_read_bytes: u64,
    /// Bytes that the host wrote (writes, appends).
    pub host_written_bytes: u64,
    /// Bytes that were copied inside the device on the host's request.
    pub migrated_bytes: u64,
}
