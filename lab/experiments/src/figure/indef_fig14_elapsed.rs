//! InDeF, Figure 14: the time that a defragmentation takes.

use super::{
    error::FigureError,
    indef::Defragmented,
    indef_fig14::measure_of,
    measured::{Measured, Unit, change},
    parameters::Parameters,
};

/// See the module.
pub(super) fn measure(parameters: &Parameters) -> Result<Measured, FigureError> {
    measure_of(parameters, |measured, workload, works| {
        let [ours, theirs] = works.map(|(_, work)| seconds(work));
        measured.push("InDeF", workload, change(ours, theirs), Unit::ChangePct);
        for (series, work) in works {
            let time = format!("{series}, time");
            measured.push(&time, workload, seconds(work), Unit::Seconds);
            let cleaned = (work.counters.cleaned_blocks * lfs_sim::BLOCK.0) >> 20;
            let beside = format!("{series}, cleaned beside");
            measured.push(&beside, workload, cleaned as f64, Unit::Mib);
        }
    })
}

fn seconds(work: &Defragmented) -> f64 {
    work.elapsed.time.0 as f64 / 1e9
}
