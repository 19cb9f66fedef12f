//! InDeF, Figure 11: files that lie on purpose, and what three defragmenters do with them.

use std::ops::Range;

use lfs_sim::{BLOCK, FileId, script};
use units::Bytes;

use super::{
    error::FigureError,
    indef::{Contender, Ground, System, change_of_bytes, change_of_speed},
    measured::{Measured, Unit},
    parameters::Parameters,
};

/// Zones of the device: enough for each file three times.
const ZONES: u64 = 64;

/// A file whose pieces are written in this order, each with so many blocks of another file before it.
pub(super) fn written(
    system: &System,
    pieces: impl IntoIterator<Item = (u32, u32)>,
) -> Result<Ground, FigureError> {
    let mut volume = system.volume(ZONES);
    let (file, other) = (volume.create(), volume.create());
    let (mut at, mut beside) = (0, 0);
    let writes = pieces.into_iter().flat_map(|(before, blocks)| {
        let gap = beside..beside + before;
        let piece = at..at + blocks;
        (beside, at) = (gap.end, piece.end);
        [(other, gap), (file, piece)]
    });
    let writes: Vec<(FileId, Range<u32>)> = writes.filter(|(_, it)| !it.is_empty()).collect();
    let mut disk = system.empty_disk(ZONES)?;
    let (volume, _) = script::write(&system.simulated, volume, &mut disk, writes)
        .map_err(FigureError::simulation)?;
    Ok(Ground {
        disk,
        volume,
        files: vec![file],
    })
}

/// Blocks of so many bytes.
pub(super) fn blocks(bytes: Bytes) -> u32 {
    bytes.div_ceil(BLOCK) as u32
}

/// Bytes that the contenders move, and how fast the file is afterwards.
pub(super) fn rows(
    system: &System,
    ground: &Ground,
    parameters: &Parameters,
) -> Result<Measured, FigureError> {
    let truncate = parameters.number("truncate")?;
    let conventional = system.defragment(ground, Contender::Conventional)?;
    let fragpicker = system.defragment(ground, Contender::FragPicker)?;
    let indef = system.defragment(ground, Contender::Indef { truncate })?;
    let before = system.read_ground(ground)?;
    let mut measured = Measured::default();
    for (series, work) in [
        ("conventional", &conventional),
        ("FragPicker", &fragpicker),
        ("InDeF", &indef),
    ] {
        let moved = change_of_bytes(work.bytes.0, conventional.bytes.0);
        measured.push(series, "data moved", moved, Unit::ChangePct);
        let gain = change_of_speed(&work.read, &before);
        measured.push(
            series,
            "read bandwidth after, from before",
            gain,
            Unit::ChangePct,
        );
    }
    let similar = change_of_speed(&indef.read, &fragpicker.read);
    measured.push(
        "InDeF",
        "read bandwidth after, from FragPicker",
        similar,
        Unit::ChangePct,
    );
    Ok(measured)
}
