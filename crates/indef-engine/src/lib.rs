//! The executor: find files and their layouts, and carry plans out, with many workers.
//!
//! [`collect`](collect::collect) walks directories in parallel and maps every file that could be
//! fragmented: ScaleDefrag's first phase (PLOS ONE 2026), all information before any decision.
//! [`run`](run::run) carries plans out: many files at once, large files in pieces, in steps that
//! are sized by measuring, within limits of bytes, rate, time and free space. [`resume`] stores the
//! work that is left, so that a run that was stopped or killed can go on; [`history`] keeps what runs did.
//!
//! Invariants:
//!
//! - A plan is a proposal. Every file is opened anew and looked at again before it is moved;
//!   everything that does not fit the plan any more is skipped with a named reason.
//! - No more bytes are written than the plans and the budget allow: they are reserved before a
//!   relocation begins, and a relocation that would need more does not begin.
//! - One file's failure, even a panic, is that file's failure.
//! - No state for each file of a walk is held: findings go to the visitor and are forgotten.
//!
//! `indef-core` decides which ranges are worth moving, `indef-fs` how they are moved; this crate
//! decides when, how much at once, and when to stop.

#![deny(unsafe_code)]

mod absolute;
mod cancel;
pub mod claim;
pub mod collect;
mod copier;
pub mod history;
mod process;
pub mod resume;
pub mod run;
mod sync;
#[allow(unsafe_code)]
mod timed;
mod uring;
mod workers;

pub use absolute::absolute;
pub use cancel::Cancel;
pub use copier::Copier;
pub use timed::TimedReads;
