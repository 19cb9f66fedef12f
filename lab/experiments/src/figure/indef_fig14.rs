//! InDeF, Figure 14: how busy the chips are while data migrates, and how long it takes.

use super::{
    error::FigureError,
    indef::{Contender, Defragmented, System, WORKLOADS, aged},
    parameters::Parameters,
};

/// The work of InDeF and of the conventional tool on each workload's files.
pub(super) fn migrations(
    parameters: &Parameters,
) -> Result<Vec<(&'static str, Defragmented, Defragmented)>, FigureError> {
    let system = System::small(parameters)?.copying_by(parameters.bytes("copy_call")?);
    let migrations = WORKLOADS.map(|(personality, writes)| {
        let truncate = parameters.number(&format!("truncate_{personality}"))?;
        let ground = aged(&system, parameters, personality, writes)?.ground;
        let indef = system.defragment(&ground, Contender::Indef { truncate })?;
        let conventional = system.defragment(&ground, Contender::Conventional)?;
        Ok((personality.name(), indef, conventional))
    });
    migrations.into_iter().collect()
}
