//! InDeF, §IV-B (2): the data that moves of a RocksDB that YCSB-C has read.

use indef_core::layout::Layout;
use lfs_sim::{BLOCK, volume::Volume};
use units::Bytes;

use super::{
    database::{Reads, files_of},
    error::FigureError,
    fragpicker::blocks,
    indef::{Contender, System, change_of_bytes},
    measured::{Measured, Unit},
    parameters::Parameters,
};

/// See the module.
pub(super) fn measure(parameters: &Parameters) -> Result<Measured, FigureError> {
    parameters.measure(&["device", "operations", "turn"], rows)
}

fn rows(parameters: &Parameters) -> Result<Measured, FigureError> {
    let system = System::new(parameters)?;
    let database = Bytes(parameters.bytes("database")?);
    let file = Bytes(parameters.bytes("file")?);
    let turn = blocks(Bytes(parameters.bytes("turn")?));
    // The database, as much of others, and the heads of the logs.
    let section = system.simulated.log.section;
    let mut volume = system.volume(2 * database.div_ceil(section) + 16);
    let other = volume.create();
    let mut others = 0;
    let place = |volume: &mut Volume, file, at, len| {
        volume
            .place(file, at, len, &mut Vec::new())
            .map_err(FigureError::simulation)
    };
    let mut layouts: Vec<Layout> = Vec::new();
    for size in files_of(database, file) {
        let id = volume.create();
        for at in (0..size).step_by(turn as usize) {
            let len = turn.min(size - at);
            place(&mut volume, id, at, len)?;
            place(&mut volume, other, others, len)?;
            others += len;
        }
        layouts.push(volume.layout(id));
    }
    let rounds = parameters.number("operations")? / 100.0;
    let accesses = Reads::drawn(parameters, database, file, rounds)?.accesses();
    let moved = |contender| -> u64 {
        let plans = system.plan_read(&layouts, &accesses, contender);
        plans.iter().map(|plan| plan.cost().0).sum()
    };
    let all = moved(Contender::Conventional);
    let truncate = parameters.number("truncate")?;
    let mut measured = Measured::default();
    for (series, contender) in [
        ("InDeF", Contender::Indef { truncate }),
        ("FragPicker", Contender::FragPicker),
    ] {
        let change = change_of_bytes(moved(contender), all);
        measured.push(series, "data moved", change, Unit::ChangePct);
    }
    let read: u64 = accesses.iter().flatten().map(|it| it.range.len.0).sum();
    let share = 100.0 * read as f64 / (BLOCK.0 * u64::from(blocks(database))) as f64;
    measured.push("read", "data moved", share, Unit::SharePct);
    Ok(measured)
}
