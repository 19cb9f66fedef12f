//! What a file system can do: detect it, map a file, relocate ranges of it.
//!
//! [`detect`] looks at an open file and says which file system it is on and which engine serves it.
//! [`map`] turns FIEMAP into a [`indef_core::layout::Layout`]. A [`Relocator`] gives ranges of a
//! file new, contiguous blocks, in bounded steps that are each atomic for the file's contents: the
//! process may be killed, or the power cut, between any two instructions.
//!
//! This crate knows nothing of priority, plans, threads or progress: it moves what it is told to.
//!
//! To add a file system: one module with a `Relocator`, and one arm in [`detect`].

#![forbid(unsafe_code)]

mod error;
mod relocate;
mod target;

pub use error::{FsError, Refusal};
pub use relocate::{Moved, RangeCopier, Relocation, Relocator, Step, StepLimit};
pub use target::{Target, TargetId};
