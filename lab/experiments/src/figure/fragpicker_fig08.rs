//! FragPicker, Figures 8 and 9: its file, read and updated before and after three defragmenters.

use lfs_sim::{calls::Direction, synthetic};
use units::{Bytes, FileRange};

use super::{
    error::FigureError,
    fragpicker::{Contender, FileSystem, Ground, System, blocks, every},
    measured::{Measured, Unit, change},
    parameters::Parameters,
};

/// The figure on a file system, with its sensitivity.
pub(super) fn measure_of(
    parameters: &Parameters,
    file_system: FileSystem,
) -> Result<Measured, FigureError> {
    let rows = |parameters: &Parameters| rows(parameters, file_system);
    parameters.measure(&["gap", "plug", "stride_from"], rows)
}

/// The paper's file: pieces of 4 and of 128 KiB with others' data between them.
pub(super) fn file(
    parameters: &Parameters,
    system: &System,
    file_system: FileSystem,
) -> Result<Ground, FigureError> {
    system.written(file_system, &pieces(parameters)?)
}

/// Blocks of others, and of the file after them, again and again.
pub(super) fn pieces(parameters: &Parameters) -> Result<Vec<(u32, u32)>, FigureError> {
    let gap = blocks(Bytes(parameters.bytes("gap")?));
    let mut left = blocks(Bytes(parameters.bytes("file")?));
    let pieces = synthetic::fragpicker().into_iter().cycle();
    let pieces = pieces.map_while(|piece| {
        let piece = blocks(piece).min(left);
        left -= piece;
        (piece > 0).then_some((gap, piece))
    });
    Ok(pieces.collect())
}

/// The ranges of the stride: `stride` bytes from the `start` or the `end` of one to the start of the next.
pub(super) fn strides(
    parameters: &Parameters,
    io_size: Bytes,
    size: Bytes,
) -> Result<Vec<FileRange>, FigureError> {
    let stride = Bytes(parameters.bytes("stride")?);
    let step = match parameters.text("stride_from")? {
        "start" => stride,
        "end" => stride + io_size,
        other => {
            let text = format!("a stride goes from the 'start' or the 'end', not the '{other}'");
            return Err(FigureError::simulation(text));
        }
    };
    Ok(every(step, io_size, size))
}

/// Speeds in MB/s.
struct Speeds {
    read: f64,
    update: f64,
}

fn rows(parameters: &Parameters, file_system: FileSystem) -> Result<Measured, FigureError> {
    let system = System::new(parameters, parameters.text("device")?)?;
    let before = file(parameters, &system, file_system)?;
    let size = before.layout().allocated();
    let sequential = every(system.io_size, system.io_size, size);
    let stride = strides(parameters, system.io_size, size)?;
    let speeds = |ground: &Ground, ranges: &[FileRange]| -> Result<Speeds, FigureError> {
        Ok(Speeds {
            read: system.speed(ground, ranges, Direction::Read)?,
            update: system.speed(ground, ranges, Direction::Update)?,
        })
    };
    let conventional = system.defragment(&before, Contender::Conventional)?;
    let bypass = system.defragment(&before, Contender::Bypass)?;
    let mut measured = Measured::default();
    let mut push = |series: &str, x: &str, from: &str, now: f64, then: f64| {
        measured.push(
            series,
            format!("{x}, from {from}").as_str(),
            change(now, then),
            Unit::ChangePct,
        );
    };
    for (name, ranges) in [("sequential", &sequential), ("stride", &stride)] {
        let fragpicker = system.defragment_read(&before, ranges)?;
        let now = speeds(&fragpicker.ground, ranges)?;
        for (from, ground) in [
            ("before", &before),
            ("conventional", &conventional.ground),
            ("bypass", &bypass.ground),
        ] {
            let then = speeds(ground, ranges)?;
            let [read, update] = [format!("{name} read"), format!("{name} update")];
            push("FragPicker", &read, from, now.read, then.read);
            push("FragPicker", &update, from, now.update, then.update);
        }
        let writes = format!("writes ({name})");
        for (from, other) in [("conventional", &conventional), ("bypass", &bypass)] {
            push(
                "FragPicker",
                &writes,
                from,
                fragpicker.written,
                other.written,
            );
        }
    }
    Ok(measured)
}
