//! Whether a load is another one than that which was last looked at. Pure: no file system, no clock.

use std::collections::{HashMap, HashSet};

use indef_trace::FileKey;

/// A load is another one when this part of its reads is of files that the last look did not know.
const PART: f64 = 0.1;
/// Fewer reads tell nothing.
const LEAST: u64 = 100;
/// Files that are known, and files that were read since. When there are more, only those of the last traces stay known, and
/// further ones are not counted: a look too many costs little.
const MOST_KNOWN: usize = 256 << 10;

/// The files of a file system that are read.
#[derive(Debug, Default)]
pub(super) struct Novelty {
    /// Device numbers of its files.
    devices: HashSet<u64>,
    /// Those that were read before the last look.
    known: HashSet<FileKey>,
    /// Reads since then.
    reads: HashMap<FileKey, u64>,
}

impl Novelty {
    /// Files with this device number are its own. On Btrfs each subvolume has one.
    pub(super) fn is_on(&mut self, device: u64) {
        self.devices.insert(device);
    }

    /// Count the reads of a trace; those of other file systems are passed over.
    pub(super) fn add(&mut self, reads: impl IntoIterator<Item = (FileKey, u64)>) {
        for (file, count) in reads {
            // A window may keep looks away for a week. So many files tell enough.
            let has_room = self.reads.len() < MOST_KNOWN || self.reads.contains_key(&file);
            if count > 0 && has_room && self.devices.contains(&file.dev) {
                let sum = self.reads.entry(file).or_default();
                *sum = sum.saturating_add(count);
            }
        }
    }

    /// Whether the reads since the last look are those of another load.
    pub(super) fn is_other(&self) -> bool {
        let sum = |is: &dyn Fn(&FileKey) -> bool| {
            let counted = self.reads.iter().filter(|(file, _)| is(file));
            counted.fold(0_u64, |sum, (_, reads)| sum.saturating_add(*reads))
        };
        let new = sum(&|file| !self.known.contains(file));
        new >= LEAST && new as f64 >= PART * sum(&|_| true) as f64
    }

    /// A look knows all that was read so far.
    pub(super) fn looked(&mut self) {
        if self.known.len().saturating_add(self.reads.len()) > MOST_KNOWN {
            self.known.clear();
        }
        let files = std::mem::take(&mut self.reads).into_keys();
        self.known.extend(files.take(MOST_KNOWN));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(dev: u64, inode: u64) -> FileKey {
        FileKey {
            dev,
            inode,
            generation: 1,
            subvolume: 0,
        }
    }

    #[test]
    fn only_reads_of_files_that_no_look_knows_make_another_load() {
        let mut novelty = Novelty::default();
        novelty.is_on(7);
        assert!(!novelty.is_other());
        // Another file system, and files that are only written.
        novelty.add([(file(8, 1), 1000), (file(7, 1), 0)]);
        assert!(!novelty.is_other());
        novelty.add([(file(7, 1), LEAST - 1)]);
        assert!(!novelty.is_other());
        novelty.add([(file(7, 1), 1)]);
        assert!(novelty.is_other());
        novelty.looked();
        assert!(!novelty.is_other());
        // The same load, with a little beside it.
        novelty.add([(file(7, 1), 10_000), (file(7, 2), 1000)]);
        assert!(!novelty.is_other());
        novelty.add([(file(7, 3), 200)]);
        assert!(novelty.is_other());
        novelty.looked();
        novelty.add((1..=3).map(|inode| (file(7, inode), 1000)));
        assert!(!novelty.is_other());
        // The inode's number is another file's by now.
        let next = FileKey {
            generation: 2,
            ..file(7, 1)
        };
        novelty.add([(next, 1000)]);
        assert!(novelty.is_other());
    }

    #[test]
    fn what_is_known_is_bounded() {
        let mut novelty = Novelty::default();
        novelty.is_on(7);
        for round in 0..3 {
            let first = round * MOST_KNOWN as u64;
            novelty.add((0..MOST_KNOWN as u64 - 1).map(|at| (file(7, first + at), 1)));
            novelty.looked();
            assert!(novelty.known.len() <= MOST_KNOWN);
            assert!(novelty.known.contains(&file(7, first)));
        }
        // Nor do reads between two looks add up without end.
        for round in 0..3 {
            let first = round * MOST_KNOWN as u64;
            novelty.add((0..MOST_KNOWN as u64).map(|at| (file(7, first + at), 1)));
            assert_eq!(novelty.reads.len(), MOST_KNOWN);
            assert!(novelty.is_other());
        }
    }
}
