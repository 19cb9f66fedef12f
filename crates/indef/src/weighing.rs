//! `--weight measured`: weights from the times in a profile, and how they change the order in which
//! ranges are worth moving.

use std::{
    collections::HashSet,
    fs,
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use indef_core::{
    calibrate::{Calibration, CannotCalibrate, Sample, calibrate},
    plan::{Chunk, FileFacts, PathJson, PlanOptions, Ranking, Weight, plan_file},
};
use indef_engine::Cancel;
use indef_fs::{Mapper, TargetId};
use serde::Serialize;
use units::{Bytes, FileRange, Nanos};

use crate::{
    accesses::Accesses,
    geometry::Geometries,
    opened::Opened,
    output::{Align, Console, Count, Name, Ratio, Table},
};

/// Ranges whose rank changed most, that are shown.
const SHOWN: usize = 5;

/// Replace the paper's weights in `options` by measured ones; if there are none, tell why, and leave
/// them.
///
/// Samples are the timed files of the profile on the devices that `paths` are on, planned or not.
///
/// # Errors
///
/// Why there are none.
pub(crate) fn calibration(
    options: &mut PlanOptions,
    geometries: &Geometries,
    accesses: &Accesses,
    paths: &[PathBuf],
    jobs: usize,
    cancel: &Cancel,
) -> Result<Calibration, CannotCalibrate> {
    let found = calibrate(samples(options, geometries, accesses, paths, jobs, cancel))?;
    options.weight = Weight::Measured(found.weights);
    Ok(found)
}

/// The same for `--weight measured`, which was asked for: a note says what is used instead.
pub(crate) fn measure(
    options: &mut PlanOptions,
    geometries: &Geometries,
    accesses: &Accesses,
    paths: &[PathBuf],
    jobs: usize,
    console: &Console,
    cancel: &Cancel,
) -> Result<Calibration, CannotCalibrate> {
    let found = calibration(options, geometries, accesses, paths, jobs, cancel);
    if let Err(why) = &found {
        console.note(format_args!(
            "--weight measured: {why}; the paper's weights are used"
        ));
    }
    found
}

fn samples(
    options: &PlanOptions,
    geometries: &Geometries,
    accesses: &Accesses,
    paths: &[PathBuf],
    jobs: usize,
    cancel: &Cancel,
) -> Vec<Sample> {
    let devices: HashSet<u64> = paths
        .iter()
        .filter_map(|path| fs::metadata(path).ok())
        .map(|status| status.dev())
        .collect();
    let timed: Vec<(TargetId, &Path)> = accesses
        .timed()
        .filter(|(id, _)| devices.contains(&id.dev))
        .map(|(id, path)| (*id, path))
        .collect();
    let samples = Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    let work = || {
        let mut mapper = Mapper::default();
        while let Some((id, path)) = timed.get(next.fetch_add(1, Ordering::Relaxed))
            && !cancel.is_cancelled()
        {
            // What cannot be looked into is told when it is planned.
            let layout =
                open_timed(path, *id).and_then(|file| file.map(file.whole(), false, &mut mapper));
            let (Some(layout), Some(ranges)) = (layout, accesses.of(id)) else {
                continue;
            };
            let geometry = geometries.of(id.dev);
            let of_file = ranges
                .iter()
                .filter_map(|access| Sample::of(&layout, access, &geometry, options.max_request));
            lock(&samples).extend(of_file);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..jobs {
            scope.spawn(work);
        }
        work();
    });
    samples.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// A file of a profile, which may name it by a symbolic link: only what has its number is opened.
fn open_timed(path: &Path, id: TargetId) -> Option<Opened> {
    Opened::open(path, id).or_else(|| Opened::open(&path.canonicalize().ok()?, id))
}

/// A fragmented range as both kinds of weights see it.
struct Weighed {
    path: Arc<Path>,
    range: FileRange,
    reads: u64,
    dolf: u64,
    /// Gain for each byte.
    paper: f64,
    measured: f64,
}

/// Every fragmented range that was planned with measured weights, and what the paper's would make of
/// it.
#[derive(Default)]
pub(crate) struct Rankings(Mutex<Vec<Weighed>>);

impl Rankings {
    /// Compare the chunks of a file, planned with `options`, with what the paper's weights give.
    pub(crate) fn add(
        &self,
        options: &PlanOptions,
        facts: &FileFacts<'_>,
        path: &Path,
        chunks: &[Chunk],
    ) {
        let paper = PlanOptions {
            weight: Weight::Paper,
            ..options.clone()
        };
        let path: Arc<Path> = path.into();
        // Which ranges there are does not depend on weights, beside neighbours that nothing is
        // worth in, which may stand together.
        let by_paper = plan_file(&paper, facts);
        let mut by_paper = by_paper.iter().peekable();
        let mut weighed = lock(&self.0);
        for chunk in chunks {
            while by_paper
                .next_if(|p| p.range.start < chunk.range.start)
                .is_some()
            {}
            let Some(same) = by_paper.next_if(|p| p.range == chunk.range) else {
                continue;
            };
            if same.gain <= 0.0 && chunk.gain <= 0.0 {
                continue;
            }
            let bytes = chunk.cost.get().max(1) as f64;
            weighed.push(Weighed {
                path: path.clone(),
                range: chunk.range,
                reads: chunk.reads,
                dolf: chunk.dolf,
                paper: same.gain / bytes,
                measured: chunk.gain / bytes,
            });
        }
    }

    /// The comparison.
    pub(crate) fn compare(self) -> Comparison {
        let mut weighed = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        // Files are met in any order.
        weighed.sort_by(|a, b| (&a.path, a.range.start).cmp(&(&b.path, b.range.start)));
        let pairs: Vec<_> = weighed.iter().map(|w| (w.paper, w.measured)).collect();
        Comparison {
            ranking: Ranking::of(&pairs, SHOWN),
            weighed,
        }
    }
}

/// How the paper's weights and the measured ones order the same ranges.
pub(crate) struct Comparison {
    ranking: Ranking,
    weighed: Vec<Weighed>,
}

/// The weights found and what they change, as text.
pub(crate) fn write(
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
    // Where all ranges are of one length, it is part of the base.
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
pub(crate) struct WeightsJson {
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
    pub(crate) fn new(calibration: &Calibration, comparison: &Comparison) -> Self {
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

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
