//! What a trace sees, while it sees it and when it is over.
//!
//! [`Live`] is a pure model: it is fed with what a collector hands out, about once a second, and
//! knows no terminal. The same model is drawn as a few lines that refresh themselves ([`View`]),
//! written as a summary at the end ([`write_summary`]), and put into the JSON document
//! ([`Document`]).
//!
//! Its memory is bounded, however many files and ranges there are: sums are exact always; of single
//! files only the hottest are told apart once there are very many ([`model::MAX_FILES`]).

mod document;
mod model;
mod summary;
mod view;

pub(crate) use document::Document;
pub(crate) use model::{Batch, Live};
pub(crate) use summary::write_summary;
pub(crate) use view::{Clock, View};

#[cfg(test)]
mod tests;
