//! Learn which ranges of files applications really read, and keep them.
//!
//! - [`collect`]: eBPF programs that count reads and writes, at one of two layers.
//! - [`resolve`]: from the key by which the kernel knows a file to its path.
//! - A *tally* is one range of one file, with the number of its reads and writes since the last tally
//!   ([`Tally`]). The collector hands out tallies.
//! - A *store* keeps the tallies of many traces, with heat that fades ([`store`]).
//! - [`import`] adds the traces of other tools to a store.
//! - [`readahead`]: how far the kernel reads ahead on a file's device.
//! - A file is known by the kernel's key ([`FileKey`]); its path is only for people.
//!
//! This crate does not know how fragmented a file is, or which ranges are worth moving.

#![deny(unsafe_code)]

pub mod collect;
mod identify;
pub mod import;
mod mounts;
pub mod readahead;
pub mod resolve;
pub mod store;
mod tally;

pub use tally::{FileKey, FsId, Tally, TracedFile};
