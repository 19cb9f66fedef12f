//! The XFS engines on real file systems.
//!
//! Every test goes through all [`Flavour`]s that this machine can make. The oracle is always the
//! same: content, size, times and allocation as before, fewer fragments, no complaint of
//! `xfs_repair`.

#[path = "xfs/flavour.rs"]
mod flavour;
#[path = "xfs/hammer.rs"]
mod hammer;
#[path = "xfs/layout.rs"]
mod layout;
#[path = "xfs/openers.rs"]
mod openers;
#[path = "xfs/refusals.rs"]
mod refusals;
#[path = "xfs/share.rs"]
mod share;
#[path = "xfs/share_named.rs"]
mod share_named;
#[path = "xfs/shared_gap.rs"]
mod shared_gap;
#[path = "xfs/unshared.rs"]
mod unshared;
#[path = "xfs/writers.rs"]
mod writers;
#[path = "xfs/zeroed.rs"]
mod zeroed;
