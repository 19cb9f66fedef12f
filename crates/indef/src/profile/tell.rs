//! Results and errors, as text.

use std::{
    io::{self, Write},
    path::Path,
};

use anyhow::{Context, Result, anyhow};
use serde::Serialize;

use crate::{
    made::Made,
    output::{Console, Name, UNPRINTED, json},
    refusal::{advice, plain},
};

/// The error for a file that cannot be opened or read.
pub(super) fn failed(path: &Path, error: &io::Error) -> anyhow::Error {
    anyhow!("{}: {}: {}", Name(path), plain(error), advice(error))
}

/// Print a result about a store: as a document, or as a line.
pub(super) fn say(
    console: &Console,
    store: &Path,
    document: &impl Serialize,
    line: &str,
) -> Result<()> {
    let done = match (console.json, console.quiet) {
        (true, _) => json::print(document, &Made::of(&[store.to_owned()])),
        (false, true) => Ok(()),
        (false, false) => writeln!(io::stdout(), "{line}"),
    };
    done.context(UNPRINTED)
}
