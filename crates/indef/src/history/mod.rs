//! `indef history`: what runs did.

mod json;
mod text;

use std::io;

use anyhow::{Context, Result};
use indef_engine::{
    history::{History, read},
    resume::find_state_directory,
};

use crate::{
    args::HistoryArgs,
    made::Made,
    outcome::Outcome,
    output::{Console, UNPRINTED, json::print},
};

/// Runs that are shown as text.
const SHOWN: usize = 20;

/// Show it.
pub(crate) fn history(args: &HistoryArgs, console: &Console) -> Result<Outcome> {
    let mut history = match find_state_directory() {
        Some(directory) => read(&directory)?,
        None => History::default(),
    };
    let all = history.records.len();
    let shown = match (args.last, console.json || console.verbose > 0) {
        (Some(last), _) => last,
        (None, true) => all,
        (None, false) => SHOWN,
    };
    history.records.drain(..all.saturating_sub(shown));
    let printed = match console.json {
        true => print(&json::document(&history), &Made::of(&[])),
        false if console.quiet => Ok(()),
        false => text::write(&mut io::stdout().lock(), console, &history, all),
    };
    printed.context(UNPRINTED)?;
    Ok(Outcome::Done)
}
