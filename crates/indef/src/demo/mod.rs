//! `indef demo`: the whole pipeline on a file system of its own, with proof.
//!
//! Everything is undone when it ends, also after an error or Ctrl-C: the file system is unmounted
//! and its loop file deleted, or the folder in the user's directory removed, by `Drop`.

mod age;
mod end;
mod measure;
mod place;
mod step;
mod text;
mod zns;

use std::{fs, io};

use anyhow::{Context, Result};
use indef_core::layout::Geometry;
use indef_fs::FsKind;
use indef_pipeline::{Cancel, Note, geometry::GeometryChoice, plan::Planner};

use crate::{
    args::DemoArgs,
    document::{Proof, RunTotals},
    made::Made,
    notes::Teller,
    outcome::Outcome,
    output::{Console, Name, counted, json},
    refusal::explain,
    run,
    signals::{self, Second},
};
pub(crate) use step::step;
pub(crate) use zns::lab_program;

use age::Pieces;
use end::{judge, stop_if};
use measure::{hashes, measure};
use place::DemoPlace;

/// Run the demo and show its result.
pub(crate) fn demo(args: &DemoArgs, console: &Console) -> Result<Outcome> {
    let cancel = Cancel::new();
    signals::watch(console, &cancel, Second::Patience)?;
    if args.zns {
        let shown = zns::show(args, console, &cancel);
        if cancel.is_cancelled() {
            console.note("stopped; everything is cleaned up");
            return Ok(Outcome::Stopped);
        }
        return shown.map(|()| Outcome::Done);
    }
    let place = DemoPlace::make(args, console)?;
    let shown = show(args, console, &cancel, place);
    // Children (mkfs, fsck) get the terminal's Ctrl-C, too; their failure is then expected.
    if cancel.is_cancelled() {
        console.note("stopped; everything is cleaned up");
        return Ok(Outcome::Stopped);
    }
    shown.map(|()| Outcome::Done)
}

fn show(args: &DemoArgs, console: &Console, cancel: &Cancel, mut place: DemoPlace) -> Result<()> {
    let dir = place.path().join("shop");
    fs::create_dir(&dir).with_context(|| format!("{}: cannot make it", Name(&dir)))?;
    console.note(format_args!(
        "ageing {}: four writers and a SQLite database, {} in all",
        Name(&dir),
        args.size()
    ));
    let pieces = match place.kind() {
        FsKind::Ext4 => Pieces::Reserved,
        _ => Pieces::Direct,
    };
    let files = age::age(&dir, args.size(), pieces, cancel)?;
    stop_if(cancel)?;
    console.note("hashing and reading before");
    let hashes_before = hashes(&files, cancel)?;
    let before = measure(&files, &|| place.device_reads(), cancel)?;

    console.note("planning and running");
    let planner = Planner {
        // The geometry of the demo's own device is unknown.
        geometry: Some(GeometryChoice::Given(Geometry::Unknown)),
        jobs: 4,
        ..Planner::new([dir])
    };
    let teller = Teller::new(console, "planning");
    let planned = planner
        .plan(cancel, &|note: Note<'_>| teller.tell(note))
        .map_err(explain)?;
    drop(teller);
    stop_if(cancel)?;
    let made = Made::of(&planner.paths);
    let result = run::execute_unstored(&planned.roots, planned.files, console, cancel);
    // The roots keep the file system in use.
    drop(planned.roots);
    stop_if(cancel)?;

    console.note("reading and checking after");
    let after = measure(&files, &|| place.device_reads(), cancel)?;
    let fsck = place.check(console);
    let contents_equal = hashes(&files, cancel)? == hashes_before;
    stop_if(cancel)?;

    let mut totals = RunTotals::from(&result);
    totals.files_skipped += planned.skipped.values().sum::<u64>();
    let mut document = run::document(&result, totals, false);
    document.proof = Some(Proof {
        contents_equal,
        fsck_clean: fsck,
        read_ns_before: before.read.get(),
        read_ns_after: after.read.get(),
        requests_before: before.requests,
        requests_after: after.requests,
        device_reads_before: before.device_reads,
        device_reads_after: after.device_reads,
    });
    if console.json {
        json::print(&document, &made)?;
    } else if !console.quiet {
        let sight = text::Sight {
            before,
            after,
            place: &place,
            document: &document,
        };
        text::write(&mut io::stdout().lock(), console, &sight)?;
    }
    judge(contents_equal, fsck)?;
    if totals.files_moved == 0 {
        console.note(format_args!(
            "nothing was moved of {}; the reasons stand above",
            counted(files.len() as u64, "file", "files")
        ));
    }
    Ok(())
}
