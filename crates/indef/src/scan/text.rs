//! A scan as text: the verdict, the worst files, a histogram, sums.

use std::{
    fmt,
    io::{self, Write},
};

use indef_engine::collect::CollectSummary;
use indef_pipeline::{
    geometry::Geometries,
    scan::{FreeOn, Heat, Lost, Scanned, Tally},
};
use units::{Bytes, Nanos};

use super::{inside, unreachable, verdict};
use crate::advice::Advice;
use crate::excluded::ExcludedJson;
use crate::output::{Align, Console, Count, Name, Ratio, Table, counted};

const BAR: u64 = 40;

/// The size of a new file for which it is told how scattered free space is.
const NEW_FILE: Bytes = Bytes::mib(64);

/// A cost beyond reading that is told: users feel it.
const FELT: Nanos = Nanos(200_000_000);

/// Write all of it.
pub(super) fn write(
    out: &mut dyn Write,
    console: &Console,
    scanned: Scanned,
    io_size: Bytes,
) -> io::Result<()> {
    let style = console.out;
    writeln!(
        out,
        "{}\n",
        style.bold(&verdict::sentence(&scanned, io_size))
    )?;
    let Scanned {
        tally,
        summary,
        remembered,
        geometries,
        heat,
        free_spaces,
        ..
    } = scanned;
    let worst = tally.worst();
    if !worst.is_empty() {
        let title = match heat {
            Some(_) => "Fragmented files, those first whose readers lose most",
            None => "Most fragmented files",
        };
        writeln!(out, "{}", style.bold(title))?;
        let columns = [
            "extents",
            "ideal",
            "DoF",
            "DoLF mean",
            "max",
            "size",
            "worth moving",
        ];
        let placed: &[_] = match geometries.any() {
            true => &["DoPF mean", "max"],
            false => &[],
        };
        let heated: &[_] = match heat {
            Some(_) => &["reads", "share", "lost"],
            None => &[],
        };
        let mut columns: Vec<_> = (columns.iter().chain(placed).chain(heated))
            .map(|title| (*title, Align::Right))
            .collect();
        columns.push(("path", Align::Left));
        let mut table = Table::new(&columns);
        for file in worst {
            let mut cells = vec![
                Count(file.extents).to_string(),
                Count(file.ideal).to_string(),
                Ratio(file.dof()).to_string(),
                Ratio(file.dolf.mean()).to_string(),
                Count(file.dolf.max).to_string(),
                file.size.to_string(),
                file.worth_moving.to_string(),
            ];
            if geometries.any() {
                let mean = file.dopf.mean();
                cells.extend([mean, mean.map(|_| file.dopf.max)].map(known_ratio));
            }
            if let Some(heat) = &file.heat {
                cells.extend([
                    Count(heat.reads).to_string(),
                    Percent(heat.share_pct).to_string(),
                    lost(heat.lost),
                ]);
            }
            cells.push(Name(&file.path).to_string());
            let cells: Vec<&dyn fmt::Display> = cells.iter().map(|cell| cell as _).collect();
            table.row(&cells);
        }
        table.write(out, style)?;
        writeln!(out)?;
    }
    unreachable::files(out, console, &tally)?;
    histogram(out, console, &tally)?;
    sums(out, console, &tally, &summary, io_size, &geometries)?;
    if remembered > 0 {
        let files = counted(remembered, "file", "files");
        let told = "unchanged since an earlier scan (--full looks at all)";
        writeln!(out, "  {:<13}{files} {told}", "remembered")?;
    }
    for on in &free_spaces {
        let on_it = match free_spaces.len() {
            1 => String::new(),
            _ => format!(" on that of {}", Name(&on.path)),
        };
        writeln!(out, "  {:<13}{}{on_it}", "free space", free_line(on))?;
    }
    match heat {
        Some(heat) => hot_ranges(out, console, &heat, tally),
        None => Ok(()),
    }
}

/// The free space of a file system in a line: how much, in what runs, and what that means for a new file.
fn free_line(on: &FreeOn) -> String {
    let space = &on.space;
    if space.runs() == 0 {
        return "none".to_owned();
    }
    let runs = counted(space.runs(), "run", "runs");
    let whole = format!(
        "{} in {runs}, the longest {}",
        space.total(),
        space.largest()
    );
    match space.pieces(NEW_FILE) {
        Some(0 | 1) | None => whole,
        Some(pieces) => {
            let pieces = Count(pieces);
            format!("{whole}: a new file of {NEW_FILE} gets {pieces} pieces at least")
        }
    }
}

/// A number, or a question mark if it is unknown.
fn known_ratio(value: Option<f64>) -> String {
    value.map_or_else(|| "?".to_owned(), |value| Ratio(value).to_string())
}

/// A share, printed as a percentage.
struct Percent(f64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} %", self.0)
    }
}

fn lost(lost: Lost) -> String {
    match lost.time {
        Some(time) => time.to_string(),
        None => counted(lost.requests, "request", "requests").to_string(),
    }
}

fn hot_ranges(out: &mut dyn Write, console: &Console, heat: &Heat, tally: Tally) -> io::Result<()> {
    let mut line = |label: &str, text: String| writeln!(out, "  {label:<13}{text}");
    line("reads", format!("{} in the profile", Count(heat.reads)))?;
    line("lost", format!("{} by fragments", lost(tally.lost)))?;
    match &heat.calibration {
        Ok(found) => line(
            "a fragment",
            format!(
                "costs {}, as {} timed ranges tell",
                Nanos(found.weights.per_fragment_ns as u64),
                Count(found.ranges)
            ),
        )?,
        Err(why) => line("no times", why.to_string())?,
    }
    let hottest = tally.hottest.finish();
    if hottest.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{}", console.out.bold("Hottest fragmented ranges"))?;
    let columns = ["lost", "reads", "share", "DoLF", "offset", "length"];
    let mut columns: Vec<_> = columns.map(|title| (title, Align::Right)).into();
    columns.push(("path", Align::Left));
    let mut table = Table::new(&columns);
    for hot in &hottest {
        table.row(&[
            &lost(hot.lost),
            &Count(hot.reads),
            &Percent(hot.reads as f64 * 100.0 / heat.reads.max(1) as f64),
            &Count(hot.dolf),
            &Bytes(hot.range.start.get()),
            &hot.range.len,
            &Name(&hot.path),
        ]);
    }
    table.write(out, console.out)
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
    geometries: &Geometries,
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
    if let Some(mean) = tally.dopf.mean() {
        line(
            "DoPF",
            format!(
                "{} mean, {} max in reads of {io_size}",
                Ratio(mean),
                Ratio(tally.dopf.max)
            ),
        )?;
    }
    for geometry in inside::lines(geometries) {
        line("geometry", geometry)?;
    }
    let share = tally.worth_moving.get() as f64 * 100.0 / tally.allocated.get().max(1) as f64;
    line(
        "worth moving",
        format!("{} ({share:.1} % of the data)", tally.worth_moving),
    )?;
    for held in unreachable::lines(tally) {
        line("unreachable", held)?;
    }
    let upkeep = [
        (tally.upkeep.reflink, "a reflink copy of"),
        (tally.upkeep.delete, "deleting"),
    ];
    for (time, operation) in upkeep {
        if let Some(time) = time.filter(|time| *time >= FELT) {
            let extra =
                format!("{operation} all these files takes about {time} longer for their extents");
            line("beyond reads", extra)?;
        }
    }
    for (reason, files) in &tally.skipped {
        line(
            "skipped",
            format!("{}: {}", counted(*files, "file", "files"), reason.advice()),
        )?;
    }
    if let Some(excluded) = ExcludedJson::from(summary.excluded).text() {
        line("excluded", excluded)?;
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
