//! Files that are created and deleted until their sizes and ages are distributed as wanted.
//!
//! The method is that of Geriatrix (Kadekodi, Nagarajan, Ganger, Gibson: "Geriatrix: Aging what you see and what you
//! don't see", USENIX ATC '18, §3): files are created until the device is as full as wanted. Then each file that is
//! created has others deleted for it, of that group of *relative* ages (the age of the file ÷ the age of the file
//! system) which has too many. The clock counts files. Two things are simpler here: the group with the most files
//! too many gives one, where Geriatrix draws lots; and there are no folders. Ages come out as wanted once about 30 times as much was
//! written as fits: a third of the files are younger than a sixtieth of the file system's age.

use std::ops::Range;

use crate::{
    Numbers,
    change::{Change, FileNumber},
};

/// Sizes in bytes and their weights, for all: Geriatrix's profile "agrawal" (`size_distribution.txt`), after Agrawal,
/// Bolosky, Douceur, Lorch: "A Five-Year Study of File-System Metadata", FAST '07.
pub const AGRAWAL_SIZES: [(u32, u64); 11] = [
    (1, 8),
    (7, 32),
    (16, 128),
    (40, 512),
    (50, 2048),
    (46, 8192),
    (35, 32_768),
    (20, 131_072),
    (10, 524_288),
    (4, 2_097_152),
    (1, 8_388_608),
];

/// The upper end of each group of ages, as a part of the oldest one, and its weight: the same profile
/// (`age_distribution.txt`, of which the oldest is 122,640).
pub const AGRAWAL_AGES: [(f64, f64); 10] = [
    (10.74 / 122_640.0, 1.0),
    (31.0 / 122_640.0, 2.0),
    (85.98 / 122_640.0, 8.0),
    (240.0 / 122_640.0, 20.0),
    (687.87 / 122_640.0, 44.0),
    (1945.59 / 122_640.0, 75.0),
    (5502.98 / 122_640.0, 144.0),
    (15_768.0 / 122_640.0, 146.0),
    (44_023.9 / 122_640.0, 23.0),
    (1.0, 1.0),
];

#[derive(Clone, Copy, Debug)]
struct Living {
    file: FileNumber,
    bytes: u64,
}

/// The files of a file system that ages.
#[derive(Clone, Debug)]
pub struct Geriatrix {
    numbers: Numbers,
    /// Bytes at which deleting begins.
    full: u64,
    /// Ordered by age, the oldest first. A file's number is the time at which it was created.
    files: Vec<Living>,
    used: u64,
    /// Files created so far.
    now: FileNumber,
}

impl Geriatrix {
    /// An empty file system that holds so many bytes of files.
    #[must_use]
    pub fn new(full: u64, seed: u64) -> Self {
        Self {
            numbers: Numbers::new(seed),
            full,
            files: Vec::new(),
            used: 0,
            now: 0,
        }
    }

    /// The next changes: one file is created, after others were deleted where there is no room.
    #[expect(clippy::should_implement_trait, reason = "the changes never end")]
    pub fn next(&mut self) -> Vec<Change> {
        let bytes = self.numbers.weighted(&AGRAWAL_SIZES);
        let mut changes = Vec::new();
        while self.used + bytes > self.full && !self.files.is_empty() {
            changes.push(self.delete());
        }
        let file = self.now;
        self.now += 1;
        self.files.push(Living { file, bytes });
        self.used += bytes;
        changes.push(Change::Append {
            file,
            bytes,
            durable: false,
        });
        changes
    }

    /// Whether there is no room for a file of the mean size.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let weights: u64 = AGRAWAL_SIZES
            .iter()
            .map(|(weight, _)| u64::from(*weight))
            .sum();
        let bytes: u64 = (AGRAWAL_SIZES.iter())
            .map(|(weight, bytes)| u64::from(*weight) * bytes)
            .sum();
        self.used + bytes / weights > self.full
    }

    /// The files of each group of ages, by their place in `files`.
    fn groups(&self) -> [Range<usize>; AGRAWAL_AGES.len()] {
        let mut end = self.files.len();
        AGRAWAL_AGES.map(|(oldest, _)| {
            // Created then, or later.
            let since = self.now - (self.now as f64 * oldest) as u64;
            let first = self.files.partition_point(|living| living.file < since);
            let group = first..end.max(first);
            end = first;
            group
        })
    }

    /// The parts of the files that are in each group of ages, beyond what is wanted (0 to 1, or below).
    #[must_use]
    pub fn excess(&self) -> [f64; AGRAWAL_AGES.len()] {
        let wanted: f64 = AGRAWAL_AGES.iter().map(|(_, weight)| weight).sum();
        let files = self.files.len().max(1) as f64;
        let mut parts = self.groups().map(|group| group.len() as f64 / files);
        for (part, (_, weight)) in parts.iter_mut().zip(AGRAWAL_AGES) {
            *part -= weight / wanted;
        }
        parts
    }

    fn delete(&mut self) -> Change {
        let excess = self.excess();
        let groups = self.groups();
        let group = (groups.into_iter().zip(excess))
            .filter(|(group, _)| !group.is_empty())
            .max_by(|(_, this), (_, that)| this.total_cmp(that))
            .map_or(0..self.files.len(), |(group, _)| group);
        let place = group.start + self.numbers.below(group.len());
        let Living { file, bytes } = self.files.remove(place);
        self.used -= bytes;
        Change::Delete(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_the_filling_become_those_that_are_wanted() {
        let full = 200 << 20;
        let mut life = Geriatrix::new(full, 1);
        let mut written = 0;
        while written < 35 * full {
            for change in life.next() {
                if let Change::Append { bytes, .. } = change {
                    written += bytes;
                }
            }
            assert!(life.used <= full);
        }
        assert!(life.used > full - (10 << 20), "{}", life.used);
        let excess = life.excess();
        assert!(excess.iter().all(|part| part.abs() < 0.03), "{excess:?}");
        assert!(excess.iter().sum::<f64>().abs() < 1e-9);
    }

    #[test]
    fn only_files_that_are_there_are_deleted() {
        let mut life = Geriatrix::new(20 << 20, 7);
        let mut there = std::collections::BTreeMap::new();
        for change in (0..5000).flat_map(|_| life.next()) {
            match change {
                Change::Append { file, bytes, .. } => assert_eq!(there.insert(file, bytes), None),
                Change::Delete(file) => assert!(there.remove(&file).is_some()),
            }
        }
        assert_eq!(there.values().sum::<u64>(), life.used);
    }
}
