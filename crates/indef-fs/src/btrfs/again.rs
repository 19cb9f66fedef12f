//! Parts that the kernel left where they were although it was asked for them, and said nothing.
//!
//! One cause is that an extent is [not known](super::known). To move fragments, that is as good as nothing moved; to
//! give space back, what is written of an extent is lost if the rest stays.

use std::io;

use indef_core::layout::Layout;
use linux_abi::{
    btrfs::defrag_range,
    cache::{start_writeback, wait_writeback},
};
use rustix::fs::{Advice, fadvise};
use units::FileRange;

use super::{batch::CalledRange, call::interrupted, known::make_known, pieces::still_movable};
use crate::Target;

/// Rewrite what of a part lies where it was, by the map of `now`, which is written back. What cannot be rewritten stays.
pub(super) fn rewrite_again(
    target: &Target,
    part: &CalledRange,
    now: &Layout,
    threshold: u32,
) -> io::Result<()> {
    for range in unmoved(&part.before, now) {
        if still_movable(now, range, part.encoded, false).is_err() {
            continue;
        }
        let (start, len) = (range.start.get(), range.len.get());
        let length = std::num::NonZeroU64::new(len);
        if let Err(error) = make_known(target, range) {
            tracing::debug!(%error, "an extent is made known by reading its pages again");
            // Clean ones that nobody has mapped.
            fadvise(&target.file, start, length, Advice::DontNeed)?;
        }
        let (flags, compression) = (part.way.flags(), part.way.compression());
        match defrag_range(&target.file, start, len, flags, threshold, compression) {
            Err(error) if !interrupted(&error) => return Err(error),
            _ => {}
        }
        start_writeback(&target.file, start, len)?;
        wait_writeback(&target.file, start, len)?;
    }
    Ok(())
}

/// The ranges of `before` that have the same place in `now`.
fn unmoved(before: &Layout, now: &Layout) -> Vec<FileRange> {
    let mut ranges: Vec<FileRange> = Vec::new();
    for old in before.extents() {
        for new in now.clipped(old.range()) {
            if old.phys + (new.file - old.file) != new.phys {
                continue;
            }
            match ranges.last_mut() {
                Some(last) if last.end() == new.file => last.len += new.len,
                _ => ranges.push(new.range()),
            }
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_layout::{NONE, layout};

    #[test]
    fn what_lies_where_it_was_is_found() {
        let before = layout(&[(0, 100, 10, NONE), (10, 300, 10, NONE), (30, 500, 10, NONE)]);
        let now = layout(&[
            (0, 900, 4, NONE),
            (4, 104, 6, NONE),
            (10, 300, 10, NONE),
            (30, 500, 2, NONE),
            (32, 950, 8, NONE),
        ]);
        let ranges = [FileRange::new(4, 16), FileRange::new(30, 2)];
        assert_eq!(unmoved(&before, &now), ranges);
        assert_eq!(unmoved(&before, &layout(&[])), []);
    }
}
