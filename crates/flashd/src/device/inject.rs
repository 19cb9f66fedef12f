//! The device's faults, as they are given and ended.

use std::sync::atomic::Ordering;

use super::{Device, ErrorFault, FaultError, FaultReport, SLOWEST, SlowDie};
use crate::lock::lock;

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
