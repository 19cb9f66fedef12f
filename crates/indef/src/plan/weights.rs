//! Measured weights, and how they change the order in which ranges are worth moving.

use std::io::{self, Write};

use indef_core::{calibrate::Calibration, plan::PathJson};
use indef_pipeline::{plan::Planned, weigh::Comparison};
use serde::Serialize;
use units::{Bytes, Nanos};

use crate::output::{Align, Console, Count, Name, Ratio, Table};

/// The measured weights, if any, and their effect.
pub(super) fn measured(planned: &Planned) -> Option<(&Calibration, &Comparison)> {
    let found = planned.calibration.as_ref()?.as_ref().ok()?;
    Some((found, planned.comparison.as_ref()?))
}

/// Write the weights and their effect as text.
pub(super) fn write(
    out: &mut dyn Write,
    console: &Console,
    calibration: &Calibration,
    comparison: &Comparison,
) -> io::Result<()> {
    let weights = &calibration.weights;
    let ns = |value: f64| Nanos(value as u64);
    writeln!(out, "{}", console.out.bold("Measured weights"))?;
    let mut line = |label: &str, text: String| writeln!(out, "  {label:<10}{text}");
    let mut parts = vec![ns(weights.base_ns).to_string()];
    // Where all ranges have the same length, this cost is part of the base.
    if weights.per_byte_ns > 0.0 {
        let mib = weights.per_byte_ns * f64::from(1 << 20);
        parts.push(format!("{} a MiB", ns(mib)));
    }
    parts.push(format!(
        "{} a further fragment",
        ns(weights.per_fragment_ns)
    ));
    if weights.per_dopf_ns > 0.0 {
        parts.push(format!("{:.1} µs a DoPF", weights.per_dopf_ns / 1e3));
    }
    line("a read", parts.join(" + "))?;
    line(
        "fit",
        format!(
            "R² {:.2} over {} ranges and {} reads ({} outliers set aside), half of them within {}",
            calibration.r_squared,
            Count(calibration.ranges),
            Count(calibration.reads),
            Count(calibration.outliers),
            ns(calibration.typical_error_ns)
        ),
    )?;
    let ranking = &comparison.ranking;
    line(
        "ranking",
        format!(
            "{:.2} correlation (Spearman) with the paper's over {} fragmented ranges; {:.0} % of the best tenth are the same",
            ranking.spearman,
            Count(ranking.ranges),
            ranking.top_shared_pct
        ),
    )?;
    if !ranking.moved.is_empty() {
        let columns = ["rank", "was", "reads", "DoLF", "offset", "length"];
        let mut columns: Vec<_> = columns.map(|title| (title, Align::Right)).into();
        columns.push(("path", Align::Left));
        let mut table = Table::new(&columns);
        for moved in &ranking.moved {
            let range = &comparison.weighed[moved.index];
            table.row(&[
                &Ratio(moved.second),
                &Ratio(moved.first),
                &Count(range.reads),
                &Count(range.dolf),
                &Bytes(range.range.start.get()),
                &range.range.len,
                &Name(&range.path),
            ]);
        }
        table.write(out, console.out)?;
    }
    writeln!(out)
}

/// The same as JSON.
#[derive(Serialize)]
pub(super) struct WeightsJson {
    base_ns: f64,
    per_byte_ns: f64,
    per_fragment_ns: f64,
    per_dopf_ns: f64,
    ranges: u64,
    reads: u64,
    outliers: u64,
    r_squared: f64,
    typical_error_ns: f64,
    ranking: RankingJson,
}

#[derive(Serialize)]
struct RankingJson {
    ranges: u64,
    spearman: f64,
    top_tenth_shared_pct: f64,
    moved: Vec<MovedJson>,
}

#[derive(Serialize)]
struct MovedJson {
    #[serde(flatten)]
    path: PathJson,
    start_bytes: u64,
    len_bytes: u64,
    rank_paper: f64,
    rank_measured: f64,
}

impl WeightsJson {
    pub(super) fn new(calibration: &Calibration, comparison: &Comparison) -> Self {
        let weights = &calibration.weights;
        let ranking = &comparison.ranking;
        let moved = ranking.moved.iter().map(|moved| {
            let range = &comparison.weighed[moved.index];
            MovedJson {
                path: PathJson::from(&*range.path),
                start_bytes: range.range.start.get(),
                len_bytes: range.range.len.get(),
                rank_paper: moved.first,
                rank_measured: moved.second,
            }
        });
        Self {
            base_ns: weights.base_ns,
            per_byte_ns: weights.per_byte_ns,
            per_fragment_ns: weights.per_fragment_ns,
            per_dopf_ns: weights.per_dopf_ns,
            ranges: calibration.ranges,
            reads: calibration.reads,
            outliers: calibration.outliers,
            r_squared: calibration.r_squared,
            typical_error_ns: calibration.typical_error_ns,
            ranking: RankingJson {
                ranges: ranking.ranges,
                spearman: ranking.spearman,
                top_tenth_shared_pct: ranking.top_shared_pct,
                moved: moved.collect(),
            },
        }
    }
}
