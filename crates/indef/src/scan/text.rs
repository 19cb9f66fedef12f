//! A scan as text: the worst files, a histogram, sums.

use std::io::{self, Write};

use indef_engine::collect::CollectSummary;
use units::Bytes;

use super::tally::Tally;
use crate::output::{Align, Console, Count, Name, Ratio, Table, counted};

const BAR: u64 = 40;

/// Write all of it.
pub(super) fn write(
    out: &mut dyn Write,
    console: &Console,
    tally: &Tally,
    summary: &CollectSummary,
    io_size: Bytes,
) -> io::Result<()> {
    let style = console.out;
    let worst = tally.worst();
    if !worst.is_empty() {
        writeln!(out, "{}", style.bold("Most fragmented files"))?;
        let columns = [
            "extents",
            "ideal",
            "DoF",
            "DoLF mean",
            "max",
            "size",
            "worth moving",
        ];
        let mut columns: Vec<_> = columns.map(|title| (title, Align::Right)).into();
        columns.push(("path", Align::Left));
        let mut table = Table::new(&columns);
        for file in worst {
            table.row(&[
                &Count(file.extents),
                &Count(file.ideal),
                &Ratio(file.dof()),
                &Ratio(file.dolf.mean()),
                &Count(file.dolf.max),
                &file.size,
                &file.worth_moving,
                &Name(&file.path),
            ]);
        }
        table.write(out, style)?;
        writeln!(out)?;
    }
    histogram(out, console, tally)?;
    sums(out, console, tally, summary, io_size)
}

fn histogram(out: &mut dyn Write, console: &Console, tally: &Tally) -> io::Result<()> {
    let buckets = tally.histogram();
    let most = buckets
        .iter()
        .map(|(_, _, files)| *files)
        .max()
        .unwrap_or(0);
    if most == 0 {
        return Ok(());
    }
    writeln!(out, "{}", console.out.bold("Extents per file"))?;
    let columns = [
        ("extents", Align::Right),
        ("files", Align::Right),
        ("", Align::Left),
    ];
    let mut table = Table::new(&columns);
    for (least, greatest, files) in buckets.into_iter().filter(|(_, _, files)| *files > 0) {
        let range = match (least, greatest) {
            (0, _) => "no data".to_owned(),
            (least, greatest) if least == greatest => least.to_string(),
            (least, u64::MAX) => format!("{}–", Count(least)),
            (least, greatest) => format!("{}–{}", Count(least), Count(greatest)),
        };
        let bar = "█".repeat((files * BAR).div_ceil(most) as usize);
        table.row(&[&range, &Count(files), &console.out.bar(&bar)]);
    }
    table.write(out, console.out)?;
    writeln!(out)
}

fn sums(
    out: &mut dyn Write,
    console: &Console,
    tally: &Tally,
    summary: &CollectSummary,
    io_size: Bytes,
) -> io::Result<()> {
    writeln!(out, "{}", console.out.bold("Summary"))?;
    let mut line = |label: &str, text: String| writeln!(out, "  {label:<13}{text}");
    let systems: Vec<String> = tally
        .file_systems
        .iter()
        .map(|(fs, files)| format!("{} on {fs}", Count(*files)))
        .collect();
    line(
        "files",
        format!(
            "{} ({}), {} fragmented",
            Count(tally.files() + tally.skipped.values().sum::<u64>()),
            if systems.is_empty() {
                "none".to_owned()
            } else {
                systems.join(", ")
            },
            Count(tally.fragmented)
        ),
    )?;
    line(
        "data",
        format!("{} in files of {}", tally.allocated, tally.size),
    )?;
    line(
        "extents",
        format!("{}, ideally {}", Count(tally.extents), Count(tally.ideal)),
    )?;
    line(
        "DoLF",
        format!(
            "{} mean, {} max in reads of {io_size}",
            Ratio(tally.dolf.mean()),
            Count(tally.dolf.max)
        ),
    )?;
    let share = tally.worth_moving.get() as f64 * 100.0 / tally.allocated.get().max(1) as f64;
    line(
        "worth moving",
        format!("{} ({share:.1} % of the data)", tally.worth_moving),
    )?;
    for (reason, files) in &tally.skipped {
        line(
            "skipped",
            format!("{}: {}", counted(*files, "file", "files"), reason.advice()),
        )?;
    }
    if summary.other_file_systems > 0 {
        let n = counted(summary.other_file_systems, "entry", "entries");
        line(
            "left out",
            format!("{n} on other file systems; give their paths to scan them"),
        )?;
    }
    if summary.cancelled {
        line("stopped", "the numbers are of a part".to_owned())?;
    }
    Ok(())
}
