//! `indef doctor`: what works on this machine, and how to get what does not.

mod examine;
mod json;
mod text;

use std::io;

use anyhow::{Context, Result};

use crate::{
    made::Made,
    outcome::Outcome,
    output::{Console, UNPRINTED, json::print},
};
use examine::examine;

/// Look, and show what was found. Something that is missing is a result, no failure.
pub(crate) fn doctor(console: &Console) -> Result<Outcome> {
    let found = examine();
    let printed = if console.json {
        print(&json::document(&found), &Made::of(&[]))
    } else if console.quiet {
        Ok(())
    } else {
        text::write(&mut io::stdout().lock(), console, &found)
    };
    printed.context(UNPRINTED)?;
    Ok(Outcome::Done)
}
