//! Heat beside fragmentation: the accesses of a profile to the files of a scan, and the cost of
//! fragments to them.

use std::{cmp::Ordering, path::Path, sync::Arc};

use indef_core::{
    access::AccessRange,
    calibrate::{Calibration, CannotCalibrate},
    layout::{Geometry, Layout},
    plan::{FileFacts, PlanOptions, Policy, plan_file},
};
use indef_fs::TargetId;
use units::{Bytes, FileRange, Nanos};

use crate::{geometry::Geometries, heat::Accesses, weigh};

/// A profile, ready for look-ups.
#[derive(Debug)]
pub struct Heat {
    accesses: Accesses,
    options: PlanOptions,
    /// The cost of a read here, or the reason for which it is not known.
    pub calibration: Result<Calibration, CannotCalibrate>,
    /// Reads of all files of the profile.
    pub reads: u64,
}

/// The accesses to a file, and the cost of its fragments to its readers.
#[derive(Clone, Debug, Default)]
pub struct FileHeat {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Its share of all reads of the profile, in percent.
    pub share_pct: f64,
    /// Time of its timed reads.
    pub observed: Nanos,
    /// The cost of its fragments.
    pub lost: Lost,
    /// The cost of its reads, and the part that a move avoids.
    pub read: ReadCost,
    /// Its fragmented ranges that were read.
    pub ranges: Vec<HotRange>,
}

/// The cost of the reads of a profile as the files lie now, and the part of it that moving their
/// ranges avoids.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReadCost {
    /// Bytes to move.
    pub movable: Bytes,
    /// Requests of all reads.
    pub requests: u64,
    /// Requests that a move avoids.
    pub avoidable_requests: u64,
    /// Time of all reads; 0 where times are not known, as below.
    pub ns: f64,
    /// Time that a move avoids.
    pub avoidable_ns: f64,
}

impl ReadCost {
    /// Add the cost of other reads.
    pub(super) fn add(&mut self, other: &Self) {
        self.movable = self.movable.saturating_add(other.movable);
        self.requests = self.requests.saturating_add(other.requests);
        self.avoidable_requests =
            (self.avoidable_requests).saturating_add(other.avoidable_requests);
        self.ns += other.ns;
        self.avoidable_ns += other.avoidable_ns;
    }
}

/// A fragmented range that was read.
#[derive(Clone, Debug)]
pub struct HotRange {
    /// The file.
    pub path: Arc<Path>,
    /// The place in it.
    pub range: FileRange,
    /// Reads of it.
    pub reads: u64,
    /// Its fragments.
    pub dolf: u64,
    /// Their cost.
    pub lost: Lost,
}

/// The cost of fragments to the reads of a profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Requests beyond those of contiguous ranges.
    pub requests: u64,
    /// Time, where the cost of a request is known from the profile.
    pub time: Option<Nanos>,
}

impl Lost {
    /// Add another cost.
    pub fn add(&mut self, other: Self) {
        self.requests = self.requests.saturating_add(other.requests);
        if let Some(time) = other.time {
            let sum = self.time.unwrap_or_default().0.saturating_add(time.0);
            self.time = Some(Nanos(sum));
        }
    }
}

/// By time where it is known, else by requests.
impl Ord for Lost {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.time, self.requests).cmp(&(other.time, other.requests))
    }
}

impl PartialOrd for Lost {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Options of the planner under which the gain of a range is the cost of its fragments.
pub(super) fn plan_options(io_size: Bytes, geometry: Geometry) -> PlanOptions {
    PlanOptions {
        policy: Policy::Indef,
        io_size,
        truncate_pct: 0.0,
        geometry,
        ..PlanOptions::default()
    }
}

impl Heat {
    /// The heat of a profile, with the options with which it was calibrated.
    pub(super) fn new(
        accesses: Accesses,
        options: PlanOptions,
        calibration: Result<Calibration, CannotCalibrate>,
    ) -> Self {
        Self {
            reads: accesses.reads(),
            accesses,
            options,
            calibration,
        }
    }

    /// The accesses of a file and their cost; none if the profile does not know it.
    pub(super) fn of(
        &self,
        path: &Path,
        id: &TargetId,
        (size, block_size): (Bytes, Bytes),
        layout: &Layout,
        geometries: &Geometries,
    ) -> FileHeat {
        let Some(accesses) = self.accesses.of(id) else {
            return FileHeat::default();
        };
        let mut heat = FileHeat::default();
        for access in accesses {
            heat.reads = heat.reads.saturating_add(access.reads);
            heat.writes = heat.writes.saturating_add(access.writes);
            heat.observed.0 = heat.observed.0.saturating_add(access.observed.time.0);
            heat.read.ns += self.time_ns(access, layout, &geometries.of(id.dev));
        }
        heat.share_pct = heat.reads as f64 * 100.0 / self.reads.max(1) as f64;
        let path: Arc<Path> = path.into();
        let facts = FileFacts {
            size,
            block_size,
            layout,
            accesses: Some(accesses),
        };
        for chunk in plan_file(&geometries.options(&self.options, id.dev), &facts) {
            let requests = chunk.reads.saturating_mul(chunk.dolf);
            heat.read.requests = heat.read.requests.saturating_add(requests);
            if chunk.gain <= 0.0 {
                continue;
            }
            let lost = Lost {
                requests: chunk.reads.saturating_mul(chunk.edges.excess),
                time: self.calibration.is_ok().then_some(Nanos(chunk.gain as u64)),
            };
            heat.lost.add(lost);
            if chunk.migrates() {
                heat.read.add(&ReadCost {
                    movable: chunk.cost,
                    avoidable_requests: lost.requests,
                    avoidable_ns: lost.time.map_or(0.0, |time| time.0 as f64),
                    ..ReadCost::default()
                });
            }
            heat.ranges.push(HotRange {
                path: path.clone(),
                range: chunk.range,
                reads: chunk.reads,
                dolf: chunk.dolf,
                lost,
            });
        }
        heat
    }

    /// The time of all reads of a range: by their own mean where some were timed, else by the
    /// weights; 0 without weights.
    fn time_ns(&self, access: &AccessRange, layout: &Layout, geometry: &Geometry) -> f64 {
        let Ok(found) = &self.calibration else {
            return 0.0;
        };
        let most = self.options.max_request;
        weigh::reads_ns(&found.weights, access, layout, geometry, most)
    }
}

/// The ranges that lose most, in bounded memory.
#[derive(Debug)]
pub struct Hottest {
    top: usize,
    ranges: Vec<HotRange>,
}

impl Hottest {
    pub(super) fn new(top: usize) -> Self {
        Self {
            top,
            ranges: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, ranges: Vec<HotRange>) {
        for range in ranges {
            self.ranges.push(range);
            if self.ranges.len() > self.top.saturating_mul(4).max(64) {
                self.shorten();
            }
        }
    }

    fn shorten(&mut self) {
        self.ranges.sort_by(|a, b| {
            (b.lost.cmp(&a.lost))
                .then_with(|| (&a.path, a.range.start).cmp(&(&b.path, b.range.start)))
        });
        self.ranges.truncate(self.top);
    }

    /// The ranges, worst first.
    #[must_use]
    pub fn finish(mut self) -> Vec<HotRange> {
        self.shorten();
        self.ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ranges_that_lose_most_are_kept() {
        let mut hottest = Hottest::new(3);
        let path: Arc<Path> = Path::new("/f").into();
        for i in 0..1000u64 {
            let requests = i * 7919 % 1000;
            hottest.add(vec![HotRange {
                path: path.clone(),
                range: FileRange::new(i * 4096, 4096),
                reads: 1,
                dolf: 2,
                lost: Lost {
                    requests,
                    time: None,
                },
            }]);
        }
        let kept: Vec<u64> = hottest.finish().iter().map(|r| r.lost.requests).collect();
        assert_eq!(kept, [999, 998, 997]);
    }

    #[test]
    fn time_counts_before_requests() {
        let lost = |requests, time: Option<u64>| Lost {
            requests,
            time: time.map(Nanos),
        };
        assert!(lost(1, Some(9)) > lost(100, Some(8)));
        assert!(lost(2, None) > lost(1, None));
        let mut sum = lost(1, Some(2));
        sum.add(lost(3, Some(4)));
        assert_eq!(sum, lost(4, Some(6)));
    }
}
