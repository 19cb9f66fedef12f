//! InDeF, Figure 13: the share of entries that is truncated.

use super::{
    error::FigureError,
    indef::{Contender, System, WORKLOADS, aged, change_of_bytes, change_of_speed},
    measured::{Measured, Unit},
    parameters::Parameters,
};

/// See the module.
pub(super) fn measure(parameters: &Parameters) -> Result<Measured, FigureError> {
    parameters.measure(&["device"], rows)
}

fn rows(parameters: &Parameters) -> Result<Measured, FigureError> {
    let system = System::small(parameters)?;
    let mut measured = Measured::default();
    for (personality, writes) in WORKLOADS {
        let aged = aged(&system, parameters, personality, writes)?;
        let all = aged.defragmented(&system, Contender::Indef { truncate: 0.0 })?;
        for truncate in parameters.numbers("truncated")? {
            let work = aged.defragmented(&system, Contender::Indef { truncate })?;
            let name = personality.name();
            let speed = change_of_speed(&work.read, &all.read);
            measured.push(name, truncate, speed, Unit::ChangePct);
            let moved = change_of_bytes(work.bytes.0, all.bytes.0);
            measured.push(
                &format!("{name}, data moved"),
                truncate,
                moved,
                Unit::ChangePct,
            );
        }
    }
    Ok(measured)
}
