//! InDeF, Figure 14: the time that a defragmentation takes.

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
        let [ours, theirs] = [&indef, &conventional].map(|work| work.elapsed.time.0 as f64 / 1e9);
        let change = 100.0 * (ours / theirs - 1.0);
        measured.push("InDeF", workload, change, Unit::ChangePct);
        for (series, work, seconds) in [
            ("InDeF", indef, ours),
            ("conventional", conventional, theirs),
        ] {
            measured.push(&format!("{series}, time"), workload, seconds, Unit::Seconds);
            let cleaned = (work.counters.cleaned_blocks * lfs_sim::BLOCK.0) >> 20;
            measured.push(
                &format!("{series}, cleaned beside"),
                workload,
                cleaned as f64,
                Unit::Mib,
            );
        }
    }
    Ok(measured)
}
