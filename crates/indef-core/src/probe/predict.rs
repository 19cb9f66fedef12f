//! The time of reads, from what a probe found: what fragments cost, and what defragmenting gains.
//!
//! ```text
//! time = latency + the larger of
//!          √(what the busiest unit has to do beyond one block ² + (requests beyond the first · per_request)²)
//!          bytes beyond one block ÷ bandwidth
//! ```
//!
//! That is the time of one read whose requests all go out together, on a drive that does nothing else.

use serde::{Deserialize, Serialize};
use units::FileRange;

use super::{BLOCK, CannotTell, Findings, Placement, USUAL_READ};
use crate::layout::{DeviceTimes, Layout};

/// The quantities from which the times of reads follow.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadModel {
    /// How data lies on the units.
    pub placement: Placement,
    /// One read of a block alone, in nanoseconds.
    pub latency_ns: f64,
    /// A read of a block keeps its unit busy, in nanoseconds.
    pub service_ns: f64,
    /// Each further byte does, in nanoseconds.
    pub per_byte_ns: f64,
    /// Each further request delays the others, in nanoseconds.
    pub per_request_ns: f64,
    /// Bytes in a nanosecond.
    pub bytes_per_ns: f64,
    /// One contiguous read of [`USUAL_READ`], in nanoseconds: as measured, not by this model.
    pub contiguous_ns: f64,
}

impl ReadModel {
    /// The model of these findings.
    ///
    /// # Errors
    ///
    /// A part of it cannot be told.
    pub fn of(findings: &Findings) -> Result<Self, CannotTell> {
        let ns = |told: &super::Told<units::Nanos>| told.map(|told| told.value.0 as f64);
        Ok(Self {
            placement: findings.placement?.value,
            latency_ns: ns(&findings.latency)?,
            service_ns: ns(&findings.service)?,
            per_byte_ns: ns(&findings.per_kib)? / 1024.0,
            per_request_ns: ns(&findings.per_request)?,
            bytes_per_ns: findings.bandwidth?.value as f64 / 1e9,
            contiguous_ns: ns(&findings.contiguous)?,
        })
    }

    /// The time of one read of a range of a file, in requests of at most `request` bytes, in nanoseconds.
    #[must_use]
    pub fn read_ns(&self, layout: &Layout, range: FileRange, request: u64) -> f64 {
        let measured = layout.measure(range, &self.placement.geometry(), units::Bytes(request));
        if measured.dolf == 1 && range.len == USUAL_READ {
            return self.contiguous_ns;
        }
        let unit_ns = self
            .times()
            .read_ns(layout, range, &self.placement.geometry(), 0);
        let beyond = (unit_ns - self.service_ns).max(0.0);
        let requests = measured.requests.saturating_sub(1) as f64 * self.per_request_ns;
        let bytes = range.len.0.saturating_sub(BLOCK) as f64 / self.bytes_per_ns.max(1e-9);
        // Requests of one unit wait while those of others are taken: the two hide each other in part.
        self.latency_ns + beyond.hypot(requests).max(bytes)
    }

    /// The times of a unit: a read of it senses a granule, and takes time for each byte.
    #[must_use]
    pub fn times(&self) -> DeviceTimes {
        let transfer = self.per_byte_ns * self.placement.granule.0 as f64;
        DeviceTimes {
            page_bytes: self.placement.granule,
            sense_ns: (self.service_ns - self.per_byte_ns * BLOCK as f64).max(0.0) as u64,
            transfer_ns: transfer as u64,
            command_ns: (self.latency_ns - self.service_ns).max(0.0) as u64,
        }
    }
}
