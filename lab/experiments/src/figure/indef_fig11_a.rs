//! InDeF, Figure 11, file A: reads of 64, 2 and 1 fragments.

use lfs_sim::synthetic;

use super::{
    error::FigureError,
    indef::System,
    indef_fig11::{blocks, rows, written},
    measured::Measured,
    parameters::Parameters,
};

/// See the module.
pub(super) fn measure(parameters: &Parameters) -> Result<Measured, FigureError> {
    parameters.measure(&["device", "gap", "request_time"], of)
}

fn of(parameters: &Parameters) -> Result<Measured, FigureError> {
    let system = System::new(parameters)?;
    let gap = blocks(units::Bytes(parameters.bytes("gap")?));
    let repeats = parameters.count("repeats")? as usize;
    let pieces = synthetic::file_a();
    let all = pieces.iter().cycle().take(repeats * pieces.len());
    let ground = written(&system, all.map(|piece| (gap, blocks(*piece))))?;
    rows(&system, &ground, parameters)
}
