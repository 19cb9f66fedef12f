//! Joints: where the next block of a file is the next block of the device.
//!
//! A fragment of `n` blocks has `n − 1` joints, so a file of `b` blocks in `f` fragments has `b − f`. What a move gives is
//! joints, and what spoils a layout takes them, one by one or with their file. It does not matter where on the device they are:
//! whoever moves a fragment as a whole takes no joint from it.

use serde::{Deserialize, Serialize};
use units::FileRange;

use super::{Extent, Layout};

/// The block of which joints are counted: the smallest of any file system.
const BLOCK: u64 = 4096;

/// The joints of some ranges of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joints {
    /// Stretches of the file that lie together, in order: first byte and length.
    stretches: Vec<(u64, u64)>,
}

impl Joints {
    /// Those of a layout in these ranges of the file, which are in order, in the first `most` stretches that have any.
    #[must_use]
    pub fn of(layout: &Layout, ranges: impl IntoIterator<Item = FileRange>, most: usize) -> Self {
        let mut stretches: Vec<(u64, u64)> = Vec::new();
        for range in ranges {
            for (start, len) in together(layout, range) {
                if len <= BLOCK {
                    continue;
                }
                match stretches.last() {
                    // Ranges may overlap: nothing counts twice.
                    Some((before, its)) if before + its > start => {}
                    _ if stretches.len() == most => return Self { stretches },
                    _ => stretches.push((start, len)),
                }
            }
        }
        Self { stretches }
    }

    /// Their number.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.stretches.iter().map(|(_, len)| joints(*len)).sum()
    }

    /// How many of them a later layout of the file still has.
    #[must_use]
    pub fn left_in(&self, layout: &Layout) -> u64 {
        let left = |(start, len): &(u64, u64)| {
            let here = together(layout, FileRange::new(*start, *len));
            here.iter().map(|(_, len)| joints(*len)).sum::<u64>()
        };
        self.stretches.iter().map(left).sum()
    }

    /// Those that a later layout of the file still has.
    #[must_use]
    pub fn in_layout(&self, layout: &Layout, most: usize) -> Self {
        let ranges = { self.stretches.iter() }.map(|(start, len)| FileRange::new(*start, *len));
        Self::of(layout, ranges, most)
    }
}

const fn joints(len: u64) -> u64 {
    len.div_ceil(BLOCK).saturating_sub(1)
}

/// The stretches of a range whose bytes lie together, whatever the flags of their extents.
fn together(layout: &Layout, range: FileRange) -> Vec<(u64, u64)> {
    let mut stretches: Vec<(u64, u64)> = Vec::new();
    let mut last: Option<Extent> = None;
    for extent in layout.clipped(range) {
        match (stretches.last_mut(), &last) {
            (Some(stretch), Some(before)) if before.touches(&extent) => {
                stretch.1 += extent.len.get();
            }
            _ => stretches.push((extent.file.0, extent.len.get())),
        }
        last = Some(extent);
    }
    stretches
}

#[cfg(test)]
mod tests {
    use units::{Bytes, FileOffset, PhysOffset};

    use super::*;
    use crate::layout::ExtentFlags;

    const B: u64 = BLOCK;

    /// Extents of (first block of the file, place, blocks).
    fn layout(extents: &[(u64, u64, u64)]) -> Layout {
        let extent = |(file, phys, len): &(u64, u64, u64)| Extent {
            file: FileOffset(file * B),
            phys: PhysOffset(phys * B),
            len: Bytes(len * B),
            flags: ExtentFlags::empty(),
        };
        Layout::new(extents.iter().map(extent).collect())
    }

    fn blocks(start: u64, len: u64) -> FileRange {
        FileRange::new(start * B, len * B)
    }

    #[test]
    fn a_file_has_as_many_joints_as_blocks_less_fragments() {
        let file = layout(&[(0, 100, 8), (8, 300, 1), (9, 200, 7)]);
        let all = Joints::of(&file, [blocks(0, 16)], 99);
        assert_eq!(all.count(), 16 - 3);
        assert_eq!(all.left_in(&file), 13);
        // Read in two ranges, the joint between them belongs to neither.
        let halves = Joints::of(&file, [blocks(0, 4), blocks(4, 4)], 99);
        assert_eq!(halves.count(), 6);
        // A range that was given twice counts once, and so many stretches at most.
        let twice = Joints::of(&file, [blocks(0, 8), blocks(0, 8)], 99);
        assert_eq!(twice.count(), 7);
        assert_eq!(Joints::of(&file, [blocks(0, 16)], 1).count(), 7);
    }

    #[test]
    fn joints_are_lost_with_their_neighbours_and_not_with_their_place() {
        let before = layout(&[(0, 100, 16)]);
        let joints = Joints::of(&before, [blocks(0, 16)], 99);
        let left = |now: &[(u64, u64, u64)]| joints.left_in(&layout(now));
        assert_eq!(left(&[(0, 500, 16)]), 15);
        // A block in the middle was written elsewhere, one at the end, all of it; the file was cut, and is gone.
        assert_eq!(left(&[(0, 100, 7), (7, 900, 1), (8, 108, 8)]), 13);
        assert_eq!(left(&[(0, 100, 15), (15, 900, 1)]), 14);
        assert_eq!(left(&[(0, 100, 4)]), 3);
        assert_eq!(left(&[]), 0);
        let cut = layout(&[(0, 100, 7), (7, 900, 1), (8, 108, 8)]);
        let later = joints.in_layout(&cut, 99);
        assert_eq!((later.count(), later.left_in(&before)), (13, 13));
        // What is new beside them changes nothing.
        assert_eq!(left(&[(0, 100, 40)]), 15);
    }
}
