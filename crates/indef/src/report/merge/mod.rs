//! `indef report --merge`: the results of many hosts as one table (docs/ops.md, docs/json.md).
//!
//! Each document is condensed while it is read, and of a host only sums stay, with a few words for each run of its
//! history by which a result of the same run is recognized: a thousand hosts take some tens of megabytes.

mod fleet;
mod host;
mod html;
mod job;
mod json;
mod reasons;
mod summary;
mod text;
mod told;

use std::{fs, io};

use anyhow::{Context, Result};

use crate::{
    args::ReportArgs,
    made::Made,
    outcome::Outcome,
    output::{Console, Name, UNPRINTED, json::print},
};
use fleet::Fleet;

/// Hosts that are shown as text, and on a page.
const SHOWN: (usize, usize) = (20, 10_000);

/// Read the documents, and show the table.
pub(super) fn merge(args: &ReportArgs, console: &Console) -> Result<Outcome> {
    let mut fleet = Fleet::default();
    for path in &args.inputs {
        fleet.read(path);
    }
    fleet.finish();
    for bad in &fleet.bad {
        console.error(format_args!("{}: {}", Name(&bad.source), bad.error), "");
    }
    if let Some(path) = &args.html {
        let page = html::page(&fleet, args.top.unwrap_or(SHOWN.1)).context("cannot write HTML")?;
        fs::write(path, page).with_context(|| format!("{}: cannot write the page", Name(path)))?;
        console.detail(format_args!("{}: written", Name(path)));
    }
    if console.json {
        print(&json::FleetJson::new(&fleet), &Made::of(&[])).context(UNPRINTED)?;
    } else if !console.quiet && args.html.is_none() {
        let top = args.top.unwrap_or(SHOWN.0);
        text::write(&mut io::stdout().lock(), console, &fleet, top).context(UNPRINTED)?;
    }
    Ok(Outcome::Done)
}
