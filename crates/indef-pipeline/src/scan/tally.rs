//! Sums over many files, and the worst of them.

use std::{
    cmp::{Ordering, Reverse},
    collections::{BTreeMap, BinaryHeap},
    path::{Path, PathBuf},
    sync::Arc,
};

use indef_core::{
    SkipReason,
    layout::{Unreachable, WindowedDolf, WindowedDopf},
};
use indef_fs::{Filesystem, FsKind};
use units::Bytes;

use super::{
    heat::{FileHeat, Hottest, Lost, ReadCost},
    plain::PlainSums,
    upkeep::Upkeep,
};

/// The findings of a scan about one file.
#[derive(Debug)]
pub struct FileScan {
    /// Its path.
    pub path: PathBuf,
    /// Its file system.
    pub fs: Arc<Filesystem>,
    /// Its size.
    pub size: Bytes,
    /// Its allocated bytes.
    pub allocated: Bytes,
    /// Its extents.
    pub extents: u64,
    /// The extents that it would ideally have.
    pub ideal: u64,
    /// Its DoLF, in reads of the I/O size.
    pub dolf: WindowedDolf,
    /// Its DoPF, likewise.
    pub dopf: WindowedDopf,
    /// Bytes that a plan for sequential reads would move.
    pub worth_moving: Bytes,
    /// Fragmented bytes that stay, as they are shared.
    pub shared: Bytes,
    /// Bytes that it holds on the device and does not reach; `None` where that cannot be told: on
    /// Btrfs without root, and on file systems without an engine.
    pub unreachable: Option<Unreachable>,
    /// Requests that sequential reads of it then save.
    pub saved_requests: u64,
    /// Its accesses, if there is a profile.
    pub heat: Option<FileHeat>,
    /// The reason for which it could not be examined.
    pub skip: Option<SkipReason>,
}

impl FileScan {
    /// Extents ÷ the number it would ideally have.
    #[must_use]
    pub fn dof(&self) -> f64 {
        if self.ideal == 0 {
            1.0
        } else {
            self.extents as f64 / self.ideal as f64
        }
    }

    fn excess(&self) -> u64 {
        self.extents.saturating_sub(self.ideal)
    }

    /// The cost of its extents beyond reading.
    #[must_use]
    pub fn upkeep(&self) -> Upkeep {
        Upkeep::of(self.fs.kind, self.excess())
    }
}

/// Ordered by badness, first for its readers, where that is known; of equals, by name.
#[derive(Debug)]
struct ByExcess(FileScan);

impl ByExcess {
    fn key(&self) -> (Option<Lost>, u64, Reverse<&PathBuf>) {
        let file = &self.0;
        (
            file.heat.as_ref().map(|heat| heat.lost),
            file.excess(),
            Reverse(&file.path),
        )
    }
}

impl Ord for ByExcess {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for ByExcess {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ByExcess {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for ByExcess {}

/// Buckets of the histogram: files of 0, 1, 2–3, 4–7, … extents.
const BUCKETS: usize = 34;

/// Counters over all files, in constant memory.
#[derive(Debug)]
pub struct Tally {
    top: usize,
    worst: BinaryHeap<Reverse<ByExcess>>,
    /// The files with most unreachable bytes.
    holders: BinaryHeap<Reverse<(Unreachable, Reverse<PathBuf>)>>,
    /// Bytes that files hold and do not reach.
    pub unreachable: Unreachable,
    /// Files of which these cannot be told.
    pub untold: u64,
    /// The ranges that lose most.
    pub hottest: Hottest,
    /// The cost of fragments to the readers of all files.
    pub lost: Lost,
    /// The cost of the profile's reads of files that can be moved.
    pub read: ReadCost,
    /// Files by extents.
    histogram: [u64; BUCKETS],
    /// The cost of extents beyond reading.
    pub upkeep: Upkeep,
    /// Files with more extents than they would ideally have, also where no engine works.
    pub fragmented: u64,
    /// Extents of all files.
    pub extents: u64,
    /// The extents that they would ideally have.
    pub ideal: u64,
    /// Size of all files.
    pub size: Bytes,
    /// Their allocated bytes.
    pub allocated: Bytes,
    /// Bytes that a plan for sequential reads would move.
    pub worth_moving: Bytes,
    /// Fragmented bytes that stay, as they are shared.
    pub shared: Bytes,
    /// Requests that sequential reads then save.
    pub saved_requests: u64,
    /// DoLF over all files.
    pub dolf: WindowedDolf,
    /// DoPF over all files.
    pub dopf: WindowedDopf,
    /// Files that could not be examined, by reason.
    pub skipped: BTreeMap<SkipReason, u64>,
    /// Those of them that are fragmented, on file systems where no engine works.
    pub refused: BTreeMap<SkipReason, u64>,
    /// Files by file system.
    pub file_systems: BTreeMap<String, u64>,
}

impl Tally {
    /// A tally that keeps the `top` worst files.
    pub(super) fn new(top: usize) -> Self {
        Self {
            top,
            worst: BinaryHeap::new(),
            holders: BinaryHeap::new(),
            unreachable: Unreachable::default(),
            untold: 0,
            hottest: Hottest::new(top),
            lost: Lost::default(),
            read: ReadCost::default(),
            histogram: [0; BUCKETS],
            upkeep: Upkeep::default(),
            fragmented: 0,
            extents: 0,
            ideal: 0,
            size: Bytes::ZERO,
            allocated: Bytes::ZERO,
            worth_moving: Bytes::ZERO,
            shared: Bytes::ZERO,
            saved_requests: 0,
            dolf: WindowedDolf::default(),
            dopf: WindowedDopf::default(),
            skipped: BTreeMap::new(),
            refused: BTreeMap::new(),
            file_systems: BTreeMap::new(),
        }
    }

    /// Count a file.
    pub(super) fn add(&mut self, mut file: FileScan) {
        if let Some(heat) = &mut file.heat {
            self.lost.add(heat.lost);
            self.hottest.add(std::mem::take(&mut heat.ranges));
        }
        let fs = file.fs.kind.to_string();
        *self.file_systems.entry(fs).or_default() += 1;
        if let Some(reason) = file.skip {
            *self.skipped.entry(reason).or_default() += 1;
            // A file that could not be examined has no extents here.
            if file.excess() > 0 {
                *self.refused.entry(reason).or_default() += 1;
                self.fragmented += 1;
            }
            return;
        }
        if let Some(heat) = &file.heat {
            self.read.add(&heat.read);
        }
        self.histogram[bucket(file.extents)] += 1;
        self.fragmented += u64::from(file.excess() > 0);
        self.upkeep.add(file.upkeep());
        self.extents += file.extents;
        self.ideal += file.ideal;
        self.size = self.size.saturating_add(file.size);
        self.allocated = self.allocated.saturating_add(file.allocated);
        self.worth_moving = self.worth_moving.saturating_add(file.worth_moving);
        self.shared = self.shared.saturating_add(file.shared);
        match file.unreachable {
            Some(held) => {
                self.unreachable.add(held);
                if held != Unreachable::default() {
                    self.holders
                        .push(Reverse((held, Reverse(file.path.clone()))));
                    if self.holders.len() > self.top {
                        self.holders.pop();
                    }
                }
            }
            None => self.untold += 1,
        }
        self.saved_requests += file.saved_requests;
        self.dolf.windows += file.dolf.windows;
        self.dolf.fragments += file.dolf.fragments;
        self.dolf.max = self.dolf.max.max(file.dolf.max);
        self.dopf.windows += file.dopf.windows;
        self.dopf.sum += file.dopf.sum;
        self.dopf.max = self.dopf.max.max(file.dopf.max);
        if file.excess() > 0 {
            self.worst.push(Reverse(ByExcess(file)));
            if self.worst.len() > self.top {
                self.worst.pop();
            }
        }
    }

    /// Count files in one piece, which reach all that they hold.
    pub(super) fn add_plain(&mut self, sums: &PlainSums, kind: FsKind) {
        if sums.files() == 0 {
            return;
        }
        *self.file_systems.entry(kind.to_string()).or_default() += sums.files();
        self.histogram[bucket(0)] += sums.without;
        self.histogram[bucket(1)] += sums.with;
        self.upkeep.add(Upkeep::of(kind, 0));
        self.extents += sums.with;
        self.ideal += sums.with;
        self.size = self.size.saturating_add(Bytes(sums.size));
        self.allocated = self.allocated.saturating_add(Bytes(sums.allocated));
        self.dolf.windows += sums.windows;
        self.dolf.fragments += sums.windows;
        self.dolf.max = self.dolf.max.max(sums.windows.min(1));
    }

    /// The worst files, worst first.
    #[must_use]
    pub fn worst(&self) -> Vec<&FileScan> {
        let mut worst: Vec<&Reverse<ByExcess>> = self.worst.iter().collect();
        worst.sort();
        worst.into_iter().map(|Reverse(file)| &file.0).collect()
    }

    /// The files with most unreachable bytes, those with most first.
    #[must_use]
    pub fn holders(&self) -> Vec<(Unreachable, &Path)> {
        let mut holders: Vec<_> = self.holders.iter().collect();
        holders.sort();
        holders
            .into_iter()
            .map(|Reverse((held, Reverse(path)))| (*held, path.as_path()))
            .collect()
    }

    /// The histogram from the first to the last bucket that has files: its least and greatest
    /// number of extents, and the files.
    #[must_use]
    pub fn histogram(&self) -> Vec<(u64, u64, u64)> {
        let used = |n: &usize| self.histogram[*n] > 0;
        let Some(first) = (0..BUCKETS).find(used) else {
            return Vec::new();
        };
        let last = (0..BUCKETS).rfind(used).unwrap_or(first);
        (first..=last)
            .map(|n| {
                let (least, greatest) = bounds(n);
                (least, greatest, self.histogram[n])
            })
            .collect()
    }

    /// Fragmented files that are not [`Self::refused`].
    #[must_use]
    pub fn movable(&self) -> u64 {
        let refused: u64 = self.refused.values().sum();
        self.fragmented.saturating_sub(refused)
    }

    /// Number of files that could be examined.
    #[must_use]
    pub fn files(&self) -> u64 {
        self.histogram.iter().sum()
    }
}

fn bucket(extents: u64) -> usize {
    (u64::BITS - extents.leading_zeros()).min(BUCKETS as u32 - 1) as usize
}

fn bounds(bucket: usize) -> (u64, u64) {
    match bucket {
        0 => (0, 0),
        n if n == BUCKETS - 1 => (1 << (n - 1), u64::MAX),
        n => (1 << (n - 1), (1 << n) - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_extents_has_its_bucket() {
        for extents in [0, 1, 2, 3, 4, 7, 8, 65_536, 1 << 31, 1 << 33, u64::MAX] {
            let (least, greatest) = bounds(bucket(extents));
            assert!((least..=greatest).contains(&extents), "{extents}");
        }
    }
}
