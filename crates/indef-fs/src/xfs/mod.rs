//! XFS: the data is copied by us into a donor, and the kernel exchanges the blocks.
//!
//! Three ways. [`commit`] (`xfs-commit-range`) exchanges ranges, piece by piece; it needs Linux
//! 6.12, the `exchange` feature (set by mkfs), and `CAP_SYS_ADMIN`, without which an exchange would
//! change the file's times. [`dedupe`] (`xfs-dedupe-range`) has the kernel compare ranges with their
//! copies and share the blocks of the copies; it needs the `reflink` feature, and works on any kernel
//! and for any user. [`swap`] (`xfs-swap-extents`) exchanges all blocks of two files, on any kernel
//! and for any user; it moves parts of a file by sharing all others with the donor for the moment of
//! the exchange. `EXCHANGE_RANGE` of Linux 6.10 is not used: it would exchange even if
//! the file has changed since it was copied. A fourth engine, `xfs-offload`, is the first one with an
//! NVMe device that copies instead of the host ([`offload`]; docs/offload-stock-kernel.md). A fifth one, `xfs-share-range`,
//! moves what reflinks share, together with all files that share it ([`share`]).
//!
//! # Why nothing is lost
//!
//! [`dedupe`] compares all bytes under the locks of both files, so that only (5) concerns it.
//!
//! Both exchanges check under the file's locks that its modification and change times are those
//! that we looked at *before* copying (fs/xfs/xfs_exchrange.c, fs/xfs/xfs_bmap_util.c, v6.12), and
//! do nothing otherwise. Five things could still slip through; [`freshness`] is about the
//! first four:
//!
//! 1. Times have the granularity of a tick (until Linux 6.13): a write in the same tick as the last
//!    one changes nothing. So after looking at the times, we wait until the clock has moved on.
//! 2. A buffered or mapped write may have set the times before we looked and reach its pages after.
//!    So the file is written back *after* looking; that also write-protects mapped pages, and the
//!    next store to them sets the times anew.
//! 3. A direct write may have set the times before, and be under way still. So between looking and
//!    copying there is a *barrier*: an operation that waits for direct I/O under the file's locks,
//!    or the proof that nobody else has the file open.
//! 4. A page fault sets the times some instructions before it takes the lock that a barrier would
//!    wait for. Where somebody else has the file open, dirty pages are looked for right before the
//!    exchange.
//! 5. The blocks that the donor gets in exchange are freed when it goes. If another file shares
//!    them, it may be their sole owner from then on, and XFS lets a sole owner write in place: at
//!    once, not when the change that made it the sole owner is durable. After a power cut the file
//!    has its old blocks, and in them the writes to the other file. A clone may be made at any moment,
//!    also after our last look, and a process that is killed frees its donor at once. So each
//!    COMMIT_RANGE is durable before it returns. The other two leave shared blocks alone.
//!    `xfs-swap-extents`, which cannot ask the kernel for a durable exchange, looks again after it, and
//!    makes it durable if somebody has cloned the file meanwhile; if it is killed in between, it does
//!    not. `xfs-dedupe-range`, whose call frees the old blocks, holds a lease from its last look until the
//!    donor has let go of its share, so that nobody can open the file to clone it. If somebody has it open already, a
//!    clone that is made between the look and the call is not seen.
//!
//! A power cut at any time leaves the old blocks or the new ones, with the same content; the copy
//! has reached the device before the exchange begins. The donor has no name, so it is freed when
//! the process ends, however it ends, or when the log is recovered.
//!
//! # What is kept
//!
//! Times (no engine touches them), holes, unwritten ranges, sharing (shared extents are left
//! alone, or shared anew with the donor). After a move with `xfs-dedupe-range`, or one in part with
//! `xfs-swap-extents`, the inode has the "may share blocks" flag, which costs later writes a look-up
//! and nothing else. Space that the file system allocated speculatively past the end is given back;
//! space that was allocated on purpose stays.

mod cached;
mod commit;
mod copy_device;
mod dedupe;
mod donor;
mod file;
mod freshness;
mod inodes;
mod offload;
mod owners;
mod select;
mod share;
mod swap;
mod sweep;
mod turn;

use std::{io, path::PathBuf};

use indef_core::SkipReason;
use linux_abi::xfs::{Features, geometry};

pub(crate) use self::inodes::{BulkInodes, Chunk};
pub(crate) use self::owners::OwnedExtents;
pub use self::sweep::{Sweep, SweptInode};
use self::{
    copy_device::{CopyDevice, NoCopy},
    turn::Turns,
};
use crate::{
    EngineOptions, Filesystem, FsError, Refusal, Relocator,
    aim::{Aim, Kept},
    hold::Holds,
};

/// `xfs-commit-range`.
///
/// # Errors
///
/// [`SkipReason::NoEngine`] where the kernel or the file system cannot, [`SkipReason::NotPermitted`]
/// without the privilege.
pub(crate) fn commit_range(
    fs: &Filesystem,
    options: &EngineOptions,
) -> Result<Box<dyn Relocator>, Refusal> {
    can_commit(fs)?;
    Ok(Box::new(commit::CommitRange {
        allow_unshare: options.allow_unshare,
        offload: None,
        row: options.row,
        turns: Turns::default(),
        aim: Aim::new(options.vacate),
        kept: Kept::default(),
    }))
}

/// The features of the file system, where its mount point may be opened.
fn features(fs: &Filesystem) -> Option<Features> {
    let root = fs.mount.as_ref()?.open(fs.dev).ok()?;
    Some(geometry(&root).ok()?.features)
}

/// Check that ranges can be exchanged here. Returns the features of the file system.
fn can_commit(fs: &Filesystem) -> Result<Features, SkipReason> {
    let features = features(fs)
        .filter(|features| features.contains(Features::EXCHANGE_RANGE))
        .filter(|_| fs.kernel_at_least(6, 12))
        .ok_or(SkipReason::NoEngine)?;
    let capabilities = rustix::thread::capabilities(None).map_err(|_| SkipReason::NotPermitted)?;
    if !capabilities
        .effective
        .contains(rustix::thread::CapabilitySet::SYS_ADMIN)
    {
        return Err(SkipReason::NotPermitted);
    }
    Ok(features)
}

/// `xfs-offload`.
///
/// # Errors
///
/// As for [`commit_range`], which it is built on; and why the device below cannot copy.
pub(crate) fn offload(
    fs: &Filesystem,
    options: &EngineOptions,
) -> Result<Box<dyn Relocator>, Refusal> {
    let features = can_commit(fs)?;
    let fail = |why: NoCopy| {
        let mount = fs.mount.as_ref();
        let path = mount.map_or_else(PathBuf::new, |mount| mount.point.clone());
        FsError::new(path, "copy inside the device", io::Error::other(why))
    };
    if !features.contains(Features::REFLINK) {
        return Err(fail(NoCopy::NoReflink).into());
    }
    let device = CopyDevice::below(fs).map_err(fail)?;
    Ok(Box::new(commit::CommitRange {
        allow_unshare: options.allow_unshare,
        offload: Some(offload::Offload::new(device)),
        row: None,
        turns: Turns::default(),
        aim: Aim::Join,
        kept: Kept::default(),
    }))
}

/// `xfs-dedupe-range`.
///
/// # Errors
///
/// [`SkipReason::NoEngine`] where the file system cannot share blocks.
pub(crate) fn dedupe_range(
    fs: &Filesystem,
    options: &EngineOptions,
) -> Result<Box<dyn Relocator>, Refusal> {
    if features(fs).is_some_and(|features| !features.contains(Features::REFLINK)) {
        return Err(SkipReason::NoEngine.into());
    }
    Ok(Box::new(dedupe::DedupeRange {
        allow_unshare: options.allow_unshare,
        strict: options.strict,
        holds: Holds::default(),
        row: options.row,
        turns: Turns::default(),
        aim: Aim::new(options.vacate),
        kept: Kept::default(),
    }))
}

/// `xfs-share-range`.
///
/// # Errors
///
/// See [`share::XfsShareRange::new`].
pub(crate) fn share_range(
    fs: &Filesystem,
    options: &EngineOptions,
) -> Result<Box<dyn Relocator>, Refusal> {
    let features = features(fs).ok_or(SkipReason::NoEngine)?;
    // Whichever moves what nobody shares.
    let alone = commit_range(fs, options).or_else(|_| dedupe_range(fs, options));
    Ok(Box::new(share::XfsShareRange::new(
        features,
        options,
        alone.ok(),
    )?))
}

/// `xfs-swap-extents`.
///
/// # Errors
///
/// [`SkipReason::NoRmap`], if the engine was not asked for by name: without reverse mapping SWAPEXT
/// exchanges the forks of the inodes as they are and logs that the blocks of their extent trees have
/// another owner; when the log is recovered, such an inode is verified before its checksum is computed
/// anew (`xfs_recover_inode_owner_change`, fs/xfs/xfs_inode_item_recover.c, v6.18), and the file system
/// does not mount (40 of 65 cuts).
pub(crate) fn swap_extents(
    fs: &Filesystem,
    options: &EngineOptions,
) -> Result<Box<dyn Relocator>, Refusal> {
    let features = features(fs);
    let has = |feature| features.is_some_and(|features| features.contains(feature));
    if features.is_some() && !has(Features::RMAPBT) && !options.by_name {
        return Err(SkipReason::NoRmap.into());
    }
    Ok(Box::new(swap::SwapExtents {
        allow_unshare: options.allow_unshare,
        by_name: options.by_name,
        reflink: has(Features::REFLINK),
        row: options.row,
        turns: Turns::default(),
        holds: Holds::default(),
    }))
}
