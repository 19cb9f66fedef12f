//! Faults on command: ranges that cannot be read or written, and dies that are slow. They last until
//! they are cleared or the daemon ends, and stay through a power cut.
//!
//! A command that touches a range that fails is not begun: nothing is read, written or moved, a
//! zone's write pointer stays, and the model charges no time for it; but the answer may come late, as that
//! of a drive which tries again before it gives up. Of a copy or a migration the
//! sources are read and the destinations written. A command counts once, however many of its parts
//! are touched, and against the fault that was given first. Flushes, deallocation and zone
//! management touch nothing.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};

use serde::{Deserialize, Serialize};

use super::request::{Access, Request};
use crate::lock::lock;

/// The largest factor of a slow die.
pub const SLOWEST: f64 = 1000.0;

/// A range that cannot be accessed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorFault {
    /// NVMe's identifier of the namespace.
    pub namespace: u32,
    /// First byte.
    pub offset_bytes: u64,
    /// Bytes.
    pub length_bytes: u64,
    /// The access that fails; `None`: both.
    pub access: Option<Access>,
    /// Commands that will still fail; `None`: all.
    pub left: Option<u64>,
    /// The time from a command that fails to its answer, in nanoseconds of real time.
    #[serde(default)]
    pub delay_ns: u64,
    /// Commands that have failed.
    #[serde(default)]
    pub failed: u64,
}

/// A die that takes longer than the profile says.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SlowDie {
    /// Its number.
    pub die: u32,
    /// Times of its array over the profile's.
    pub factor: f64,
}

/// All faults of a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FaultReport {
    /// The ranges, in the order in which they were given.
    pub errors: Vec<ErrorFault>,
    /// The dies, by number.
    pub slow_dies: Vec<SlowDie>,
}

/// The reason why there is no such fault.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FaultError {
    /// There is no such namespace.
    #[error("there is no namespace {id}; there are {count}, from 1 on")]
    Namespace {
        /// The identifier.
        id: u32,
        /// Number of namespaces.
        count: usize,
    },
    /// The range is empty or not within the namespace.
    #[error("{length} bytes at {offset} are no range of namespace {id}, which has {size} bytes")]
    Range {
        /// The namespace.
        id: u32,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
        /// Bytes of the namespace.
        size: u64,
    },
    /// No command would fail.
    #[error("an error that no command meets is none; let 1 or more fail")]
    NoTimes,
    /// There is no such die.
    #[error("there is no die {die}; there are {count}, from 0 on")]
    Die {
        /// The number.
        die: u32,
        /// Number of dies.
        count: u32,
    },
    /// The factor makes no sense.
    #[error("a die can be 1 to {SLOWEST} times as slow, not {0} times")]
    Factor(f64),
    /// The device has no times.
    #[error("a device without latencies has no slow dies")]
    NoLatency,
}

/// The ranges of a device that fail.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// Whether there is any, so that other devices lose no time.
    pub(super) any: AtomicBool,
    pub(super) errors: Mutex<Vec<ErrorFault>>,
}

impl Faults {
    /// Return the access that fails this request, and the delay of the answer, and count it. `append_at`
    /// gives the write pointer of the zone that begins at an offset.
    pub(super) fn strike(
        &self,
        namespace: u32,
        request: &Request<'_>,
        append_at: impl Fn(u64) -> u64,
    ) -> Option<(Access, u64)> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        for fault in lock(&self.errors).iter_mut() {
            if fault.namespace != namespace || fault.left == Some(0) {
                continue;
            }
            let (start, end) = (fault.offset_bytes, fault.offset_bytes + fault.length_bytes);
            let mut struck = None;
            request.accesses(&append_at, |access, offset, len| {
                let overlaps = offset < end && start < offset.saturating_add(len);
                if overlaps && fault.access.is_none_or(|only| only == access) {
                    struck = struck.or(Some(access));
                }
            });
            if let Some(access) = struck {
                fault.failed += 1;
                fault.left = fault.left.map(|left| left - 1);
                return Some((access, fault.delay_ns));
            }
        }
        None
    }
}
