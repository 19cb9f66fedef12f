//! File systems in virtual time, on the flash model: how files come to lie as they do, and what reading and moving
//! them takes.
//!
//! ```text
//! parameters ─▶ volume (files + log or block groups) ─▶ host (threads, cache, requests) ─▶ disk (flash-model)
//!                        │                                 ▲             ▲          ▲
//!                        ▼                               ageing       readers   migration
//!                 indef-core layouts ─▶ planning (the real planner) ────────────────┘
//! ```
//!
//! Pure and deterministic: no wall clock, no I/O, no thread; random numbers come from a seed. The same input gives
//! the same result, to the nanosecond. One owner for each quantity: time and what is under way belong to [`disk`],
//! the map of files to `Files`, valid blocks and sections to [`log`], free blocks in place to [`groups`], processors
//! and memory to [`host`].
//!
//! docs/lfs-sim.md describes the model, its parameters and their sources, what it leaves out, and what it was
//! checked against.

#![forbid(unsafe_code)]

pub mod ageing;
pub mod beside;
mod block;
pub mod cache;
pub mod calls;
pub mod device;
pub mod disk;
mod files;
pub mod groups;
pub mod host;
pub mod log;
pub mod migration;
mod parameters;
pub mod planning;
pub mod readers;
pub mod script;
pub mod synthetic;
pub mod trim;
pub mod upkeep;
pub mod volume;

pub use self::{
    block::{BLOCK, Block, Full, Moved, Run},
    files::{FileId, Files},
    parameters::{CacheParameters, GroupParameters, HostParameters, LogParameters, Parameters},
};
