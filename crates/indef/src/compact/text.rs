//! The result as text.

use std::{
    io::{self, Write},
    path::Path,
};

use indef_engine::run::StopCause;
use indef_fs::PartKind;
use indef_pipeline::compact::{CompactEnd, Compacted};
use units::Bytes;

use crate::{
    advice::Advice,
    excluded::ExcludedJson,
    output::{Console, Name, counted},
};

/// Write it.
pub(super) fn write(
    out: &mut impl Write,
    console: &Console,
    path: &Path,
    done: &Compacted,
) -> io::Result<()> {
    let before = done.largest_before;
    let run = run_of(done);
    writeln!(
        out,
        "{} ({}): {} free, {run} had {before}",
        Name(path),
        done.kind,
        done.free
    )?;
    if let Some(region) = &done.region {
        let (len, start, to_move) = (region.place.len, region.place.start.get(), region.to_move);
        match done.parts {
            // They lie anywhere.
            Some((part @ PartKind::Section, number)) => {
                writeln!(
                    out,
                    "To empty: {} with {to_move} in them",
                    parts(number, part)
                )?;
            }
            Some((part, number)) => writeln!(
                out,
                "Region: {len} at {}, with {to_move} to move in {}",
                Bytes(start),
                parts(number, part)
            )?,
            None => writeln!(
                out,
                "Region: {len} at {}, with {to_move} to move in {}",
                Bytes(start),
                counted(done.files, "file", "files")
            )?,
        }
    }
    let end = match done.end {
        CompactEnd::Whole => "nothing to do: there is as much already".to_owned(),
        CompactEnd::DryRun => format!(
            "nothing was moved (--dry-run); {run} would have {} or more",
            done.largest_after
        ),
        CompactEnd::Reached => reached(done),
        CompactEnd::NoRegion => format!(
            "{}; {} were wanted, and no longer run can be had now: what stays in place is in the way, or there is too little room for what would have to move",
            reached(done),
            done.wanted
        ),
        CompactEnd::Budget => format!("{}; the budget allows no more", reached(done)),
        CompactEnd::Short => format!(
            "{}; others needed the free space, and what was held of it was let go: run again when there is more",
            reached(done)
        ),
        CompactEnd::Stopped(StopCause::TimeLimit) => {
            format!(
                "{}; stopped by the time limit, run again to go on",
                reached(done)
            )
        }
        CompactEnd::Stopped(_) => {
            format!("{}; stopped, run again to go on", reached(done))
        }
        CompactEnd::Failed => format!("{}; then an error ended it", seen(done)),
    };
    writeln!(out, "{}", capital(&end))?;
    if matches!(done.end, CompactEnd::Whole) {
        return Ok(());
    }
    if let Some(excluded) = ExcludedJson::from(done.excluded).text() {
        writeln!(out, "Left where they are: {excluded}")?;
    }
    let way = &done.in_the_way;
    let short = matches!(done.end, CompactEnd::NoRegion);
    if !short && console.verbose == 0 {
        return Ok(());
    }
    writeln!(out, "What cannot move on this file system:")?;
    writeln!(out, "  {}  metadata, as far as it tells", way.metadata)?;
    if done.parts.is_none() {
        writeln!(
            out,
            "  {}  of owners that are not files below {}, or not told",
            way.unknown,
            Name(path)
        )?;
    }
    for (reason, staying) in &way.files {
        let pieces = match done.parts {
            Some((part, _)) => parts(staying.pieces, part),
            None => counted(staying.pieces, "piece", "pieces"),
        };
        let why = reason.advice();
        writeln!(out, "  {}  in {pieces}: {why}", staying.bytes)?;
    }
    Ok(())
}

fn reached(done: &Compacted) -> String {
    let price = done.written_per_byte().map_or_else(String::new, |bytes| {
        format!(" ({bytes:.2} written for each byte gained)")
    });
    format!(
        "{} has {} now; {} moved in {}{price}",
        run_of(done),
        done.largest_after,
        done.bytes_relocated,
        moved(done)
    )
}

/// What has the length that is told.
fn run_of(done: &Compacted) -> &'static str {
    match done.parts {
        Some((PartKind::Section, _)) => "what is free in whole sections",
        _ => "the longest free run",
    }
}

/// What was moved, or emptied.
fn moved(done: &Compacted) -> String {
    match done.parts {
        Some((part, _)) => parts(done.parts_emptied, part),
        None => counted(done.files_moved, "file", "files"),
    }
}

fn parts(number: u64, part: PartKind) -> String {
    let name = part.as_str();
    counted(number, name, &format!("{name}s"))
}

/// The free space after the last round cannot be told.
fn seen(done: &Compacted) -> String {
    format!(
        "{} had {} when it was last seen; {} moved in {}",
        run_of(done),
        done.largest_after,
        done.bytes_relocated,
        moved(done)
    )
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}
