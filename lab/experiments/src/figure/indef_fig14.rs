//! InDeF, Figure 14: how busy the chips are while data migrates, and how long it takes.

use super::{
    error::FigureError,
    indef::{Contender, Defragmented, System, WORKLOADS, aged},
    measured::Measured,
    parameters::Parameters,
};

/// Rows about the work of InDeF and of the conventional tool on a workload's files.
type Rows = fn(&mut Measured, &'static str, [(&'static str, &Defragmented); 2]);

/// The figure with these rows, and its sensitivity.
pub(super) fn measure_of(parameters: &Parameters, rows: Rows) -> Result<Measured, FigureError> {
    parameters.measure(&["device", "request_time", "copy_call"], |parameters| {
        let system = System::small(parameters)?.copying_by(parameters.bytes("copy_call")?);
        let mut measured = Measured::default();
        for (personality, writes) in WORKLOADS {
            let truncate = parameters.number(&format!("truncate_{personality}"))?;
            let aged = aged(&system, parameters, personality, writes)?;
            let indef = aged.defragmented(&system, Contender::Indef { truncate })?;
            let conventional = aged.defragmented(&system, Contender::Conventional)?;
            let works = [("InDeF", &*indef), ("conventional", &*conventional)];
            rows(&mut measured, personality.name(), works);
        }
        Ok(measured)
    })
}
