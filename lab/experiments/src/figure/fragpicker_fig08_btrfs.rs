//! FragPicker, Figure 8c: the same file on an Optane SSD with Btrfs, which updates nothing in place.

use lfs_sim::calls::Direction;

use super::{
    error::FigureError,
    fragpicker::{Contender, FileSystem, System, every},
    fragpicker_fig08::{file, strides},
    measured::{Measured, Unit, change},
    parameters::Parameters,
};

/// See the module.
pub(super) fn measure(parameters: &Parameters) -> Result<Measured, FigureError> {
    parameters.measure(&["gap", "plug", "stride_from"], rows)
}

fn rows(parameters: &Parameters) -> Result<Measured, FigureError> {
    let system = System::new(parameters, parameters.text("device")?)?;
    let before = file(parameters, &system, FileSystem::Btrfs)?;
    let size = before.layout().allocated();
    let sequential = every(system.io_size, system.io_size, size);
    let stride = strides(parameters, system.io_size, size)?;
    let of_sequential = system.defragment_read(&before, &sequential)?;
    let of_stride = system.defragment_read(&before, &stride)?;
    let conventional = system.defragment(&before, Contender::Conventional)?;
    // All extents below 128 KiB: the same ranges, as this file has 32 small ones in each second window.
    let with_threshold = system.defragment(&before, Contender::Bypass)?;
    let strided = |ground| system.speed(ground, &stride, Direction::Read);
    let updated = |ground| system.update_elsewhere(ground, &sequential);
    let mut measured = Measured::default();
    let mut push = |series: &str, x: &str, now: f64, then: f64| {
        measured.push(series, x, change(now, then), Unit::ChangePct);
    };
    push(
        "FragPicker",
        "time of defragmentation (stride), from conventional",
        of_stride.time,
        conventional.time,
    );
    push(
        "Conv.-T",
        "stride read, from FragPicker",
        strided(&with_threshold.ground)?,
        strided(&of_stride.ground)?,
    );
    push(
        "Conv.-T",
        "writes, from FragPicker",
        with_threshold.written,
        of_stride.written,
    );
    push(
        "FragPicker",
        "sequential update, from before",
        updated(&of_sequential.ground)?,
        updated(&before)?,
    );
    Ok(measured)
}
