//! Collect reads and writes with eBPF.
//!
//! The programs (`src/bpf`) count in the kernel what is read again and again, and hand out the rest
//! to a thread that adds it up; [`Collector::drain`] takes what was counted. One
//! layer is watched at a time ([`Layer`]). What cannot be seen on a kernel is named
//! ([`Collector::sources`]), what was lost for want of room is counted ([`Drained::lost`]).
//!
//! Cost: one access is one line of a cache and at most one record of a ring. Everything larger than
//! the processor's caches, where each look-up would make the application wait for memory, is in
//! user space, on another processor if one is free.

mod btrfs;
mod collector;
mod config;
mod error;
mod intake;
mod options;
#[allow(unsafe_code, reason = "generated")]
mod skeleton;
mod sources;
mod tallies;
#[allow(unsafe_code, reason = "structures from the bytes of maps and events")]
mod wire;

pub use collector::{Access, Collector, Drained};
pub use error::TraceError;
pub use options::{Filter, Layer, TraceOptions};
pub use sources::Source;
