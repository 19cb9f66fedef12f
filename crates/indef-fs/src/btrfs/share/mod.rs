//! `btrfs-share-range`: move ranges that are shared with snapshots and reflinks, and keep them shared.
//!
//! The steps are those of [`crate::share`]; the kernel compares in `btrfs_remap_file_range` (fs/btrfs/reflink.c, v6.1 and
//! v6.18). That works on read-only snapshots, too, if the mount is writable.
//!
//! # Why nothing is lost
//!
//! 1. A file gets other blocks only where these have the same bytes, by a comparison of the kernel under its locks. Data
//!    that was written meanwhile differs, and stays.
//! 2. The copy is on the device before anybody refers to it, and the tree changes in a transaction: after a power cut a
//!    file has its old blocks or the new ones, both whole. What is written to a file later gets blocks of its own,
//!    since it has copy-on-write: files without are left to the other engine. (Written in place, the old blocks of a
//!    file that has moved would change in others that after a power cut have not.)
//! 3. The copy has no name. It is gone when its last descriptor is, also if that is by a kill or a power cut.
//!
//! # Why no space is lost
//!
//! An extent is freed when nobody refers to any part of it. So all holders of an extent are asked for
//! (`BTRFS_IOC_LOGICAL_INO_V2`, by root), in all subvolumes, and it moves only if each part of it that anybody has is
//! in the range that moves; see [`select`](crate::share::select). Of each unit the target comes last: where a holder cannot follow, those
//! that did get the blocks of the target back. Each unit has extents of its own in the copy, so that a stop leaves none of
//! which only a part is in use; a kill in the midst of a unit leaves that one, of 2 MiB at most, shared by some. A holder that was written meanwhile has blocks of its own for what was
//! written, and only that. So beside the blocks of before there are never more than those of two windows, until the
//! next commit frees what was given up.
//!
//! A window is looked at before it is copied, and each unit once more right before it moves: if anybody refers to its
//! extents who did not then, it stays. A snapshot or reflink that is made in the moment between that look and the
//! comparison keeps the old blocks: then space is lost, not data. What a subvolume has that is being deleted stays until
//! that is done, and is not copied.
//!
//! # What is left to `btrfs-defrag-range`
//!
//! Parts of a file that nobody shares move afterwards in the way of that engine, with what is compressed. A file
//! without shared extents is not taken at all, unless this engine was asked for by name; then it moves those, too.
//!
//! # What a plan knows
//!
//! A plan looks at a file as a relocation does ([`look`]), and reckons the same price ([`metadata`]), in the order in
//! which files are moved. The price stands in the plan's cost, and each window asks the run for its part of that.

mod apart;
mod foresee;
mod holders;
mod look;
mod metadata;
mod ways;

use indef_core::{SkipReason, plan::SharedWindow};
use linux_abi::handle::{self, FileHandle};
use rustix::{
    io::Errno,
    thread::{CapabilitySet, capabilities},
};
use units::FileRange;

use self::{holders::Finder, metadata::Ledger, ways::BtrfsWays};
use crate::{
    CountedRange, EngineKind, EngineOptions, Filesystem, FsError, RangeCopier, Refusal, Relocation,
    Relocator, Target,
    btrfs::commits::Commits,
    share::{relocation, shared::has_shared},
};

/// The engine.
#[derive(Debug)]
pub(crate) struct BtrfsShareRange {
    fs: Filesystem,
    /// It moves ranges that nobody shares in the same way.
    takes_unshared: bool,
    /// Metadata that snapshots got.
    ledger: Ledger,
    /// Of what nobody shares.
    commits: Commits,
}

impl BtrfsShareRange {
    /// # Errors
    ///
    /// [`SkipReason::NotPermitted`] without the privilege; [`SkipReason::NoEngine`] where sharing is to be given up,
    /// where the mount's options give a copy other properties than data has that may be shared, and, unless it was
    /// asked for by name, on Linux 6.2 and 6.3, of which some do not tell all holders.
    pub(crate) fn new(fs: &Filesystem, options: &EngineOptions) -> Result<Self, Refusal> {
        // Compression that cannot be refused, and data without checksums.
        let is_forced = fs.mount.as_ref().is_some_and(|mount| {
            (mount.options.iter()).any(|option| option.starts_with("compress-force"))
        });
        let is_plain = ["nodatasum", "nodatacow"]
            .iter()
            .any(|option| fs.has_mount_option(option));
        let is_blind = matches!(fs.kernel, (6, 2 | 3)) && !options.by_name;
        if options.allow_unshare || options.reclaim || is_forced || is_plain || is_blind {
            return Err(SkipReason::NoEngine.into());
        }
        let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::DAC_READ_SEARCH;
        match capabilities(None) {
            Ok(sets) if sets.effective.contains(needed) => Ok(Self {
                fs: fs.clone(),
                takes_unshared: options.by_name,
                ledger: Ledger::default(),
                commits: Commits::of(fs),
            }),
            _ => Err(SkipReason::NotPermitted.into()),
        }
    }
}

impl Relocator for BtrfsShareRange {
    fn name(&self) -> &'static str {
        EngineKind::BtrfsShareRange.name()
    }

    /// Parts of a file have the same holders.
    fn splits(&self) -> bool {
        false
    }

    fn admit(&self, target: &Target) -> Result<(), Refusal> {
        if target.size.is_zero() {
            return Err(SkipReason::Empty.into());
        }
        if !self.takes_unshared && !has_shared(target)? {
            return Err(SkipReason::NoEngine.into());
        }
        let subvolume = subvolume(target)?;
        match Finder::default().is_ordinary(target, subvolume) {
            Ok(true) => Ok(()),
            Ok(false) => Err(SkipReason::Unsupported.into()),
            Err(error) => Err(match Errno::from_io_error(&error) {
                // Root of a container.
                Some(Errno::PERM) => SkipReason::NoEngine.into(),
                // Its subvolume is deleted.
                Some(Errno::NOENT) => SkipReason::Gone.into(),
                _ => target.error("look for the inode", None, error).into(),
            }),
        }
    }

    fn foresee(
        &self,
        target: &Target,
        ranges: &[FileRange],
        is_stopping: &dyn Fn() -> bool,
    ) -> Result<Vec<SharedWindow>, Refusal> {
        let subvolume = subvolume(target)?;
        let unshared = self.takes_unshared;
        foresee::foresee(
            &self.ledger,
            target,
            subvolume,
            ranges,
            unshared,
            is_stopping,
        )
    }

    fn begin<'a>(
        &'a self,
        target: &'a Target,
        ranges: &[CountedRange],
        copier: &'a dyn RangeCopier,
    ) -> Result<Box<dyn Relocation + 'a>, Refusal> {
        let of_engine = (&self.fs, self.takes_unshared, &self.ledger, &self.commits);
        let ways = BtrfsWays::new(of_engine, target, subvolume(target)?, ranges)?;
        relocation::begin(ways, target, copier)
    }

    fn settle(&self) -> Vec<FsError> {
        self.commits.wait();
        Vec::new()
    }
}

/// The tree of the target's subvolume.
fn subvolume(target: &Target) -> Result<u64, Refusal> {
    match handle::of(&target.file) {
        Ok(FileHandle::Btrfs { subvolume, .. }) => Ok(subvolume),
        Ok(_) => Err(SkipReason::NoEngine.into()),
        Err(error) => Err(target.error("ask for its handle", None, error).into()),
    }
}
