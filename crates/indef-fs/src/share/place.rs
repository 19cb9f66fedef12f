//! What windows of a file need: the files, the run, and a file system that tells of holders.

use std::{collections::BTreeSet, fs::File};

use indef_core::SkipReason;
use units::FileRange;

use super::{holder::HolderId, select::Part};
use crate::{RangeCopier, Refusal, Target};

/// What a file system tells of the files that hold extents.
pub(crate) trait HolderFinder {
    /// Held while a file gets other blocks.
    type Apart;

    /// Whatever must not go on while a file gets other blocks waits for that.
    fn apart() -> Self::Apart;

    /// The extents, or blocks, of a range of the copy, as they are claimed.
    fn extents_of_copy(
        &mut self,
        target: &Target,
        copy: &File,
        range: FileRange,
    ) -> Result<BTreeSet<u64>, Refusal>;

    /// Why extents stay: anybody else refers to them, at another place than is `known`. The parts are of the target,
    /// as they were found.
    fn strangers(
        &mut self,
        target: &Target,
        parts: &[Part],
        known: &dyn Fn(HolderId, u64) -> bool,
        is_stopping: &dyn Fn() -> bool,
    ) -> Option<SkipReason>;

    /// Why everybody goes back to the old blocks of a unit, which `old` keeps: somebody who was not found has them still,
    /// now that all others have left. Not asked where nobody could have been overlooked.
    fn left_behind(&mut self, target: &Target, old: &File, unit: FileRange) -> Option<SkipReason> {
        let _ = (target, old, unit);
        None
    }
}

/// Everything that a window needs beside its own.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) target: &'a Target,
    /// The copy: a file without a name, in which all data is where it is in the target.
    pub(crate) copy: &'a File,
    /// The same, opened as it is to be when it gives its blocks to others.
    pub(crate) giver: &'a File,
    /// Another such file, which gets the old blocks, too, where somebody has to keep them until all files have moved
    /// for good.
    pub(crate) old: Option<&'a File>,
    /// The run and its limits.
    pub(crate) run: &'a dyn RangeCopier,
}
