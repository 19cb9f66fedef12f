//! InDeF, Figure 14: how busy the chips are while data migrates.

use super::{
    error::FigureError,
    indef_fig14::measure_of,
    measured::{Measured, Unit},
    parameters::Parameters,
};

/// See the module.
pub(super) fn measure(parameters: &Parameters) -> Result<Measured, FigureError> {
    measure_of(parameters, |measured, workload, works| {
        for (series, work) in works {
            let busy = work.elapsed.busy_percent();
            measured.push(series, workload, busy, Unit::SharePct);
        }
    })
}
