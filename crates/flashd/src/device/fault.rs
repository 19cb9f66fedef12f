//! Faults on command: ranges that cannot be read or written, and dies that are slow. They last until
//! they are cleared or the daemon ends, and stay through a power cut.
//!
//! A command that touches a range that fails is not begun: nothing is read, written or moved, a
//! zone's write pointer stays, and the model charges no time for it. Of a copy or a migration the
//! sources are read and the destinations written. A command counts once, however many of its parts
//! are touched, and against the fault that was given first. Flushes, deallocation and zone
//! management touch nothing.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};

use serde::{Deserialize, Serialize};

use super::{Device, Request};
use crate::lock::lock;

/// The largest factor of a slow die.
pub const SLOWEST: f64 = 1000.0;

/// An access to a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// It is read.
    Read,
    /// It is written.
    Write,
}

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
    any: AtomicBool,
    errors: Mutex<Vec<ErrorFault>>,
}

impl Faults {
    /// Return the access that fails this request, and count it. `append_at` gives the write pointer
    /// of the zone that begins at an offset.
    pub(super) fn strike(
        &self,
        namespace: u32,
        request: &Request<'_>,
        append_at: impl Fn(u64) -> u64,
    ) -> Option<Access> {
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
            if struck.is_some() {
                fault.failed += 1;
                fault.left = fault.left.map(|left| left - 1);
                return struck;
            }
        }
        None
    }
}

impl Device {
    /// Let commands that access a range fail from now on.
    ///
    /// # Errors
    ///
    /// The range is none of this device, or no command would fail.
    pub fn inject_error(&self, fault: ErrorFault) -> Result<(), FaultError> {
        let (id, offset, length) = (fault.namespace, fault.offset_bytes, fault.length_bytes);
        let Some(namespace) = self.namespaces.iter().find(|known| known.id == id) else {
            let count = self.namespaces.len();
            return Err(FaultError::Namespace { id, count });
        };
        let size = namespace.size_bytes;
        let end = offset.checked_add(length);
        if length == 0 || end.is_none_or(|end| end > size) {
            return Err(FaultError::Range {
                id,
                offset,
                length,
                size,
            });
        }
        if fault.left == Some(0) {
            return Err(FaultError::NoTimes);
        }
        lock(&self.faults.errors).push(ErrorFault { failed: 0, ..fault });
        self.faults.any.store(true, Ordering::Release);
        Ok(())
    }

    /// Let what a die's array does from now on take `factor` times as long; 1 as the profile says.
    ///
    /// # Errors
    ///
    /// There is no such die or factor, or the device has no latencies.
    pub fn slow_die(&self, slow: SlowDie) -> Result<(), FaultError> {
        let SlowDie { die, factor } = slow;
        let count = self.geometry().dies();
        if die >= count {
            return Err(FaultError::Die { die, count });
        }
        if !(1.0..=SLOWEST).contains(&factor) {
            return Err(FaultError::Factor(factor));
        }
        if self.profile.is_instant() {
            return Err(FaultError::NoLatency);
        }
        lock(&self.model).slow_die(die, factor);
        Ok(())
    }

    /// End all faults.
    pub fn clear_faults(&self) {
        let mut errors = lock(&self.faults.errors);
        errors.clear();
        self.faults.any.store(false, Ordering::Release);
        drop(errors);
        let mut model = lock(&self.model);
        for (die, _) in model.slow_dies() {
            model.slow_die(die, 1.0);
        }
    }

    /// All faults, with the number of commands that each has failed.
    #[must_use]
    pub fn faults(&self) -> FaultReport {
        let slow = lock(&self.model).slow_dies();
        FaultReport {
            errors: lock(&self.faults.errors).clone(),
            slow_dies: slow
                .into_iter()
                .map(|(die, factor)| SlowDie { die, factor })
                .collect(),
        }
    }
}
