//! ScaleDefrag, Figure 10 on a mounted ext4: how long it takes to defragment the files of four workloads, in how many
//! requests, and what is written.

use super::{
    error::FigureError,
    measured::{Measured, Unit, multiples},
    mounted::many::{Contender, Runs, Setup, runs},
    parameters::Parameters,
    scaledefrag::Workload,
    turn::Turn,
};

/// See the module.
pub(super) fn measure(parameters: &Parameters, turn: &Turn<'_>) -> Result<Measured, FigureError> {
    let setup = Setup::new(parameters)?;
    let mut measured = Measured::default();
    for workload in Workload::ALL {
        let runs = runs(&setup, workload, turn)?;
        times(&runs, setup.workers, workload, &mut measured);
        for contender in Contender::all(setup.workers) {
            work(&runs, contender, setup.workers, workload, &mut measured);
        }
        let mut before = |x: &str, values: &[f64]| {
            let x = format!("{}, {x}", workload.name());
            measured.push_runs("before", x.as_str(), values, Unit::Count);
        };
        before("files", &runs.before(|it| it.files() as f64));
        before("files in pieces", &runs.before(|it| it.fragmented() as f64));
        before("extents", &runs.before(|it| it.extents() as f64));
        let for_each_mib = |extents: u64, bytes: u64| extents as f64 * MIB / bytes as f64;
        before(
            "extents for each MiB",
            &runs.before(|it| for_each_mib(it.extents(), it.bytes().0)),
        );
    }
    Ok(measured)
}

/// Bytes.
const MIB: f64 = (1 << 20) as f64;

/// The name of a contender's rows.
fn series(contender: Contender, workers: usize) -> &'static str {
    match contender {
        Contender::E4defrag => "e4defrag",
        Contender::Whole(it) if it == workers => "ScaleDefrag",
        Contender::Whole(_) => "one worker",
        Contender::Indef => "indef",
    }
}

/// What the caption says: times, against those of the same run.
fn times(runs: &Runs, workers: usize, workload: Workload, measured: &mut Measured) {
    let seconds = |contender| runs.of(contender, |_, state| state.work.seconds);
    let e4defrag = seconds(Contender::E4defrag);
    let mut push = |series: &str, now: &[f64], then: &[f64]| {
        let times = multiples(now, then);
        measured.push_runs(series, workload.name(), &times, Unit::Times);
    };
    let one = seconds(Contender::Whole(1));
    let all = seconds(Contender::Whole(workers));
    push("ScaleDefrag", &all, &e4defrag);
    let pairs = e4defrag.iter().zip(&one);
    let others: Vec<f64> = pairs.map(|(a, b)| a.min(*b)).collect();
    push("ScaleDefrag, × the shortest other", &all, &others);
    push("one worker", &one, &e4defrag);
    push("indef", &seconds(Contender::Indef), &e4defrag);
}

/// Counts and bytes of a contender.
fn work(
    runs: &Runs,
    contender: Contender,
    workers: usize,
    workload: Workload,
    measured: &mut Measured,
) {
    let mut push = |x: &str, values: &[f64], unit| {
        let x = format!("{}, {x}", workload.name());
        measured.push_runs(series(contender, workers), x.as_str(), values, unit);
    };
    let reads = runs.of(contender, |_, it| it.work.traffic.reads as f64);
    push("requests that read", &reads, Unit::Count);
    let writes = runs.of(contender, |_, it| it.work.traffic.writes as f64);
    push("requests that write", &writes, Unit::Count);
    let written = runs.of(contender, |_, it| it.work.traffic.written.0 as f64 / MIB);
    push("written", &written, Unit::Mib);
    let moved = runs.of(contender, |_, it| it.moved.0 as f64 / MIB);
    push("moved", &moved, Unit::Mib);
    let extents = runs.of(contender, |_, it| it.extents as f64);
    push("extents", &extents, Unit::Count);
}
