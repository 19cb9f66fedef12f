//! A year of a fleet in virtual time: when does defragmenting pay, and what does it cost?
//!
//! ```text
//! kind ─▶ host (lfs-sim, flash-model) ─▶ year ─┬ never, weekly, nightly: the planner of indef-core
//!         reads: what is read of it            └ watch: indef-pipeline's own loop and decision (service, heat)
//!                                                     │
//! settings ─▶ fleet: all hosts, all policies ─▶ sums ─▶ report: figures/fleet.json, docs/fleet.md
//! ```
//!
//! Pure and deterministic but for [`command`]: no wall clock, no I/O; the same seed gives the same result, to the nanosecond,
//! whatever the number of threads. No second planner, payback or service: those of indef decide.
//!
//! docs/fleet.md describes the model, what it leaves out, and what follows.

#![forbid(unsafe_code)]

pub mod command;
pub mod drive;
pub mod fleet;
pub mod heat;
pub mod host;
pub mod kind;
pub mod outcome;
pub mod promises;
pub mod reads;
pub mod report;
mod service;
pub mod settings;
pub mod sums;
mod tables;
pub mod year;
