//! Ranges that several files share move together, and stay shared: what the engines of Btrfs and XFS have in common.
//!
//! ```text
//! look for holders ─▶ copy ─▶ write back ─▶ ( compare and share: holder, holder, …, target )* ─▶ let the copy go
//! ```
//!
//! A [`window`] of some MiB is copied to a file without a name. Once the copy is on the device, the kernel compares it
//! with the same bytes of each holder, a unit at a time, and lets the holder have the blocks of the copy if they are
//! equal (`FIDEDUPERANGE`; fs/remap_range.c, v6.18). It does so under the locks of both files, waits for writes that are
//! under way, and changes neither times nor contents. A file that was written meanwhile differs, and keeps its blocks.
//!
//! [`select`] tells what of a window can move, [`claims`] keeps workers from moving the same blocks, [`old`] keeps what
//! some have to go back to, and [`relocation`] is the order of the steps. A file system says who the holders are
//! ([`HolderFinder`](place::HolderFinder)), and what it needs beside ([`Ways`](relocation::Ways)).

pub(crate) mod asked;
pub(crate) mod claims;
pub(crate) mod holder;
mod lying;
mod old;
pub(crate) mod place;
pub(crate) mod relocation;
pub(crate) mod select;
pub(crate) mod shared;
pub(crate) mod take;
pub(crate) mod window;
