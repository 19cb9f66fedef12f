//! Which of the given files share blocks, on a file system that does not tell: XFS without `rmapbt`.
//!
//! The walk tells the shared extents of every file. Afterwards they are in the order of the device, and those that
//! overlap, one after the other, make a *cluster*: whoever shares a block with a file has an extent in a cluster of it.
//! Others may be in there, too, so these are candidates, and the engine sees which of them it is (`indef_fs`).

use std::{
    collections::{BTreeSet, HashMap},
    mem,
    sync::{Arc, Mutex},
};

use indef_core::{
    SkipReason,
    layout::{ExtentFlags, Layout},
    plan::MOST_NAMED,
};
use indef_fs::TargetId;

use crate::sync::lock;

/// The most extents that are remembered, of all files together: 48 MiB.
const MOST_EXTENTS: usize = 2 << 20;

/// A shared extent of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Shared {
    /// The first byte on the device, and the one after the last.
    start: u64,
    end: u64,
    inode: u64,
}

/// Collects the shared extents of files.
#[derive(Debug, Default)]
pub(super) struct Sharers(Mutex<Collected>);

#[derive(Debug, Default)]
struct Collected {
    /// By device number.
    on: HashMap<u64, Vec<Shared>>,
    extents: usize,
}

/// The files that share.
#[derive(Debug, Default)]
pub(super) struct Found {
    on: HashMap<u64, Clusters>,
    is_full: bool,
}

/// Of one file system.
#[derive(Debug)]
struct Clusters {
    /// Ordered.
    extents: Vec<Shared>,
    /// Where each cluster begins in these.
    begin: Vec<usize>,
}

impl Sharers {
    /// Remember what a file shares.
    pub(super) fn add(&self, id: TargetId, layout: &Layout) {
        let mut shared = shared(layout).peekable();
        if shared.peek().is_none() {
            return;
        }
        let mut collected = lock(&self.0);
        let Collected { on, extents } = &mut *collected;
        for (start, end) in shared {
            if *extents >= MOST_EXTENTS {
                // A part of them is of no use.
                on.clear();
                return;
            }
            *extents += 1;
            let inode = id.inode;
            let all = on.entry(id.dev).or_default();
            all.push(Shared { start, end, inode });
        }
    }

    /// All that were told. Nothing of it is kept here.
    pub(super) fn take(&self) -> Found {
        let Collected { on, extents } = mem::take(&mut *lock(&self.0));
        let on = on.into_iter();
        Found {
            is_full: extents >= MOST_EXTENTS,
            on: on.map(|(dev, all)| (dev, Clusters::of(all))).collect(),
        }
    }
}

impl Found {
    /// The inode numbers of other files that may have blocks of a file with this layout.
    ///
    /// # Errors
    ///
    /// [`SkipReason::ManyHolders`] where they are more than [`MOST_NAMED`], or where there were too many extents to
    /// remember.
    pub(super) fn with(&self, id: TargetId, layout: &Layout) -> Result<Arc<[u64]>, SkipReason> {
        if self.is_full {
            return Err(SkipReason::ManyHolders);
        }
        let Some(clusters) = self.on.get(&id.dev) else {
            return Ok(Arc::default());
        };
        let mut found = BTreeSet::new();
        let met: BTreeSet<usize> = shared(layout)
            .filter_map(|(start, _)| clusters.at(start))
            .collect();
        for cluster in met {
            for one in clusters.extents_of(cluster) {
                if one.inode != id.inode && found.insert(one.inode) && found.len() > MOST_NAMED {
                    return Err(SkipReason::ManyHolders);
                }
            }
        }
        Ok(found.into_iter().collect())
    }
}

impl Clusters {
    fn of(mut extents: Vec<Shared>) -> Self {
        extents.sort_unstable();
        let (mut begin, mut reach) = (Vec::new(), 0);
        for (index, one) in extents.iter().enumerate() {
            if index == 0 || one.start >= reach {
                begin.push(index);
            }
            reach = reach.max(one.end);
        }
        Self { extents, begin }
    }

    /// The last cluster that begins at an address or before.
    fn at(&self, address: u64) -> Option<usize> {
        let later = (self.begin).partition_point(|first| self.extents[*first].start <= address);
        later.checked_sub(1)
    }

    fn extents_of(&self, cluster: usize) -> &[Shared] {
        let end = self.begin.get(cluster + 1).copied();
        &self.extents[self.begin[cluster]..end.unwrap_or(self.extents.len())]
    }
}

/// The shared extents of a layout: where each begins on the device, and ends.
fn shared(layout: &Layout) -> impl Iterator<Item = (u64, u64)> + '_ {
    let all = layout.extents().iter();
    let is_shared = |flags: ExtentFlags| {
        flags.contains(ExtentFlags::SHARED) && !flags.contains(ExtentFlags::UNPLACED)
    };
    all.filter(move |one| is_shared(one.flags))
        .map(|one| (one.phys.get(), one.phys.get() + one.len.get()))
}

#[cfg(test)]
mod tests {
    use indef_core::layout::Extent;
    use units::{Bytes, FileOffset, PhysOffset};

    use super::*;

    const DEV: u64 = 2049;

    fn layout(places: &[(u64, u64)]) -> Layout {
        let mut file = 0;
        let extent = |&(phys, len): &(u64, u64)| {
            let start = file;
            file += len;
            Extent {
                file: FileOffset(start),
                phys: PhysOffset(phys),
                len: Bytes(len),
                flags: ExtentFlags::SHARED,
            }
        };
        Layout::new(places.iter().map(extent).collect())
    }

    fn id(inode: u64) -> TargetId {
        TargetId { dev: DEV, inode }
    }

    #[test]
    fn files_in_the_same_clusters_may_share() {
        let sharers = Sharers::default();
        let files = [
            (1, layout(&[(1000, 100), (5000, 10)])),
            // In the midst of it, and where that ends.
            (2, layout(&[(1050, 10)])),
            (3, layout(&[(1100, 50)])),
            (4, layout(&[(1090, 10), (9000, 10)])),
            (5, layout(&[(9005, 10)])),
            (6, Layout::default()),
        ];
        for (inode, layout) in &files {
            sharers.add(id(*inode), layout);
        }
        let found = sharers.take();
        let with = |index: usize| {
            let (inode, layout) = &files[index];
            found.with(id(*inode), layout).unwrap().to_vec()
        };
        assert_eq!(with(0), [2, 4]);
        assert_eq!(with(1), [1, 4]);
        assert!(with(2).is_empty());
        assert_eq!(with(3), [1, 2, 5]);
        assert!(with(5).is_empty());
        let elsewhere = TargetId { dev: 7, inode: 1 };
        assert!(found.with(elsewhere, &files[0].1).unwrap().is_empty());
        // By now it lies before all of them.
        let before = found.with(id(9), &layout(&[(10, 10)])).unwrap();
        assert!(before.is_empty());
    }

    #[test]
    fn too_many_files_or_extents_are_told() {
        let same = layout(&[(1000, 100)]);
        let sharers = Sharers::default();
        for inode in 0..=MOST_NAMED as u64 {
            sharers.add(id(inode), &same);
        }
        let found = sharers.take();
        assert_eq!(found.with(id(0), &same).unwrap().len(), MOST_NAMED);
        let another = found.with(id(u64::MAX), &same);
        assert_eq!(another, Err(SkipReason::ManyHolders));
        let full = Sharers(Mutex::new(Collected {
            extents: MOST_EXTENTS - 1,
            ..Collected::default()
        }));
        full.add(id(1), &same);
        full.add(id(2), &same);
        full.add(id(3), &same);
        let found = full.take();
        assert!(found.on.is_empty());
        assert_eq!(found.with(id(1), &same), Err(SkipReason::ManyHolders));
    }
}
