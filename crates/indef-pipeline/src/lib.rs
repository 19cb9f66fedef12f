//! The pipeline of indef: from paths and profiles to plans, and from plans to runs.
//!
//! ```text
//! learn ─▶ profile ─▶ heat ──┐
//!                  geometry ─┼─▶ plan ─▶ run          scan: how bad is it
//!                   engines ─┘    weigh               watch: the same, live
//! ```
//!
//! It joins what the libraries below know by themselves: [`plan`] walks with `indef-engine`, asks
//! `indef-fs` for engines and geometries, matches a profile of `indef-trace` to the files met, and
//! lets `indef-core` decide; [`run`] claims the file systems, stores the work so that it can be
//! resumed, and has `indef-engine` carry it out.
//!
//! It prints nothing and knows no terminal: what a person may want to know while it works comes as
//! a [`Note`] to whoever implements [`Notes`] (`&()` for nobody), results come as values, and a
//! stage that fails as a whole returns an [`Error`].

#![forbid(unsafe_code)]

mod decay;
mod engines;
mod error;
pub mod geometry;
mod heat;
pub mod learn;
mod note;
mod opened;
pub mod plan;
pub mod run;
pub mod scan;
pub mod watch;
pub mod weigh;

pub use error::Error;
pub use indef_engine::Cancel;
pub use note::{LeftOut, Note, Notes};
