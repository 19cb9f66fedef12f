//! InDeF, Figure 12: aged files, read again after three defragmenters, and the data that these move.

use workloads::filebench::Personality;

use super::{
    error::FigureError,
    indef::{
        Contender, System, WORKLOADS, aged, change_of_bytes, change_of_speed, contiguous_percent,
    },
    measured::{Measured, Unit},
    parameters::Parameters,
};

/// The figure of a workload, with its sensitivity.
pub(super) fn measure_of(
    parameters: &Parameters,
    personality: Personality,
) -> Result<Measured, FigureError> {
    let mut measured = rows(parameters, personality, true)?;
    for name in ["device", "turn_blocks", "queue_depth", "request_time"] {
        for (setting, other) in parameters.variants(name)? {
            measured.add_sensitivity(name, &setting, rows(&other, personality, false)?);
        }
    }
    Ok(measured)
}

/// `with_all`: also how fast the files are after the other two.
fn rows(
    parameters: &Parameters,
    personality: Personality,
    with_all: bool,
) -> Result<Measured, FigureError> {
    let system = System::small(parameters)?;
    let truncate = parameters.number("truncate")?;
    let (_, writes) = WORKLOADS[personality as usize];
    let aged = aged(&system, parameters, personality, writes)?;
    let ground = &aged.ground;
    let before = system.read_ground(ground)?;
    let gain = |contender| -> Result<f64, FigureError> {
        Ok(change_of_speed(
            &aged.defragmented(&system, contender)?.read,
            &before,
        ))
    };
    let indef = Contender::Indef { truncate };
    let moved = |contender| system.planned(ground, contender);
    let [conventional, fragpicker] = [Contender::Conventional, Contender::FragPicker];
    let mut measured = Measured::default();
    let mut push = |series: &str, x: &str, value| measured.push(series, x, value, Unit::ChangePct);
    push("InDeF", "grep throughput, from before", gain(indef)?);
    if with_all {
        push(
            "conventional",
            "grep throughput, from before",
            gain(conventional)?,
        );
        push(
            "FragPicker",
            "grep throughput, from before",
            gain(fragpicker)?,
        );
    }
    let bytes = [moved(indef), moved(fragpicker), moved(conventional)];
    push(
        "InDeF",
        "data moved, from FragPicker",
        change_of_bytes(bytes[0], bytes[1]),
    );
    push(
        "InDeF",
        "data moved, from conventional",
        change_of_bytes(bytes[0], bytes[2]),
    );
    push(
        "FragPicker",
        "data moved, from conventional",
        change_of_bytes(bytes[1], bytes[2]),
    );
    let contiguous = contiguous_percent(&ground.layouts(), system.io_size);
    measured.push(
        "aged",
        "data in reads of one piece",
        contiguous,
        Unit::SharePct,
    );
    Ok(measured)
}
