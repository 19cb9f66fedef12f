//! ScaleDefrag, Figure 11 on a mounted ext4: the data that is moved in a second, of the files of four workloads. The runs
//! are those of Figure 10.

use super::{
    error::FigureError,
    measured::{Measured, Unit, multiples},
    mounted::many::{Contender, Setup, runs},
    parameters::Parameters,
    scaledefrag::Workload,
    turn::Turn,
};

/// See the module.
pub(super) fn measure(parameters: &Parameters, turn: &Turn<'_>) -> Result<Measured, FigureError> {
    let setup = Setup::new(parameters)?;
    let scaledefrag = Contender::Whole(setup.workers);
    let mut measured = Measured::default();
    let mut best: Vec<f64> = Vec::new();
    for workload in Workload::ALL {
        let runs = runs(&setup, workload, turn)?;
        let throughput = |contender| {
            runs.of(contender, |_, state| {
                state.moved.0 as f64 / state.work.seconds
            })
        };
        let e4defrag = throughput(Contender::E4defrag);
        // Where it moves nothing in a run, there is no throughput to compare.
        if e4defrag.contains(&0.0) {
            continue;
        }
        for (series, contender) in [
            ("ScaleDefrag", scaledefrag),
            ("one worker", Contender::Whole(1)),
            ("indef", Contender::Indef),
        ] {
            let times = multiples(&throughput(contender), &e4defrag);
            measured.push_runs(series, workload.name(), &times, Unit::Times);
            if contender == scaledefrag {
                best.resize(times.len(), 0.0);
                for (best, times) in best.iter_mut().zip(times) {
                    *best = best.max(times);
                }
            }
        }
    }
    measured.push_runs("ScaleDefrag", "best of the workloads", &best, Unit::Times);
    Ok(measured)
}
