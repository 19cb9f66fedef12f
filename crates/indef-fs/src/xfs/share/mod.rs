//! `xfs-share-range`: move ranges that are shared with reflinks, and keep them shared.
//!
//! The steps are those of [`crate::share`]. The holders of a block are in the file system's reverse mapping (`rmapbt`),
//! which `FS_IOC_GETFSMAP` tells root. Without it, they are looked for among the files that were [named](Target::named)
//! with the target: see [`named`]. Holders are opened by their handles, wherever their names are.
//!
//! # Why nothing is lost
//!
//! A file gets other blocks only where these have the same bytes, by a comparison of the kernel under its locks
//! (`xfs_reflink_remap_prep`, fs/xfs/xfs_reflink.c, v6.18). The copy is on the device before that: the call writes back
//! what is not, and a log record that refers to it is written after a flush of the device's cache.
//!
//! What is left is (5) of the [module](super): XFS writes in place as soon as a block has one owner, at once, and not
//! when it is durable that the others have gone. Here each holder that gets other blocks leaves the old ones to the
//! others. Were the last of these written then, and the power cut before the log is on the device, all files would be
//! back on the old blocks, with what was written. So:
//!
//! 1. Before the first holder of a unit moves, a file without a name, the *keeper of the old blocks*, is let share them
//!    (`FICLONERANGE`), and it is made sure that these are the blocks that were found. From then on they have two
//!    owners at least, and every write to them, through whatever file, goes to another place (`xfs_reflink_trim_around_shared`,
//!    `xfs_reflink_allocate_cow`, fs/xfs/xfs_reflink.c). What an application makes durable then is in blocks of its own,
//!    and its `fsync` forces the log up to there, in order: no recovery takes its file back to the old ones.
//! 2. A move is durable when its call returns: the copy is open with `O_DSYNC`, so that the kernel forces the log under
//!    the locks (`xfs_file_remap_range`, fs/xfs/xfs_file.c; since v5.10). A call that ends early,
//!    for want of space say, does not. So before the old blocks are let go, the log is forced once more, up to a change
//!    of the file that keeps them, which comes after all moves.
//! 3. If this process is killed, its files go, in the midst of a call, too, which is then neither complete nor durable.
//!    So another process has the keeper of the old blocks open as well, and makes everything durable before it ends
//!    ([`linux_abi::keeper`]). (Without it, one of 24 kills, each followed by a write in place and a cut, had one file's
//!    bytes in the other.) Only if that one is killed in the same moment (`SIGKILL` to a whole control group), *and*
//!    a holder's blocks are written in place then, *and* the power is cut before the log is written (30 s at most,
//!    `fs.xfs.xfssyncd_centisecs`), a file that moved in that call could be back on them.
//!
//! Blocks that come free are no danger: XFS gives them to no file's data before it is durable that they are free
//! (`xfs_extent_busy_trim`, fs/xfs/xfs_extent_busy.c).
//!
//! # Why no space is lost
//!
//! XFS frees each block when its last owner goes. So a range moves if all owners of its blocks follow, each with the
//! parts that it has; a holder that was written meanwhile has blocks of its own for that, and keeps them. Right before
//! a unit moves, its owners are asked for once more: if there is one that was not known, the unit stays. A reflink that is
//! made in the moment after that keeps the old blocks: then space is lost, not data. If a holder cannot follow, those that
//! did get the blocks of the target back. Beside the blocks of before there are never more than those of two windows.
//!
//! Without reverse mapping nobody tells of a holder that was not named, neither before nor right before a unit moves; XFS
//! tells of a block only whether more than one has it. So it is asked afterwards: once everybody who is known has left the
//! old blocks of a unit, the keeper has them alone, or there is somebody else (`FIEMAP_EXTENT_SHARED` of the keeper's
//! blocks; the call that moved them has changed the count before it returns, `xfs_reflink_remap_extent`). Then all go back
//! to them in the same way, nothing more of the file moves, and no space is lost. That is found with the first unit, which
//! is a window of its own: no more than 2 MiB are copied in vain. Who is killed between the two leaves one unit in which
//! the others have left somebody, so that its bytes are there twice.
//!
//! Going back, too, is a change of blocks that is not durable at once. Until the log is forced, the keeper has the old
//! blocks and the copy has its own, so nobody writes in place in either of them; both files are open in the other
//! process, too.
//!
//! While the keeper shares blocks of the target that nobody else has (this engine takes them only together with shared
//! ones, or when it was asked for by name), a write to these gets other blocks, and the file a fragment more.
//!
//! # What is left to others
//!
//! Parts of a file that nobody shares move afterwards in the way of `xfs-commit-range` or `xfs-dedupe-range`. A file
//! without shared extents is not taken at all, unless this engine was asked for by name; then it moves those, too.

mod calls;
mod holders;
mod look;
mod named;
mod old_blocks;
mod unshared;
mod ways;

use indef_core::{SkipReason, plan::SharedWindow};
use linux_abi::xfs::{Features, generation};
use rustix::{
    io::Errno,
    thread::{CapabilitySet, capabilities},
};
use units::FileRange;

use self::{
    look::Look,
    old_blocks::OldBlocks,
    unshared::{alone, is_shared},
    ways::XfsWays,
};
use super::file;
use crate::{
    CountedRange, EngineKind, EngineOptions, FsError, RangeCopier, Refusal, Relocation, Relocator,
    Target,
    share::{asked::others, relocation, shared::has_shared},
};

/// The engine.
pub(super) struct XfsShareRange {
    /// It moves ranges that nobody shares in the same way.
    takes_unshared: bool,
    /// The engine for these else.
    alone: Option<Box<dyn Relocator>>,
    old_blocks: OldBlocks,
    /// The file system does not tell who has a block.
    needs_names: bool,
}

impl XfsShareRange {
    /// # Errors
    ///
    /// [`SkipReason::NoEngine`] where sharing is to be given up, or the file system cannot share;
    /// [`SkipReason::NotPermitted`] without the privilege.
    pub(super) fn new(
        features: Features,
        options: &EngineOptions,
        alone: Option<Box<dyn Relocator>>,
    ) -> Result<Self, Refusal> {
        if options.allow_unshare || options.reclaim || !features.contains(Features::REFLINK) {
            return Err(SkipReason::NoEngine.into());
        }
        let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::DAC_READ_SEARCH;
        match capabilities(None) {
            Ok(sets) if sets.effective.contains(needed) => Ok(Self {
                takes_unshared: options.by_name,
                alone,
                old_blocks: OldBlocks::default(),
                needs_names: !features.contains(Features::RMAPBT),
            }),
            _ => Err(SkipReason::NotPermitted.into()),
        }
    }
}

impl Relocator for XfsShareRange {
    fn name(&self) -> &'static str {
        EngineKind::XfsShareRange.name()
    }

    /// Parts of a file have the same holders.
    fn splits(&self) -> bool {
        false
    }

    fn needs_names(&self) -> bool {
        self.needs_names
    }

    fn admit(&self, target: &Target) -> Result<(), Refusal> {
        file::admit(target)?;
        if self.needs_names && target.named.is_none() {
            // Whoever asked for this engine learns why.
            let reason = match self.takes_unshared {
                true => SkipReason::HoldersUnknown,
                false => SkipReason::NoEngine,
            };
            return Err(reason.into());
        }
        if !self.takes_unshared && !has_shared(target)? {
            return Err(SkipReason::NoEngine.into());
        }
        // Root of a container is told nothing of other files.
        match generation(&target.file, target.id.inode) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::PERM) => {
                Err(SkipReason::NoEngine.into())
            }
            Err(error) => Err(target.error("look for the inode", None, error).into()),
            Ok(_) => Ok(()),
        }
    }

    fn foresee(
        &self,
        target: &Target,
        ranges: &[FileRange],
        is_stopping: &dyn Fn() -> bool,
    ) -> Result<Vec<SharedWindow>, Refusal> {
        let how = (self.takes_unshared, self.needs_names);
        let mut look = Look::at(target, ranges.iter().copied(), how)?;
        let mut windows = Vec::new();
        while let Some(looked) = look.next(is_stopping)? {
            let holders = looked.window.as_ref().map_or(0, |window| window.holders());
            let rest = others(&looked.asked, &looked.runs);
            let mut staying = looked.staying;
            staying.retain(|(range, _)| is_shared(&looked.layout, *range));
            windows.push(SharedWindow {
                alone: alone(&looked.layout, &rest),
                together: looked.runs,
                asked: looked.asked,
                staying,
                holders,
                ..SharedWindow::default()
            });
        }
        Ok(windows)
    }

    fn begin<'a>(
        &'a self,
        target: &'a Target,
        ranges: &[CountedRange],
        copier: &'a dyn RangeCopier,
    ) -> Result<Box<dyn Relocation + 'a>, Refusal> {
        let of_engine = (self.alone.as_deref(), &self.old_blocks);
        let how = (self.takes_unshared, self.needs_names);
        let ways = XfsWays::new(of_engine, target, ranges, how)?;
        relocation::begin(ways, target, copier)
    }

    fn settle(&self) -> Vec<FsError> {
        self.alone
            .as_ref()
            .map_or_else(Vec::new, |alone| alone.settle())
    }
}
