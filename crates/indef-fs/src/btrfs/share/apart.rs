//! Looking for holders, and changing them, one at a time: kernels are reported to loop in `add_all_parents` until the
//! machine is restarted where threads do both to the same inodes or extents (docs/btrfs-kernel.md of bees, which
//! knows of no version without). Comparisons may be at the same time. This is for the threads of a process; a plan does
//! not look where a run works.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static LOOK_OR_SHARE: RwLock<()> = RwLock::new(());

/// Held while holders are asked for.
pub(super) fn looking() -> RwLockWriteGuard<'static, ()> {
    LOOK_OR_SHARE
        .write()
        .unwrap_or_else(PoisonError::into_inner)
}

/// Held while a holder gets other blocks.
pub(super) fn sharing() -> RwLockReadGuard<'static, ()> {
    LOOK_OR_SHARE.read().unwrap_or_else(PoisonError::into_inner)
}
