//! Learn what applications really read, and keep it.
//!
//! - [`collect`]: eBPF programs that see reads and writes, at one of two layers.
//! - [`resolve`]: from what the kernel knows a file by to where it is now.
//! - A *tally* is what the collector hands out: one range of one file, and how often it was read or
//!   written since the last time ([`Tally`]).
//! - A *store* keeps tallies of many traces, with heat that fades ([`store`]).
//! - Traces of other tools come into it, too ([`import`]).
//! - A file is known by what the kernel knows it by ([`FileKey`]); its path is only for people.
//!
//! What this crate does not know: how fragmented a file is, and what is worth moving.

#![deny(unsafe_code)]

pub mod collect;
mod identify;
pub mod import;
mod mounts;
pub mod resolve;
pub mod store;
mod tally;

pub use tally::{FileKey, FsId, Tally, TracedFile};
