//! The pipeline of indef: from paths and profiles to plans, and from plans to runs.
//!
//! ```text
//! learn ─▶ profile ─▶ heat ──┐
//!                  geometry ─┼─▶ plan ─▶ run          scan: how bad is it
//!                   engines ─┘    weigh               watch: the same, live
//!
//! tend: all of it as a service, as far as `consider` allows
//! ```
//!
//! It joins the libraries below it: [`plan`] walks with `indef-engine`, asks `indef-fs` for
//! engines and geometries, matches a profile of `indef-trace` to the files met, and lets
//! `indef-core` decide; [`run`] claims the file systems, stores the work so that it can be
//! resumed, and has `indef-engine` execute it. The whole of indef:
//!
//! ```
//! use std::path::Path;
//!
//! use indef_pipeline::{
//!     Cancel, Error, Note,
//!     plan::Planner,
//!     run::{Runner, Work},
//!     scan::Scanner,
//! };
//!
//! /// Give the files below `dir` contiguous blocks where it is worth it.
//! fn defragment(dir: &Path, profile: Option<&Path>) -> Result<u64, Error> {
//!     let cancel = Cancel::new();
//!     let notes = |note: Note<'_>| {
//!         if let Note::Refused { path, refusal } = note {
//!             eprintln!("{}: {refusal:?}", path.display());
//!         }
//!     };
//!     let scanned = Scanner::new([dir]).scan(&cancel, &notes, &|_| {})?;
//!     println!("{} files are fragmented", scanned.tally.fragmented);
//!
//!     let mut planner = Planner::new([dir]);
//!     if let Some(profile) = profile {
//!         planner = planner.with_profile(profile);
//!     }
//!     let planned = planner.plan(&cancel, &notes)?;
//!     println!("{} to write", planned.totals.cost);
//!
//!     let work = Work::from_planned(planned, &notes);
//!     let runner = Runner {
//!         given: &planner.paths,
//!         notes: &notes,
//!         ..Runner::new(&cancel)
//!     };
//!     Ok(runner.run(work)?.totals.files_moved)
//! }
//! # let dir = tempfile::tempdir().unwrap();
//! # std::fs::write(dir.path().join("file"), [7; 100_000]).unwrap();
//! # assert_eq!(defragment(dir.path(), None).unwrap(), 0);
//! # assert!(defragment(dir.path(), Some(Path::new("/no/such"))).is_err());
//! ```
//!
//! It prints nothing and knows no terminal: messages for a person during the work go as a [`Note`]
//! to the implementation of [`Notes`] (`&()` ignores them), results are values, and a stage that
//! fails as a whole returns an [`Error`].

#![forbid(unsafe_code)]

pub mod apart;
mod claimed;
pub mod compact;
pub mod consider;
mod decay;
pub mod doctor;
mod engines;
mod error;
pub mod geometry;
mod heat;
pub mod learn;
pub mod mounts;
mod note;
mod opened;
pub mod place;
pub mod plan;
pub mod probe;
mod rate_error;
pub mod run;
pub mod scan;
mod service;
mod steady;
mod stored;
mod sync;
pub mod tend;
pub mod watch;
pub mod weigh;

pub use error::{CannotCompact, Error, Written, chain};
pub use indef_engine::Cancel;
pub use note::{LeftOut, Note, Notes};
pub use rate_error::RateError;
