//! The display of a trace: on the screen, and as a report.
//!
//! [`Live`](indef_pipeline::learn::Live) is drawn as a few lines that refresh themselves ([`View`]),
//! written as a summary at the end ([`write_summary`]), and put into the JSON document
//! ([`TraceDocument`]).

mod document;
mod summary;
mod view;

pub(crate) use document::TraceDocument;
pub(crate) use summary::write_summary;
pub(crate) use view::{Clock, View};

#[cfg(test)]
mod tests;
