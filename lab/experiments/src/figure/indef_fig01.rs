//! InDeF, Figure 1: sequential reads after the workloads ran, in comparison to before.

use super::{
    error::FigureError,
    indef::{System, WORKLOADS, aged},
    measured::{Measured, Unit},
    parameters::Parameters,
};

/// See the module.
pub(super) fn measure(parameters: &Parameters) -> Result<Measured, FigureError> {
    let free = [
        "device",
        "turn_blocks",
        "queue_depth",
        "request_time",
        "reader",
    ];
    parameters.measure(&free, rows)
}

fn rows(parameters: &Parameters) -> Result<Measured, FigureError> {
    let system = System::small(parameters)?;
    let mut measured = Measured::default();
    for (personality, writes) in WORKLOADS {
        let aged = aged(&system, parameters, personality, writes)?;
        let change = system.loss(&aged.ground)?;
        measured.push(
            "sequential read",
            personality.name(),
            change,
            Unit::ChangePct,
        );
        let files = aged.ground.layouts();
        let bytes: u64 = files.iter().map(|file| file.allocated().0).sum();
        let fragments: u64 = files.iter().map(|file| file.fragments()).sum();
        let kib = bytes as f64 / fragments as f64 / 1024.0;
        measured.push("mean fragment", personality.name(), kib, Unit::Kib);
        let first = 100.0 * aged.first_bytes.0 as f64 / bytes as f64;
        measured.push(
            "there before the flows",
            personality.name(),
            first,
            Unit::SharePct,
        );
    }
    Ok(measured)
}
