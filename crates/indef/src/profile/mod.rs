//! `indef profile`: inspect profiles, merge them, and import traces of other tools.

mod blocks;
mod export;
mod import;
mod merge;
mod show;
mod tell;

use anyhow::Result;

use crate::{
    args::{ProfileArgs, ProfileCommand},
    outcome::Outcome,
    output::Console,
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
