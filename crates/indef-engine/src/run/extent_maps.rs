//! Extent maps of the most fragmented files, small enough to be kept and drawn.

use std::{
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

use indef_core::layout::Extent;
use units::{Bytes, FileOffset, PhysOffset};

/// Entries of one map at most.
const ENTRIES: usize = 2000;

/// A part of a file, in one or more fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapEntry {
    /// Where it begins in the file.
    pub file: FileOffset,
    /// Where its first fragment begins on the device.
    pub phys: PhysOffset,
    /// How much of the file it covers, holes between fragments included.
    pub len: Bytes,
    /// Fragments in it: more than one where the map had to be made coarser.
    pub fragments: u64,
}

/// Where a file's data lay before and lies now. Each map has at most 2,000 entries.
#[derive(Clone, Debug)]
pub struct ExtentMaps {
    /// The file.
    pub path: PathBuf,
    /// Its size.
    pub size: Bytes,
    /// Fragments before.
    pub extents_before: u64,
    /// Fragments afterwards.
    pub extents_after: u64,
    /// The map before.
    pub before: Vec<MapEntry>,
    /// The map afterwards.
    pub after: Vec<MapEntry>,
}

/// Builds a map from extents as they come, in little memory whatever their number: when there are
/// too many entries, neighbours become one.
#[derive(Debug, Default)]
pub(super) struct MapBuilder {
    entries: Vec<MapEntry>,
    /// Fragments that one entry should hold.
    grain: u64,
}

impl MapBuilder {
    pub(super) fn add(&mut self, extent: &Extent, continues: bool) {
        let grain = self.grain.max(1);
        match self.entries.last_mut() {
            Some(last) if continues || last.fragments < grain => {
                last.len = extent.file_end() - last.file;
                last.fragments += u64::from(!continues);
            }
            _ => self.entries.push(MapEntry {
                file: extent.file,
                phys: extent.phys,
                len: extent.len,
                fragments: 1,
            }),
        }
        if self.entries.len() > ENTRIES {
            self.coarsen();
        }
    }

    fn coarsen(&mut self) {
        self.grain = self.grain.max(1) * 2;
        let fine = std::mem::take(&mut self.entries);
        self.entries = fine
            .chunks(2)
            .map(|pair| {
                let (first, last) = (pair[0], pair[pair.len() - 1]);
                MapEntry {
                    len: (last.file + last.len) - first.file,
                    fragments: pair.iter().map(|entry| entry.fragments).sum(),
                    ..first
                }
            })
            .collect();
    }

    pub(super) fn finish(mut self) -> Vec<MapEntry> {
        self.entries.shrink_to_fit();
        self.entries
    }
}

/// The most fragmented files so far.
#[derive(Debug)]
pub(super) struct Worst {
    keep: usize,
    files: Mutex<Vec<ExtentMaps>>,
}

impl Worst {
    pub(super) fn new(keep: usize) -> Self {
        Self {
            keep,
            files: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ExtentMaps>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a file with so many fragments would be among them now.
    pub(super) fn wants(&self, extents_before: u64) -> bool {
        let files = self.lock();
        self.keep > files.len()
            || files
                .last()
                .is_some_and(|least| self.keep > 0 && extents_before > least.extents_before)
    }

    pub(super) fn add(&self, maps: ExtentMaps) {
        let mut files = self.lock();
        let place = files.partition_point(|f| f.extents_before >= maps.extents_before);
        files.insert(place, maps);
        files.truncate(self.keep);
    }

    pub(super) fn take(&self) -> Vec<ExtentMaps> {
        std::mem::take(&mut self.lock())
    }
}

#[cfg(test)]
mod tests {
    use indef_core::layout::ExtentFlags;

    use super::*;

    fn extent(file: u64, phys: u64, len: u64) -> Extent {
        Extent {
            file: FileOffset(file),
            phys: PhysOffset(phys),
            len: Bytes(len),
            flags: ExtentFlags::empty(),
        }
    }

    #[test]
    fn a_map_stays_small_and_keeps_every_fragment_in_count() {
        for fragments in [1, 2, 1999, 2000, 2001, 65_536, 100_003] {
            let mut map = MapBuilder::default();
            for n in 0..fragments {
                map.add(&extent(n * 4096, n * 8192, 4096), false);
            }
            let map = map.finish();
            assert!(map.len() <= ENTRIES);
            assert!(map.len() as u64 >= fragments.min(ENTRIES as u64 / 2));
            assert_eq!(map.iter().map(|e| e.fragments).sum::<u64>(), fragments);
            assert_eq!(map.iter().map(|e| e.len.0).sum::<u64>(), fragments * 4096);
            assert_eq!(map[0].file, FileOffset(0));
        }
    }

    #[test]
    fn only_the_worst_are_kept() {
        let worst = Worst::new(2);
        for extents_before in [5, 1, 9, 7] {
            worst.add(ExtentMaps {
                path: PathBuf::new(),
                size: Bytes(0),
                extents_before,
                extents_after: 1,
                before: Vec::new(),
                after: Vec::new(),
            });
        }
        assert!(!worst.wants(7) && worst.wants(8));
        let kept: Vec<_> = worst.take().iter().map(|m| m.extents_before).collect();
        assert_eq!(kept, [9, 7]);
        assert!(!Worst::new(0).wants(100));
    }
}
