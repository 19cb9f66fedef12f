//! A timed range, and its row of the fit.

use units::Bytes;

use super::fit::{COLUMNS, Observation};
use crate::{
    access::{AccessRange, Observed},
    layout::{Fragmentation, Geometry, Layout},
    priority::finite,
};

/// The smallest number of timed ranges for a calibration.
pub const FEWEST_RANGES: usize = 16;

/// One timed range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Its length.
    pub len: Bytes,
    /// Its degrees of fragmentation.
    pub fragmentation: Fragmentation,
    /// The times of its reads.
    pub observed: Observed,
    /// The mean number of requests of its reads: as the device got them, where that was counted.
    pub requests: f64,
}

impl Sample {
    /// The range as a sample; `None` if it was not timed, holds no data, or is longer than
    /// `max_request`. Such a range was merged from reads of its parts, whose times are not its own.
    #[must_use]
    pub fn of(
        layout: &Layout,
        access: &AccessRange,
        geometry: &Geometry,
        max_request: Bytes,
    ) -> Option<Self> {
        if access.observed.timed == 0 || access.range.len > max_request {
            return None;
        }
        let fragmentation = layout.measure(access.range, geometry, max_request);
        (fragmentation.dolf > 0).then_some(Self {
            len: access.range.len,
            fragmentation,
            observed: access.observed,
            requests: match (access.observed.requests, access.reads) {
                (0, _) | (_, 0) => fragmentation.requests as f64,
                (requests, reads) => requests as f64 / reads as f64,
            },
        })
    }

    pub(super) fn timed(&self) -> f64 {
        self.observed.timed.max(1) as f64
    }

    /// `free`: see [`super::Weights::free_fragments`].
    pub(super) fn row(&self, prior_reads: f64, free: u64) -> Observation {
        let timed = self.timed();
        Observation {
            x: columns(
                self.len,
                &self.fragmentation,
                self.observed.mean_ahead().unwrap_or(0.0),
                free,
            ),
            y: self.observed.time.0 as f64 / timed,
            weight: timed / (timed + prior_reads),
        }
    }
}

/// The terms of the mean time of a read, in the order of [`Weights`].
pub(super) fn columns(
    len: Bytes,
    fragmentation: &Fragmentation,
    ahead: f64,
    free: u64,
) -> [f64; COLUMNS] {
    let further = fragmentation.dolf.saturating_sub(1);
    [
        1.0,
        len.0 as f64,
        further.saturating_sub(free) as f64,
        finite(fragmentation.dopf),
        ahead,
        f64::from(u8::from(fragmentation.dolf > 1)),
    ]
}
