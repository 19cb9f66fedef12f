//! From an engine's name to the engine.

use indef_core::SkipReason;

use crate::{
    EngineKind, Filesystem, Refusal, Relocator,
    btrfs::BtrfsDefragRange,
    ext4::Ext4MoveExtent,
    f2fs::{F2fsDefragment, F2fsOffload},
    xfs,
};

/// What every engine is told.
#[derive(Clone, Copy, Debug)]
pub struct EngineOptions {
    /// Ranges that share their blocks with a reflink or a snapshot may be moved, which gives the
    /// sharing up.
    pub allow_unshare: bool,
    /// Leave a file alone while somebody else has it open, wherever a write to it that was reported
    /// durable could be lost in a power cut right after a step.
    pub strict: bool,
    /// The engine was asked for by name: what it warns of is known.
    pub by_name: bool,
    /// How many requests an engine keeps in flight for one file.
    pub queue_depth: u32,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            allow_unshare: false,
            strict: false,
            by_name: false,
            queue_depth: 32,
        }
    }
}

/// The engine, if it can work on this file system.
///
/// # Errors
///
/// [`SkipReason::ReadOnlyMount`], [`SkipReason::NoEngine`] where the engine is not for this file
/// system or the file system lacks what it needs, or another named reason.
pub fn relocator(
    kind: EngineKind,
    fs: &Filesystem,
    options: &EngineOptions,
) -> Result<Box<dyn Relocator>, Refusal> {
    if !fs.may_use(kind) {
        return Err(SkipReason::NoEngine.into());
    }
    if fs.read_only {
        return Err(SkipReason::ReadOnlyMount.into());
    }
    match kind {
        EngineKind::Ext4MoveExtent => Ok(Box::new(Ext4MoveExtent::new(fs, options)?)),
        EngineKind::XfsCommitRange => xfs::commit_range(fs, options),
        EngineKind::XfsOffload => xfs::offload(fs, options),
        EngineKind::XfsSwapExtents => xfs::swap_extents(fs, options),
        EngineKind::F2fsOffload => Ok(Box::new(F2fsOffload::new(fs, options)?)),
        EngineKind::F2fsDefragment => Ok(Box::new(F2fsDefragment::default())),
        EngineKind::BtrfsDefragRange => Ok(Box::new(BtrfsDefragRange::new(fs, options))),
    }
}
