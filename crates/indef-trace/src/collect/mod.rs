//! Collect reads and writes with eBPF.
//!
//! There is one BPF object for each layer ([`Layer`]), and one layer is watched at a time. The
//! programs (`src/bpf`) count in the kernel the ranges that are accessed again and again, and send
//! the others to a thread that adds them up; [`Collector::drain`] takes the counts. The collector
//! names what cannot be seen on a kernel ([`Collector::sources`]), and counts what was lost for want
//! of room ([`Drained::lost`]).
//!
//! Cost: one access is one cache line and at most one record of a ring. Everything larger than the
//! processor's caches, where each look-up would make the application wait for memory, is in user
//! space, on another processor if one is free.
//!
//! How much of it is counted follows from what it costs, where that is asked for ([`Sampling`]).
//!
//! The modules use one another in one direction: `collector` → `hand` → `sampler` → `opened` → `expense`, `programs`, `intake`,
//! `files`, `accounts` (with `standing`), `meter` → `config` (with `overlay`), `brake` → `sampling` (with `windows`), `sources`,
//! `tallies` → `wire` → `contract`, which is generated from `bpf/contract.h`.

mod accounts;
mod brake;
mod btrfs;
mod collector;
mod config;
#[allow(unsafe_code, reason = "derived for the generated structures")]
mod contract;
mod drained;
mod error;
mod expense;
mod files;
mod hand;
mod intake;
mod log;
mod meter;
mod namespace;
mod opened;
mod options;
mod overlay;
mod programs;
mod sampler;
mod sampling;
mod slower_calls;
mod sources;
mod split;
mod standing;
mod tallies;
mod windows;
#[allow(unsafe_code, reason = "structures from bytes, and shared memory")]
mod wire;

pub use collector::Collector;
pub use drained::{Access, Drained, Windowed};
pub use error::{Capability, FilterProblem, Limited, Step, TraceError};
pub use options::{Filter, Layer, TraceOptions};
pub use sampling::{Sampled, Sampling, Spent, relative_error};
pub use sources::{Hook, Hooks, Source, WhyNot};
