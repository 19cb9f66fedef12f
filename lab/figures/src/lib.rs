//! Figures that documents show: committed results, and pages that are generated from them.
//!
//! `figures/NAME.json` is a [`Record`]: the result of one benchmark, with command, machine, date,
//! version and spread. `figures/NAME.md` is a text with placeholders, which name values of records
//! ([`expression`]). A page (README.md, docs/*.md) shows them between markers ([`page`]):
//!
//! ```text
//! <!-- figures: peers -->
//! (what figures/peers.md gives)
//! <!-- end figures -->
//!
//! in the middle of a sentence, <!-- figure: memory / 1 GiB / run / memory_bytes -->14 MiB<!-- end -->
//! ```
//!
//! [`tree::regenerate`] writes these regions, and [`tree::stale`] says which of them differ from
//! their results. A case that no page shows is an error, and so is a placeholder without a result.
//!
//! Records of a model in virtual time have no machine and no date: done again, they are equal.

#![forbid(unsafe_code)]

pub mod expression;
mod format;
mod machine;
pub mod page;
mod record;
pub mod tree;

pub use format::significant;
pub use machine::{Machine, today, version};
pub use record::{Record, Row, Session, Value};
