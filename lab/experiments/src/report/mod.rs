//! The report: for each figure the plot, the table, the class and the command; as one HTML page, and as
//! docs/experiments.md with its plots.

mod html;
mod markdown;
mod outcome;
mod pages;
mod plot;
mod sheet;

pub use html::html;
pub use outcome::Outcome;
pub use pages::{stale, write_pages};
