//! The results of a trace, as text at its end.

use std::io::{self, Write};

use indef_pipeline::learn::{AccessCounts, Live};

use super::view::{AtLeast, Clock, name, plural, time_or_dash};
use crate::output::{Align, Console, Count, Ratio, Table, counted};

/// The device time; an estimate where not all reads were timed.
fn device_time(counts: &AccessCounts) -> String {
    let about = if counts.observed.timed < counts.reads {
        "~"
    } else {
        ""
    };
    match counts.device_time() {
        Some(time) => format!("{about}{time}"),
        None => time_or_dash(None),
    }
}

/// Calls of which nothing is told are worth a line beyond one in so many counted accesses.
const FEW: u64 = 20;
/// Fewer untold calls say nothing: programs that start and end make as many.
const FEWEST_UNTOLD: u64 = 100;

/// Write sums, and the `top` hottest files; `bound` is that of `--max-overhead`.
///
/// # Errors
///
/// Those of `out`.
pub(crate) fn write_summary(
    out: &mut dyn Write,
    console: &Console,
    live: &Live,
    top: usize,
    bound: Option<f64>,
) -> io::Result<()> {
    let style = console.out;
    let total = live.total();
    let files = live.hottest_of_all(top);
    if !files.is_empty() {
        writeln!(out, "{}", style.bold("Hottest files"))?;
        let columns = [
            "reads",
            "read",
            "writes",
            "requests/read",
            "mean time",
            "device time",
        ];
        let mut columns: Vec<_> = columns.map(|title| (title, Align::Right)).into();
        columns.push(("path", Align::Left));
        let mut table = Table::new(&columns);
        for file in &files {
            let counts = &file.total;
            let ratio = counts.requests_per_read();
            table.row(&[
                &Count(counts.reads),
                &counts.read,
                &Count(counts.writes),
                &ratio.map_or_else(|| "-".to_owned(), |ratio| Ratio(ratio).to_string()),
                &time_or_dash(counts.mean_time()),
                &device_time(counts),
                &name(file),
            ]);
        }
        table.write(out, style)?;
        writeln!(out)?;
    }
    writeln!(
        out,
        "{} of {}, {} of {} in {}",
        counted(total.reads, "read", "reads"),
        total.read,
        counted(total.writes, "write", "writes"),
        total.written,
        Clock(live.elapsed())
    )?;
    let (seen, ranges) = (live.files_seen(), live.ranges_seen());
    write!(
        out,
        "{} {} in {} {}",
        AtLeast(ranges),
        plural(ranges.count(), "range", "ranges"),
        AtLeast(seen),
        plural(seen.count(), "file", "files"),
    )?;
    if let Some(requests) = total.requests_per_read() {
        write!(out, "; {} requests for each read", Ratio(requests))?;
    }
    if let Some(time) = total.mean_time() {
        write!(out, "; a read took {time} on average")?;
    }
    writeln!(out)?;
    let one_in = live.sampled().one_in();
    if one_in > 1.0 {
        writeln!(
            out,
            "estimates: one access in {} was counted; a file of 1,000 is right within {:.0} %, the sum within {:.1} % \
             (standard error; --max-overhead off counts each)",
            Ratio(one_in),
            live.sampled().relative_error(1000) * 100.0,
            live.sampled().relative_error(live.sampled().counted) * 100.0,
        )?;
    }
    let untold = live.untold();
    if untold > (live.sampled().counted / FEW).max(FEWEST_UNTOLD) {
        let calls = counted(untold, "read or write", "reads and writes");
        let told = format!(
            "{calls} more were made, of any files, by processes that were never at work while accesses were counted: trace \
             longer, or with a higher --max-overhead"
        );
        writeln!(out, "{}", style.warn(&told))?;
    }
    if let Some(overhead) = live.spent().percent(live.elapsed()) {
        let took = format!("tracing took {overhead:.2} % of one processor's time");
        match bound {
            Some(bound) if overhead > bound => {
                let told = format!("{took}: more than --max-overhead {bound}");
                writeln!(out, "{}", style.warn(&told))?;
            }
            Some(bound) => writeln!(out, "{took} (--max-overhead {bound})")?,
            None => writeln!(out, "{took}")?,
        }
    }
    if live.lost() > 0 {
        let lost = counted(live.lost(), "event was", "events were");
        writeln!(
            out,
            "{}",
            style.warn(&format!("{lost} lost: the counts are too low"))
        )?;
    }
    Ok(())
}
