//! From an engine's name to the engine.

use indef_core::SkipReason;

use crate::{
    EngineKind, EngineOptions, Filesystem, Refusal, Relocator,
    btrfs::{BtrfsDefragRange, BtrfsShareRange},
    ext4::Ext4MoveExtent,
    f2fs::{F2fsDefragment, F2fsOffload},
    xfs,
};

/// The engine, if it can work on this file system.
///
/// # Errors
///
/// [`SkipReason::ReadOnlyMount`], [`SkipReason::NoEngine`] where the engine is not for this file
/// system or the file system lacks a feature that it needs, or another named reason.
pub fn relocator(
    kind: EngineKind,
    fs: &Filesystem,
    options: &EngineOptions,
) -> Result<Box<dyn Relocator>, Refusal> {
    if !fs.may_use(kind) {
        return Err(SkipReason::NoEngine.into());
    }
    if let Some(why) = fs.moves_nothing() {
        return Err(why.into());
    }
    if options.vacate.is_some() && !kind.can_vacate() {
        return Err(SkipReason::NoEngine.into());
    }
    match kind {
        EngineKind::Ext4MoveExtent => Ok(Box::new(Ext4MoveExtent::new(fs, options)?)),
        EngineKind::XfsCommitRange => xfs::commit_range(fs, options),
        EngineKind::XfsOffload => xfs::offload(fs, options),
        EngineKind::XfsDedupeRange => xfs::dedupe_range(fs, options),
        EngineKind::XfsSwapExtents => xfs::swap_extents(fs, options),
        EngineKind::XfsShareRange => xfs::share_range(fs, options),
        EngineKind::F2fsOffload => Ok(Box::new(F2fsOffload::new(fs, options)?)),
        EngineKind::F2fsDefragment => Ok(Box::new(F2fsDefragment::new(fs))),
        EngineKind::BtrfsShareRange => Ok(Box::new(BtrfsShareRange::new(fs, options)?)),
        EngineKind::BtrfsDefragRange => Ok(Box::new(BtrfsDefragRange::new(fs, options))),
    }
}
