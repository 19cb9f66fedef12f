//! Collect reads and writes with eBPF.
//!
//! The programs (`src/bpf`) count in the kernel; [`Collector::drain`] takes what was counted. One
//! layer is watched at a time ([`Layer`]). What cannot be seen on a kernel is named
//! ([`Collector::sources`]), what was lost for want of room is counted ([`Drained::lost`]).
//!
//! Cost: one access is one look-up and some additions in the kernel. User space does little: the
//! counters stay in the kernel until they are many or a while has passed.

mod btrfs;
mod collector;
mod config;
mod error;
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
