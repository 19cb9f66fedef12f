//! How results and messages look: names, tables, colours, progress, JSON.

mod console;
pub(crate) mod fit;
mod gain;
pub(crate) mod json;
mod margin;
mod name;
mod progress;
mod style;
mod table;

pub(crate) use console::{Console, LogLines, print_error, print_note};
pub(crate) use gain::Gain;
pub(crate) use margin::Margin;
pub(crate) use name::Name;
pub(crate) use progress::Progress;
pub(crate) use style::{Style, Tone};
pub(crate) use table::{Align, Count, Ratio, Table, counted};

/// The error message for a failed write to stdout.
pub(crate) const UNPRINTED: &str = "the result cannot be printed";
