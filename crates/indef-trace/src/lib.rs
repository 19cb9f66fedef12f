//! Learn what applications really read, and keep it.
//!
//! - A *tally* is what the collector hands out: one range of one file, and how often it was read or
//!   written since the last time ([`Tally`]).
//! - A file is known by what the kernel knows it by ([`FileKey`]); its path is only for people.
//!
//! What this crate does not know: how fragmented a file is, and what is worth moving.

pub mod store;
mod tally;

pub use tally::{FileKey, FsId, Tally, TracedFile};
