//! Heat beside fragmentation: what a profile says about the files of a scan.

use std::{cmp::Ordering, path::Path, sync::Arc};

use indef_core::{
    calibrate::{Calibration, CannotCalibrate},
    layout::Layout,
    plan::{FileFacts, PlanOptions, Policy, plan_file},
};
use indef_engine::Cancel;
use indef_fs::TargetId;
use units::{Bytes, FileRange, Nanos};

use crate::{accesses::Accesses, args::ScanArgs, geometry::Geometries, output::Console, weighing};

/// A profile, ready to be looked up.
pub(super) struct Heat {
    accesses: Accesses,
    options: PlanOptions,
    /// What reads cost here, or why that is not known.
    pub(super) calibration: Result<Calibration, CannotCalibrate>,
    /// Reads of all files of the profile.
    pub(super) reads: u64,
}

/// How a file is read, and what its fragments cost its readers.
#[derive(Clone, Debug, Default)]
pub(super) struct FileHeat {
    pub(super) reads: u64,
    pub(super) writes: u64,
    /// Of all reads of the profile, in percent.
    pub(super) share_pct: f64,
    /// What its timed reads took.
    pub(super) observed: Nanos,
    pub(super) lost: Lost,
    /// Its fragmented ranges that were read.
    pub(super) ranges: Vec<HotRange>,
}

/// A fragmented range that was read.
#[derive(Clone, Debug)]
pub(super) struct HotRange {
    pub(super) path: Arc<Path>,
    pub(super) range: FileRange,
    pub(super) reads: u64,
    pub(super) dolf: u64,
    pub(super) lost: Lost,
}

/// What fragments cost the reads of a profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lost {
    /// Requests beyond those of contiguous ranges.
    pub(super) requests: u64,
    /// Time, where the profile tells what a request costs.
    pub(super) time: Option<Nanos>,
}

impl Lost {
    pub(super) fn add(&mut self, other: Self) {
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

impl Heat {
    /// Of an accessed profile, for the files below the paths of a scan.
    pub(super) fn new(
        args: &ScanArgs,
        geometries: &Geometries,
        accesses: Accesses,
        console: &Console,
        cancel: &Cancel,
    ) -> Self {
        let mut options = PlanOptions {
            policy: Policy::Indef,
            io_size: args.io_size,
            truncate_pct: 0.0,
            geometry: geometries.main(),
            ..PlanOptions::default()
        };
        let jobs = args.workers.count();
        let calibration = weighing::calibration(
            &mut options,
            geometries,
            &accesses,
            &args.paths,
            jobs,
            cancel,
        );
        if let Err(why) = &calibration {
            console.detail(format_args!("no times: {why}"));
        }
        Self {
            reads: accesses.reads(),
            accesses,
            options,
            calibration,
        }
    }

    /// What the profile says about a file; nothing if it does not know it.
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
            if chunk.gain <= 0.0 {
                continue;
            }
            let lost = Lost {
                requests: chunk.reads.saturating_mul(chunk.edges.excess),
                time: self.calibration.is_ok().then_some(Nanos(chunk.gain as u64)),
            };
            heat.lost.add(lost);
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
}

/// The ranges that lose most, in bounded memory.
#[derive(Debug)]
pub(super) struct Hottest {
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

    /// The worst first.
    pub(super) fn finish(mut self) -> Vec<HotRange> {
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
