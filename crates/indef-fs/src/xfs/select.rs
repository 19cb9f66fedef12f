//! Selects the ranges that are worth moving, and computes the file's layout afterwards. Pure.

use indef_core::{
    SkipReason,
    layout::{Extent, ExtentFlags, Layout},
};
use units::{Bytes, FileRange};

use crate::aim::Aim;

/// The ranges of `asked` that can be moved, in whole blocks, cut to the file.
///
/// # Errors
///
/// Where none is left, the reason: shared, or contiguous already.
pub(super) fn choose(
    layout: &Layout,
    asked: &[FileRange],
    file: FileRange,
    block_size: Bytes,
    allow_unshare: bool,
    aim: Aim,
) -> Result<Vec<FileRange>, SkipReason> {
    let mut chosen: Vec<FileRange> = Vec::new();
    let mut reason = SkipReason::Contiguous;
    for range in asked {
        let range = range.align_outward(block_size).intersect(file);
        if layout.fragments_in(range) < aim.least_fragments() {
            continue;
        }
        if !allow_unshare
            && layout
                .clipped(range)
                .any(|e| e.flags.contains(ExtentFlags::SHARED))
        {
            reason = SkipReason::Shared;
            continue;
        }
        match chosen.last_mut() {
            // Aligning can make neighbours overlap.
            Some(last) if last.end() > range.start => {
                *last = FileRange::between(last.start, last.end().max(range.end()));
            }
            _ => chosen.push(range),
        }
    }
    if chosen.is_empty() {
        Err(reason)
    } else {
        Ok(chosen)
    }
}

/// How many fragments fewer the file has once `range` lies where `donor` says; negative if more.
pub(super) fn gain(layout: &Layout, donor: &Layout, range: FileRange) -> i64 {
    -layout.count(range).change_to(donor.fragments_in(range))
}

/// The layout of `within` once each of `ranges` (ordered, disjoint) lies where `donor` says.
pub(super) fn replaced(
    layout: &Layout,
    donor: &Layout,
    ranges: &[FileRange],
    within: FileRange,
) -> Layout {
    let mut extents: Vec<Extent> = Vec::new();
    let mut place = within.start;
    for range in ranges.iter().map(|range| range.intersect(within)) {
        extents.extend(layout.clipped(FileRange::between(place, range.start)));
        extents.extend(donor.clipped(range));
        place = range.end();
    }
    extents.extend(layout.clipped(FileRange::between(place, within.end())));
    Layout::new(extents)
}

/// The parts of `file` in none of `ranges` (ordered, disjoint).
pub(super) fn others(ranges: &[FileRange], file: FileRange) -> Vec<FileRange> {
    let mut others = Vec::new();
    let mut place = file.start;
    for range in ranges {
        others.push(FileRange::between(place, range.start));
        place = range.end();
    }
    others.push(FileRange::between(place, file.end()));
    others.retain(|range| !range.is_empty());
    others
}

/// Which bytes are written, and which only allocated: an exchange must not change that.
pub(super) fn coverage(layout: &Layout, within: FileRange) -> Vec<(FileRange, bool)> {
    let mut runs: Vec<(FileRange, bool)> = Vec::new();
    for extent in layout.clipped(within) {
        let unwritten = extent.flags.contains(ExtentFlags::UNWRITTEN);
        match runs.last_mut() {
            Some((run, state)) if run.end() == extent.file && *state == unwritten => {
                run.len += extent.len;
            }
            _ => runs.push((extent.range(), unwritten)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_layout::{NONE, layout};

    const BLOCK: Bytes = Bytes(10);

    #[test]
    fn contiguous_and_shared_ranges_stay() {
        let all = layout(&[
            (0, 1000, 10, NONE),
            (10, 3000, 10, NONE),
            (20, 5000, 40, NONE),
            (60, 7000, 10, ExtentFlags::SHARED),
            (70, 9000, 10, ExtentFlags::SHARED),
        ]);
        let file = FileRange::new(0, 80);
        let ranges = [
            FileRange::new(0, 15),
            FileRange::new(20, 40),
            FileRange::new(60, 20),
        ];
        assert_eq!(
            choose(&all, &ranges, file, BLOCK, false, Aim::Join),
            Ok(vec![FileRange::new(0, 20)])
        );
        assert_eq!(
            choose(&all, &ranges, file, BLOCK, true, Aim::Join),
            Ok(vec![FileRange::new(0, 20), FileRange::new(60, 20)])
        );
        assert_eq!(
            choose(&all, &ranges[1..2], file, BLOCK, true, Aim::Join),
            Err(SkipReason::Contiguous)
        );
        assert_eq!(
            choose(&all, &ranges[1..], file, BLOCK, false, Aim::Join),
            Err(SkipReason::Shared)
        );
    }

    #[test]
    fn a_range_that_cuts_extents_gains_less() {
        let all = layout(&[(0, 1000, 40, NONE), (40, 3000, 40, NONE)]);
        let donor = layout(&[(0, 5000, 80, NONE)]);
        assert_eq!(gain(&all, &donor, FileRange::new(0, 80)), 1);
        assert_eq!(gain(&all, &donor, FileRange::new(0, 60)), 0);
        assert_eq!(gain(&all, &donor, FileRange::new(20, 40)), -1);
    }

    #[test]
    fn what_is_not_moved_is_the_rest() {
        let file = FileRange::new(0, 100);
        let ranges = [FileRange::new(0, 20), FileRange::new(50, 10)];
        assert_eq!(
            others(&ranges, file),
            [FileRange::new(20, 30), FileRange::new(60, 40)]
        );
        assert_eq!(others(&[file], file), []);
    }

    #[test]
    fn coverage_ignores_places_but_not_holes_and_states() {
        let a = layout(&[
            (0, 1000, 20, NONE),
            (20, 3000, 20, NONE),
            (60, 9000, 10, ExtentFlags::UNWRITTEN),
        ]);
        let b = layout(&[(0, 7000, 40, NONE), (60, 0, 10, ExtentFlags::UNWRITTEN)]);
        let c = layout(&[(0, 7000, 40, NONE), (60, 0, 10, NONE)]);
        let file = FileRange::new(0, 100);
        assert_eq!(coverage(&a, file), coverage(&b, file));
        assert_ne!(coverage(&a, file), coverage(&c, file));
    }
}
