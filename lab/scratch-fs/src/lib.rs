//! File systems on loop files, and files in a wanted state.
//!
//! For tests and benchmarks. The file systems are those of `loop_fs`, which needs root and mkfs;
//! [`require`] turns an error that says what is missing into a skip that is reported.
//!
//! [`fragment`] and [`Shape`] make files that have exactly the wanted fragments (checked by FIEMAP:
//! a state that did not come out is an error, never a silently easier test), holes and unwritten
//! ranges, with [`content`] that can be told again from seed and offset.
//!
//! [`fill_pool`] makes a thin volume of a file system, and fills its pool: no write to a new place succeeds.
//!
//! They ignore what no test needs: other block sizes than 4 KiB where a piece is smaller than a block.

#![forbid(unsafe_code)]

mod cache;
mod content;
mod disturbed;
mod ext4;
mod fragment;
mod nameless;
mod shape;
mod skip;
mod thin;
mod xfsprogs;

pub use cache::{CacheChange, cached_pages, cached_pages_after, settled_cache_change};
pub use content::{content, verify};
pub use disturbed::{uncut, undisturbed};
pub use fragment::{FragmentOptions, fragment};
pub use loop_fs::{
    AlignedBuffer, DeviceBytes, ScratchError, ScratchFs, ScratchFsBuilder, fsck_f2fs_found,
};
pub use shape::{Segment, Shape, fragments, most_left_by_btrfs, reflink};
pub use skip::{require, require_program, skip};
pub use thin::fill_pool;
pub use xfsprogs::{knows_exchange, require_xfsprogs, share_xfsprogs, xfsprogs};
