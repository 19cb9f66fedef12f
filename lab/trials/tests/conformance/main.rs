//! Every engine keeps the same promises: one suite, run for each engine that this machine can have, and in
//! guests for F2FS's and for quotas.
//!
//! The oracle is always the same: contents equal (by hash, or by the data that a concurrent user of
//! the file wrote), size, times, attributes, holes, unwritten ranges, sharing and compression as
//! before, never more fragments, no complaint of the file system's own check, and no leftovers.

mod at_rest;
mod harness;
mod in_guest;
mod in_use;
mod no_room;
mod state;
mod thin;
mod vm_f2fs;
mod vm_quota;

macro_rules! suite {
    ($($module:ident: $kind:ident),*; $($case:ident = $function:path),* $(,)?) => {
        macro_rules! engine {
            ($name:ident, $engine:ident) => {
                mod $name {
                    $(#[test]
                    fn $case() {
                        $function(indef_fs::EngineKind::$engine);
                    })*
                }
            };
        }
        $(engine!($module, $kind);)*

        /// The cases for engines that this machine's kernel lacks: see `vm_f2fs`.
        const CASES: &[(&str, fn(indef_fs::EngineKind))] =
            &[$((stringify!($case), $function)),*];
    };
}

suite! {
    ext4_move_extent: Ext4MoveExtent,
    xfs_swap_extents: XfsSwapExtents,
    xfs_dedupe_range: XfsDedupeRange,
    xfs_commit_range: XfsCommitRange,
    xfs_share_range: XfsShareRange,
    btrfs_share_range: BtrfsShareRange,
    btrfs_defrag_range: BtrfsDefragRange;

    loop_dense = crate::at_rest::dense,
    loop_only_the_bad_half = crate::at_rest::only_the_bad_half,
    loop_holes_and_unwritten = crate::at_rest::holes_and_unwritten,
    loop_reflinked = crate::at_rest::reflinked,
    loop_hard_linked = crate::at_rest::hard_linked,
    loop_small_and_odd_sizes = crate::at_rest::small_and_odd_sizes,
    loop_huge_sparse = crate::at_rest::huge_sparse,
    loop_many_extents = crate::at_rest::many_extents,
    loop_odd_names = crate::at_rest::odd_names,
    loop_ranges_that_cut = crate::at_rest::ranges_that_cut,
    loop_rows = crate::at_rest::rows,
    loop_dropped_midway = crate::at_rest::dropped_midway,
    loop_page_cache = crate::at_rest::page_cache,
    loop_written = crate::in_use::written,
    loop_truncated = crate::in_use::truncated,
    loop_mapped = crate::in_use::mapped,
    loop_read_directly = crate::in_use::read_directly,
    loop_written_directly = crate::in_use::written_directly,
    loop_deleted = crate::in_use::deleted,
    loop_nearly_full = crate::no_room::nearly_full,
    loop_quota = crate::no_room::quota,
    loop_full_pool = crate::thin::full_pool,
}
