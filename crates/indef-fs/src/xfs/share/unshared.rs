//! The parts of a file that nobody shares.

use indef_core::layout::{ExtentFlags, Layout};
use units::FileRange;

use crate::share::asked::others;

/// Whether anybody else has a part of it.
pub(super) fn is_shared(layout: &Layout, range: FileRange) -> bool {
    let is_shared = |flags: ExtentFlags| flags.contains(ExtentFlags::SHARED);
    layout.clipped(range).any(|extent| is_shared(extent.flags))
}

/// The parts of ranges that nobody shares, and that have fragments.
pub(super) fn alone(layout: &Layout, ranges: &[FileRange]) -> Vec<FileRange> {
    let shared = |range: &FileRange| -> Vec<FileRange> {
        let extents = layout.clipped(*range);
        let shared = extents.filter(|extent| extent.flags.contains(ExtentFlags::SHARED));
        shared.map(|extent| extent.range()).collect()
    };
    let parts = ranges
        .iter()
        .flat_map(|range| others(&[*range], &shared(range)));
    parts
        .filter(|part| layout.fragments_in(*part) > 1)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_layout::{NONE, layout};

    #[test]
    fn what_nobody_shares_is_cut_out_of_what_is_left() {
        let file = layout(&[
            (0, 1000, 10, NONE),
            (10, 3000, 10, NONE),
            (20, 5000, 10, ExtentFlags::SHARED),
            (30, 7000, 10, NONE),
            (50, 7020, 10, NONE),
            (60, 9000, 10, NONE),
        ]);
        let all = [FileRange::new(0, 40), FileRange::new(50, 20)];
        let expected = [FileRange::new(0, 20), FileRange::new(50, 20)];
        assert_eq!(alone(&file, &all), expected);
        assert!(is_shared(&file, FileRange::new(15, 6)));
        assert!(!is_shared(&file, FileRange::new(0, 20)));
    }
}
