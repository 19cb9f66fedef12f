//! `indef scan`: the degree, the place and the cost of fragmentation.

mod inside;
mod json;
mod text;
mod unreachable;
mod verdict;

use std::{io, sync::OnceLock};

use anyhow::{Context, Result};
use indef_pipeline::{
    Cancel, Note,
    scan::{FileScan, Scanner},
};

use crate::{
    args::ScanArgs,
    chosen::Chosen,
    notes::Teller,
    outcome::Outcome,
    output::{Console, UNPRINTED, json::Document},
    refusal::explain,
    signals::{self, Second},
};
use json::{FileJson, ScanRest};

/// Scan, and show.
pub(crate) fn scan(args: &ScanArgs, console: &Console) -> Result<Outcome> {
    let cancel = Cancel::new();
    signals::watch(console, &cancel, Second::Abort)?;
    let chosen = Chosen::of(&args.paths, &args.files, console)?;
    let scanner = Scanner {
        select: chosen.select.clone(),
        profile: args.profile.clone(),
        readahead: args.readahead,
        geometry: args.geometry,
        io_size: args.io_size,
        top: args.top,
        jobs: args.workers.count(),
        full: args.full,
        each: console.json && !args.only_fragmented,
        ..Scanner::new(&chosen.paths)
    };
    // Begun with the walk: an earlier failure has a document of its own.
    let document: OnceLock<Document> = OnceLock::new();
    let teller = Teller::new(console, "scanning");
    let notes = |note: Note<'_>| match note {
        Note::NoWeights { why, .. } => console.detail(format_args!("no times: {why}")),
        note => {
            if let (Note::Walk, true) = (note, console.json) {
                document.get_or_init(|| Document::begin("files", &chosen.made(), Some(&cancel)));
            }
            teller.tell(note);
        }
    };
    let visit = |file: &FileScan| {
        let is_listed = !args.only_fragmented || file.extents > file.ideal;
        if let (Some(document), true) = (document.get(), is_listed) {
            document.entry(&FileJson::from(file));
        }
    };
    let scanned = scanner.scan(&cancel, &notes, &visit).map_err(explain)?;
    drop(teller);
    let cancelled = scanned.summary.cancelled;
    let printed = match document.into_inner() {
        Some(document) => document.end(&ScanRest::new(scanned, args.io_size)),
        None if console.quiet => Ok(()),
        None => text::write(&mut io::stdout().lock(), console, scanned, args.io_size),
    };
    printed.context(UNPRINTED)?;
    Ok(if cancelled {
        Outcome::Stopped
    } else {
        Outcome::Done
    })
}
