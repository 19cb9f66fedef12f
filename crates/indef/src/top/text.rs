//! The list as text, once.

use std::io::{self, Write};

use indef_pipeline::watch::Snapshot;
use units::Bytes;

use super::screen::{count, lost, time};
use crate::output::{Align, Console, Count, Margin, Name, Ratio, Table, counted};

/// Write the `top` most costly ranges, and the totals.
///
/// # Errors
///
/// Those of `out`.
pub(super) fn write(
    out: &mut dyn Write,
    console: &Console,
    snapshot: &Snapshot,
    top: usize,
) -> io::Result<()> {
    let style = console.out;
    if !snapshot.rows.is_empty() && top > 0 {
        writeln!(out, "{}", style.bold("Hottest fragmented ranges"))?;
        let [lost_title, reads_title] = match (snapshot.timed, snapshot.live) {
            (true, true) => ["lost/s", "reads/s"],
            (true, false) => ["lost", "reads"],
            (false, true) => ["extra/s", "reads/s"],
            (false, false) => ["extra", "reads"],
        };
        let columns = [
            lost_title,
            reads_title,
            "DoLF",
            "req/read",
            "mean",
            "size",
            "at",
        ];
        let mut columns: Vec<_> = columns.map(|title| (title, Align::Right)).into();
        columns.push(("path", Align::Left));
        let mut table = Table::new(&columns);
        let dash = || "-".to_owned();
        for row in snapshot.rows.iter().take(top) {
            let requests = row.requests_per_read;
            table.row(&[
                &lost(row),
                &count(row.reads),
                &Count(row.dolf),
                &requests.map_or_else(dash, |ratio| Ratio(ratio).to_string()),
                &row.mean_ns.map_or_else(dash, time),
                &row.key.range.len,
                &Bytes(row.key.range.start.get()),
                &Name(&row.path),
            ]);
        }
        table.write(out, style)?;
        writeln!(out)?;
    }
    let fragmented = counted(snapshot.fragmented, "range is", "ranges are");
    write!(
        out,
        "{fragmented} fragmented, of {}",
        counted(snapshot.ranges, "hot one", "hot ones")
    )?;
    if snapshot.out_of_reach > 0 {
        let reach = Count(snapshot.out_of_reach);
        write!(
            out,
            "; {reach} cannot be looked at (gone, replaced, or not below the paths given)"
        )?;
    }
    if snapshot.waiting > 0 {
        write!(out, "; {} were not looked at", Count(snapshot.waiting))?;
    }
    writeln!(out)?;
    if let Some(error) = snapshot.error.filter(|error| !error.is_none()) {
        let margin = |rate| Margin {
            error: Some(error),
            rate,
        };
        writeln!(
            out,
            "estimates: {} reads/s{}; of a range with 10 reads/s{} (standard error)",
            count(snapshot.reads),
            margin(snapshot.reads),
            margin(10.0),
        )?;
    }
    if snapshot.lost > 0 {
        let lost = counted(snapshot.lost, "event was", "events were");
        writeln!(
            out,
            "{}",
            style.warn(&format!("{lost} lost: the counts are too low"))
        )?;
    }
    Ok(())
}
