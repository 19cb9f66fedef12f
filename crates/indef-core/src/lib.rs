//! Decides which data to move: access ranges, fragmentation, priority and plans, as pure logic.
//!
//! Data flows one way: access records become per-file [`access`] ranges; extents become a
//! [`layout`] with its degrees of fragmentation (DoLF, DoPF, DoF); both give each range a
//! [`priority`] (IODP); a policy turns the ranges into a [`plan`] of chunks, each decided and
//! priced.
//!
//! Nothing here does I/O, reads a clock or knows a file system: plain data in, plain data out, so
//! that every decision can be tested, replayed and explained. Reading and writing the two file
//! formats (profile, plan) works on `BufRead`/`Write`.
//!
//! Sources: InDeF (ICCD 2022) §II-A, §III; FragPicker (SOSP 2021) §4; FAST 2024 §3.

#![forbid(unsafe_code)]

pub mod access;
pub mod calibrate;
mod draw;
pub mod layout;
mod path;
pub mod plan;
pub mod priority;
pub mod probe;
pub mod profile;
mod skip;

pub use draw::Draw;
pub use path::PathError;
pub use skip::SkipReason;
