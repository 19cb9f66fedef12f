//! `indef profile`: inspect profiles, merge them, and import traces of other tools.

mod blocks;
mod export;
mod import;
mod merge;
mod show;

use std::{
    io::{self, Write},
    path::Path,
};

use anyhow::{Context, Result, anyhow};
use serde::Serialize;

use crate::{
    Outcome,
    args::{ProfileArgs, ProfileCommand},
    output::{Console, Name, UNPRINTED, json},
    refusal::{advice, plain},
};

/// Run the requested command.
pub(crate) fn profile(args: &ProfileArgs, console: &Console) -> Result<Outcome> {
    match &args.what {
        ProfileCommand::Show(args) => show::show(args, console)?,
        ProfileCommand::Export(args) => export::export(args, console)?,
        ProfileCommand::Import(args) => import::import(args, console)?,
        ProfileCommand::Merge(args) => merge::merge(args, console)?,
    }
    Ok(Outcome::Done)
}

/// The error for a file that cannot be opened or read.
fn failed(path: &Path, error: &io::Error) -> anyhow::Error {
    anyhow!("{}: {}: {}", Name(path), plain(error), advice(error))
}

/// Print a result: as a document, or as a line.
fn say(console: &Console, document: &impl Serialize, line: &str) -> Result<()> {
    let done = match (console.json, console.quiet) {
        (true, _) => json::print(document),
        (false, true) => Ok(()),
        (false, false) => writeln!(io::stdout(), "{line}"),
    };
    done.context(UNPRINTED)
}
