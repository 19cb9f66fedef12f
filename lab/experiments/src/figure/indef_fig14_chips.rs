//! InDeF, Figure 14: how busy the chips are while data migrates.

use super::{
    error::FigureError,
    indef_fig14::migrations,
    measured::{Measured, Unit},
    parameters::Parameters,
};

/// See the module.
pub(super) fn measure(parameters: &Parameters) -> Result<Measured, FigureError> {
    let mut measured = rows(parameters)?;
    for name in ["device", "request_time", "copy_call"] {
        for (setting, other) in parameters.variants(name)? {
            measured.add_sensitivity(name, &setting, rows(&other)?);
        }
    }
    Ok(measured)
}

fn rows(parameters: &Parameters) -> Result<Measured, FigureError> {
    let mut measured = Measured::default();
    for (workload, indef, conventional) in migrations(parameters)? {
        for (series, work) in [("InDeF", indef), ("conventional", conventional)] {
            let busy = work.elapsed.busy_percent();
            measured.push(series, workload, busy, Unit::SharePct);
        }
    }
    Ok(measured)
}
