//! Measured weights, and how they change the order in which ranges are worth moving.

use std::io::{self, Write};

use indef_core::{
    calibrate::{Calibration, CannotPredict, Prediction, Queue},
    plan::PathJson,
};
use indef_pipeline::{plan::Planned, weigh::Comparison};
use serde::Serialize;
use units::{Bytes, Nanos};

use crate::output::{Align, Console, Count, Name, Ratio, Table};

/// The measured weights, if any, and their effect.
pub(super) fn measured(planned: &Planned) -> Option<(&Calibration, &Comparison)> {
    let found = planned.calibration.as_ref()?.as_ref().ok()?;
    Some((found, planned.comparison.as_ref()?))
}

/// A part of the reads from which on it is said that the trace did not see their ranges.
const MUCH_UNSEEN: f64 = 0.05;

/// The effect of the plan on the time of a read.
pub(super) fn reads(predicted: &Prediction) -> String {
    let each = |ns: f64| Nanos((ns / predicted.reads.max(1) as f64) as u64);
    let mut text = format!(
        "{} each now, {} with this plan: {:.0} % less (±{:.0})",
        each(predicted.now_ns),
        each(predicted.now_ns - predicted.saved_ns),
        predicted.saved_pct(),
        predicted.error_pct().max(1.0)
    );
    if predicted.unseen >= MUCH_UNSEEN {
        let unseen = predicted.unseen * 100.0;
        text += &format!(
            "; about {unseen:.0} % are of ranges that the trace missed, as it counted one access in some: a longer one \
             finds more"
        );
    }
    text
}

/// The same, or why it is unknown.
pub(super) fn reads_or_why(prediction: &Result<Prediction, CannotPredict>) -> String {
    match prediction {
        Ok(predicted) => reads(predicted),
        Err(why) => format!("time with this plan unknown: {why}"),
    }
}

/// Write the weights and their effect as text.
pub(super) fn write(
    out: &mut dyn Write,
    console: &Console,
    calibration: &Calibration,
    comparison: &Comparison,
    prediction: Option<&Result<Prediction, CannotPredict>>,
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
    let beyond = match weights.free_fragments {
        0 => String::new(),
        free => format!(" beyond {}", free + 1),
    };
    parts.push(format!(
        "{} a further fragment{beyond}",
        ns(weights.per_fragment_ns)
    ));
    if weights.split_ns > 0.0 {
        parts.push(format!("{} if there is one", ns(weights.split_ns)));
    }
    if weights.per_ahead_ns > 0.0 {
        parts.push(format!(
            "{} a request in flight ({:.1} on average)",
            ns(weights.per_ahead_ns),
            weights.mean_ahead
        ));
    }
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
    if let Some(prediction) = prediction {
        line("reads", reads_or_why(prediction))?;
    }
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
    free_fragments: u64,
    split_ns: f64,
    per_dopf_ns: f64,
    per_ahead_ns: f64,
    mean_ahead: f64,
    ahead_per_request: f64,
    queue: Queue,
    ranges: u64,
    reads: u64,
    outliers: u64,
    r_squared: f64,
    typical_error_ns: f64,
    ranking: RankingJson,
}

/// The effect of a plan on the time of all reads.
#[derive(Serialize)]
pub(super) struct ReadTimeJson {
    reads: Option<u64>,
    now_ns: Option<f64>,
    saved_ns: Option<f64>,
    saved_pct: Option<f64>,
    error_pct: Option<f64>,
    unseen_pct: Option<f64>,
    whole_saved_pct: Option<f64>,
    unknown: Option<String>,
}

impl ReadTimeJson {
    /// That of a plan with measured weights.
    pub(super) fn new(planned: &Planned) -> Option<Self> {
        let (prediction, whole) = (planned.prediction.as_ref()?, &planned.whole_prediction);
        let known = prediction.as_ref().ok();
        let whole = whole.as_ref().and_then(|whole| whole.as_ref().ok());
        Some(Self {
            reads: known.map(|known| known.reads),
            now_ns: known.map(|known| known.now_ns),
            saved_ns: known.map(|known| known.saved_ns),
            saved_pct: known.map(Prediction::saved_pct),
            error_pct: known.map(Prediction::error_pct),
            unseen_pct: known.map(|known| known.unseen * 100.0),
            whole_saved_pct: whole.map(Prediction::saved_pct),
            unknown: prediction.as_ref().err().map(ToString::to_string),
        })
    }
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
            free_fragments: weights.free_fragments,
            split_ns: weights.split_ns,
            per_dopf_ns: weights.per_dopf_ns,
            per_ahead_ns: weights.per_ahead_ns,
            mean_ahead: weights.mean_ahead,
            ahead_per_request: weights.ahead_per_request,
            queue: calibration.queue,
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
