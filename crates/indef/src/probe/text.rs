//! The answers as text: the verdict first.

use std::{
    fmt,
    io::{self, Write},
    path::Path,
};

use indef_core::probe::{Findings, Point, Told, USUAL_READ, Verdict};
use indef_pipeline::probe::{Kept, Probed};
use units::Bytes;

use crate::output::{Align, Console, Count, Name, Ratio, Table, counted};

/// Write all of it.
pub(super) fn write(
    out: &mut dyn Write,
    console: &Console,
    probed: &Probed,
    kept: Option<&Kept>,
) -> io::Result<()> {
    let (style, found) = (console.out, &probed.findings);
    writeln!(out, "{}\n", style.bold(&sentence(&Verdict::of(found))))?;
    let model = probed.drive.model.as_deref();
    let model = Name(Path::new(model.unwrap_or("no model is told")));
    let layer = probed
        .drive
        .layer
        .map(|layer| format!(", {layer}"))
        .unwrap_or_default();
    writeln!(
        out,
        "{} ({model}{layer})",
        style.bold(&Name(&probed.drive.path).to_string())
    )?;
    let mut table = Table::new(&[
        ("", Align::Left),
        ("", Align::Right),
        ("confidence", Align::Right),
        ("", Align::Left),
    ]);
    for (name, told) in answers(found) {
        match told {
            Ok((value, confidence)) => {
                let sure = format!("{:.0} %", confidence * 100.0);
                table.row(&[&name, &value, &sure, &""]);
            }
            Err(why) => table.row(&[&name, &"?", &"", &why]),
        }
    }
    table.write(out, style)?;
    sweep(out, console, "Units in use", &found.spread.points, |n| {
        Count(n).to_string()
    })?;
    sweep(out, console, "Reads at a time", &found.depths.points, |n| {
        Count(n).to_string()
    })?;
    sweep(
        out,
        console,
        "Size of consecutive reads",
        &found.sizes.points,
        |n| Bytes(n).to_string(),
    )?;
    writeln!(out)?;
    if let Some(file) = probed.file {
        writeln!(
            out,
            "  {} written in {}, {} of it of use; {} in all",
            file.written,
            counted(file.pieces, "piece", "pieces"),
            file.usable,
            probed.took
        )?;
    }
    match (kept, found.geometry()) {
        (Some(Kept::New(_)), Some(geometry)) => writeln!(
            out,
            "  kept: scan, plan, run and watch of this user use it for this drive, as --geometry {geometry}"
        ),
        (Some(Kept::New(_)), None) => writeln!(out, "  kept, without a geometry"),
        (Some(Kept::Earlier(_, geometry)), _) => writeln!(
            out,
            "  not kept: an earlier probe of this drive told what this one could not; scan, plan, run and watch of this \
             user still use that, as --geometry {geometry}"
        ),
        (None, _) => Ok(()),
    }
}

/// The verdict in one sentence.
pub(super) fn sentence(verdict: &Verdict) -> String {
    let times = |factor: f64| format!("{} times", Ratio(factor));
    match *verdict {
        Verdict::Gains {
            scattered,
            worst,
            placement,
        } => format!(
            "Defragmenting can gain here: a read of {USUAL_READ} in blocks takes {} as long as a contiguous one \
             where they lie anywhere, {} where all lie on one of {} dies or planes",
            times(scattered),
            times(worst),
            placement.units
        ),
        Verdict::Nothing { scattered } => format!(
            "Nothing to gain here: a read of {USUAL_READ} in blocks takes {} as long as a contiguous one",
            times(scattered)
        ),
        Verdict::CannotTell { scattered, why } => {
            let cost = scattered.map(|factor| {
                format!(
                    "; a read of {USUAL_READ} in scattered blocks takes {} as long as a contiguous one, whatever the reason",
                    times(factor)
                )
            });
            format!(
                "Cannot tell how data lies on the drive: {why}{}",
                cost.unwrap_or_default()
            )
        }
    }
}

type AnswerLine = (&'static str, Result<(String, f64), String>);

fn answers(found: &Findings) -> Vec<AnswerLine> {
    fn answer<T: Copy>(
        name: &'static str,
        told: &Told<T>,
        show: impl Fn(T) -> String,
    ) -> AnswerLine {
        let shown = match told {
            Ok(told) => Ok((show(told.value), told.confidence)),
            Err(why) => Err(why.to_string()),
        };
        (name, shown)
    }
    vec![
        answer(
            "granule (bytes on a unit in turn)",
            &found.placement,
            |it| it.granule.to_string(),
        ),
        answer("stripe (bytes on all units)", &found.placement, |it| {
            format!("{} on {}", it.stripe(), it.units)
        }),
        answer("a unit is busy with 4 KiB for", &found.service, shown),
        answer("and with each further KiB for", &found.per_kib, shown),
        answer("one read of 4 KiB takes", &found.latency, shown),
        answer("each further request of it", &found.per_request, shown),
        answer("bandwidth", &found.bandwidth, |rate| {
            format!("{}/s", Bytes(rate))
        }),
        answer("128 KiB, contiguous", &found.contiguous, shown),
        answer("128 KiB in scattered blocks", &found.scattered, shown),
        answer("no faster beyond a depth of", &found.depths.knee, shown),
        answer(
            "fragments are as good as whole from",
            &found.sizes.knee,
            |n| Bytes(n).to_string(),
        ),
        answer("units that a deep queue needs", &found.spread.knee, shown),
    ]
}

fn shown(value: impl fmt::Display) -> String {
    value.to_string()
}

fn sweep(
    out: &mut dyn Write,
    console: &Console,
    title: &str,
    points: &[Point],
    show: impl Fn(u64) -> String,
) -> io::Result<()> {
    const BAR: f64 = 40.0;
    let highest = points
        .iter()
        .map(|point| point.bytes_per_s)
        .fold(0.0, f64::max);
    if console.verbose == 0 || highest <= 0.0 {
        return Ok(());
    }
    writeln!(out, "\n{}", console.out.bold(title))?;
    let mut table = Table::new(&[("", Align::Right), ("", Align::Right), ("", Align::Left)]);
    for point in points {
        let bar = "█".repeat((point.bytes_per_s / highest * BAR).ceil() as usize);
        let rate = format!("{}/s", Bytes(point.bytes_per_s as u64));
        table.row(&[&show(point.at), &rate, &console.out.bar(&bar)]);
    }
    table.write(out, console.out)
}
