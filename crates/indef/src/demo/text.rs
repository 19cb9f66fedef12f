//! The demo's result for a person: one table, before and after.

use std::io::{self, Write};

use units::Nanos;

use super::{measure::Measured, place::Place};
use crate::{
    document::RunDocument,
    output::{Align, Console, Count, Ratio, Table, counted},
    report,
};

/// Everything there is to see.
pub(super) struct Sight<'a> {
    pub(super) before: Measured,
    pub(super) after: Measured,
    pub(super) place: &'a Place,
    pub(super) document: &'a RunDocument,
}

/// Write it.
pub(super) fn write(out: &mut dyn Write, console: &Console, sight: &Sight<'_>) -> io::Result<()> {
    let Sight {
        before,
        after,
        place,
        document,
    } = sight;
    writeln!(out, "{}", console.out.bold("Files"))?;
    report::write_run_files(out, console, document, 20)?;
    writeln!(out)?;
    writeln!(out, "{}", console.out.bold("Before and after"))?;
    let columns = [
        ("", Align::Left),
        ("before", Align::Right),
        ("after", Align::Right),
        ("", Align::Left),
    ];
    let mut table = Table::new(&columns);
    let mut count = |label: &str, before: u64, after: u64| {
        table.row(&[
            &label,
            &Count(before),
            &Count(after),
            &report::times_fewer(before, after),
        ]);
    };
    count("extents", before.extents, after.extents);
    count("requests for a read", before.requests, after.requests);
    if let (Some(before), Some(after)) = (before.device_reads, after.device_reads) {
        count("  as the device counts", before, after);
    }
    let faster = before.read.get() as f64 / after.read.get().max(1) as f64;
    let aside = match document.totals.files_moved {
        0 => "nothing was moved: any difference is noise".to_owned(),
        _ => format!("{} times as fast here", Ratio(faster)),
    };
    let label = format!("cold read of {}", before.size);
    table.row(&[&label, &before.read, &after.read, &aside]);
    table.write(out, console.out)?;
    writeln!(out)?;
    writeln!(out, "{}", console.out.bold("Proof"))?;
    let Some(proof) = &document.proof else {
        return Ok(());
    };
    let verdict = |good: bool, yes: &str, no: &str| {
        if good {
            console.out.good(yes)
        } else {
            console.out.bad(no)
        }
    };
    let files = counted(document.files.len() as u64, "file", "files");
    writeln!(
        out,
        "  contents     {} (SHA-256 of {files})",
        verdict(proof.contents_equal, "equal", "DIFFERENT")
    )?;
    match proof.fsck_clean {
        Some(clean) => {
            writeln!(
                out,
                "  file system  {}",
                verdict(clean, "clean (fsck)", "NOT CLEAN")
            )?;
        }
        None => writeln!(out, "  file system  not checked")?,
    }
    let totals = &document.totals;
    writeln!(
        out,
        "  run          {} relocated in {}{}",
        units::Bytes(totals.bytes_relocated),
        Nanos(totals.duration_ns),
        match report::rate(totals.bytes_relocated, totals.duration_ns) {
            rate if rate.is_empty() => rate,
            rate => format!(", {rate}"),
        }
    )?;
    if !place.remark().is_empty() {
        writeln!(out, "\n{}", console.out.dim(place.remark()))?;
    }
    Ok(())
}
