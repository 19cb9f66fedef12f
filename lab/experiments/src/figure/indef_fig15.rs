//! InDeF, Figure 15: a fileserver while data migrates beside it.

use lfs_sim::{
    FileId,
    ageing::{Later, migrate_beside},
    planning,
    volume::Volume,
};
use units::Bytes;

use super::{
    error::FigureError,
    indef::{Contender, System, WORKLOADS, ZONES, ageing},
    measured::{Measured, Unit, change},
    parameters::Parameters,
};

/// See the module.
pub(super) fn measure(parameters: &Parameters) -> Result<Measured, FigureError> {
    parameters.measure(&["device", "copy_call"], rows)
}

fn rows(parameters: &Parameters) -> Result<Measured, FigureError> {
    let system = System::small(parameters)?.copying_by(parameters.bytes("copy_call")?);
    let [(personality, writes), _] = WORKLOADS;
    let (simulated, ageing) = ageing(&system, parameters, personality)?;
    let alone = parameters.number("alone")? / 100.0;
    let bytes = Bytes(parameters.bytes("moved")? / system.factor);
    let truncate = parameters.number("truncate")?;
    let mut measured = Measured::default();
    for (series, contender) in [
        ("InDeF", Contender::Indef { truncate }),
        ("conventional", Contender::Conventional),
    ] {
        let plan = |volume: &Volume, files: &[FileId]| {
            let layouts: Vec<_> = files.iter().map(|file| volume.layout(*file)).collect();
            let reads = layouts
                .iter()
                .map(|layout| planning::sequential_reads(layout.allocated(), system.io_size));
            let reads: Vec<_> = reads.collect();
            let plans = system.plan_read(&layouts, &reads, contender);
            files.iter().copied().zip(plans).collect::<Vec<_>>()
        };
        let mut disk = system
            .empty_disk(ZONES)?
            .with_queue_depth(simulated.host.queue_depth);
        let later = Later {
            alone,
            bytes,
            carrier: system.carrier(contender),
        };
        let volume = system.volume(ZONES);
        let beside = migrate_beside(&simulated, volume, &mut disk, ageing, writes, later, plan)
            .map_err(FigureError::simulation)?;
        let speeds = [beside.beside, beside.alone].map(|part| part.megabytes_per_second());
        // As much longer as the paper's data is more.
        let time = system.factor as f64 * beside.beside.time.0 as f64 / 1e9;
        let lost = change(speeds[0], speeds[1]);
        measured.push(series, "elapsed", time, Unit::Seconds);
        measured.push(series, "bandwidth of the fileserver", lost, Unit::ChangePct);
        let moved = (beside.moved.0 * system.factor) >> 20;
        let series = format!("{series}, data moved");
        measured.push(&series, "elapsed", moved as f64, Unit::Mib);
    }
    Ok(measured)
}
