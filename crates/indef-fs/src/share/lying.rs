//! How the data of a window lies, and how its copy is to lie. Pure.

use std::collections::BTreeSet;

use indef_core::layout::{Extent, ExtentFlags, Layout};
use units::{Bytes, FileOffset, FileRange, PhysOffset};

use super::select::Segment;

/// The places of a range, joined where one goes on as the next.
pub(super) fn places(layout: &Layout, range: FileRange) -> Vec<(FileOffset, PhysOffset, Bytes)> {
    let mut joined: Vec<(FileOffset, PhysOffset, Bytes)> = Vec::new();
    for extent in layout.clipped(range) {
        let Extent {
            file, phys, len, ..
        } = extent;
        match joined.last_mut() {
            Some(last) if last.0 + last.2 == file && last.1 + last.2 == phys => last.2 += len,
            _ => joined.push((file, phys, len)),
        }
    }
    joined
}

/// Whether it has a place, in which it lies as it is.
pub(super) fn is_plain(extent: &Extent) -> bool {
    let other =
        ExtentFlags::UNPLACED | ExtentFlags::ENCODED | ExtentFlags::INLINE | ExtentFlags::UNWRITTEN;
    !extent.flags.intersects(other)
}

/// Units, cut where other files begin or cease to share them. Each part gets an extent of its own: it is shared, and
/// freed one day, as a whole.
pub(super) fn equally_shared(units: &[FileRange], segments: &[Vec<Segment>]) -> Vec<FileRange> {
    let ends = |segment: &Segment| [segment.copy, segment.copy + segment.len];
    let cuts: BTreeSet<FileOffset> = segments.iter().flatten().flat_map(ends).collect();
    let mut parts = Vec::new();
    for unit in units {
        let mut start = unit.start;
        for cut in cuts.range(unit.start..unit.end()) {
            parts.push(FileRange::between(start, *cut));
            start = *cut;
        }
        parts.push(FileRange::between(start, unit.end()));
    }
    parts.retain(|part| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_has_an_extent_for_each_way_in_which_it_is_shared() {
        let segment = |copy, len| Segment {
            copy: FileOffset(copy),
            file: FileOffset(copy + 1000),
            len: Bytes(len),
        };
        let runs = [FileRange::new(0, 100), FileRange::new(200, 50)];
        assert_eq!(equally_shared(&runs, &[]), runs);
        let all = vec![segment(0, 100), segment(200, 50)];
        assert_eq!(equally_shared(&runs, &[all]), runs);
        let some = [
            vec![segment(10, 20)],
            vec![segment(30, 70), segment(200, 10)],
        ];
        let lengths = [10, 20, 70, 10, 40];
        let parts = equally_shared(&runs, &some);
        assert_eq!(
            parts.iter().map(|part| part.len.get()).collect::<Vec<_>>(),
            lengths
        );
    }
}
