//! The demos' result for a person: one table, before and after.

use std::io::{self, Write};

use units::Nanos;

use super::{measure::DemoRead, place::DemoPlace};
use crate::{
    document::{Proof, RunDocument},
    output::{Align, Console, Count, Ratio, Table, counted},
    report,
};

/// All facts to show.
pub(super) struct Sight<'a> {
    pub(super) before: DemoRead,
    pub(super) after: DemoRead,
    pub(super) place: &'a DemoPlace,
    pub(super) document: &'a RunDocument,
}

/// Write the result.
pub(super) fn write(out: &mut dyn Write, console: &Console, sight: &Sight<'_>) -> io::Result<()> {
    let Sight {
        before,
        after,
        place,
        document,
    } = sight;
    let Some(proof) = &document.proof else {
        return Ok(());
    };
    let aside = match document.totals.files_moved {
        0 => "nothing was moved: any difference is noise".to_owned(),
        _ => format!("{} times as fast here", faster(proof)),
    };
    let label = format!("cold read of {}", before.size);
    let extents = [before.extents, after.extents];
    compare(out, console, document, proof, extents, (&label, &aside))?;
    let files = counted(document.files.len() as u64, "file", "files");
    prove(out, console, proof, &files, "fsck")?;
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

/// How many times as fast a cold read has become.
pub(super) fn faster(proof: &Proof) -> Ratio {
    Ratio(proof.read_ns_before as f64 / proof.read_ns_after.max(1) as f64)
}

/// Write the files, and a table of before and after. Its last row is a cold read, with its name and
/// a remark.
pub(super) fn compare(
    out: &mut dyn Write,
    console: &Console,
    document: &RunDocument,
    proof: &Proof,
    extents: [u64; 2],
    (label, aside): (&str, &str),
) -> io::Result<()> {
    writeln!(out, "{}", console.out.bold("Files"))?;
    report::write_run_files(out, console, document, 20)?;
    writeln!(out, "\n{}", console.out.bold("Before and after"))?;
    let columns = [
        ("", Align::Left),
        ("before", Align::Right),
        ("after", Align::Right),
        ("", Align::Left),
    ];
    let mut table = Table::new(&columns);
    let mut count = |label: &str, [before, after]: [u64; 2]| {
        table.row(&[
            &label,
            &Count(before),
            &Count(after),
            &report::times_fewer(before, after),
        ]);
    };
    count("extents", extents);
    let requests = [proof.requests_before, proof.requests_after];
    count("requests for a read", requests);
    if let (Some(before), Some(after)) = (proof.device_reads_before, proof.device_reads_after) {
        count("  as the device counts", [before, after]);
    }
    let (before, after) = (Nanos(proof.read_ns_before), Nanos(proof.read_ns_after));
    table.row(&[&label, &before, &after, &aside]);
    table.write(out, console.out)
}

/// Write the verdicts: on the contents of these files, and of this checker.
pub(super) fn prove(
    out: &mut dyn Write,
    console: &Console,
    proof: &Proof,
    files: &str,
    checker: &str,
) -> io::Result<()> {
    let verdict = |good: bool, yes: &str, no: &str| match good {
        true => console.out.good(yes),
        false => console.out.bad(no),
    };
    let contents = verdict(proof.contents_equal, "equal", "DIFFERENT");
    let fs = match proof.fsck_clean {
        Some(clean) => verdict(clean, &format!("clean ({checker})"), "NOT CLEAN"),
        None => "not checked".to_owned(),
    };
    writeln!(
        out,
        "\n{}\n  contents     {contents} (SHA-256 of {files})\n  file system  {fs}",
        console.out.bold("Proof")
    )
}
