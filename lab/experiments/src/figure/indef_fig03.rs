//! InDeF, Figure 3: sequential reads of one size in more and more fragments.
//!
//! Between two fragments lie whole rows of the device, so the data is on as many chips as before: the fragments alone
//! make the difference.

use lfs_sim::synthetic;
use units::Bytes;

use super::{
    error::FigureError,
    indef::System,
    measured::{Measured, Unit},
    parameters::Parameters,
};

/// See the module.
pub(super) fn measure(parameters: &Parameters) -> Result<Measured, FigureError> {
    parameters.measure(&["device", "request_time"], rows)
}

fn rows(parameters: &Parameters) -> Result<Measured, FigureError> {
    let file = Bytes(parameters.bytes("file")?);
    let mut measured = Measured::default();
    for size in parameters.sizes("io_sizes")? {
        let system = System::with_io_size(parameters, size)?;
        let (page, chips) = system.page_and_chips();
        let row = page * u64::from(chips);
        let mut whole = None;
        for dolf in parameters.counts("degrees")? {
            let piece = Bytes(size / dolf);
            if piece < lfs_sim::BLOCK {
                continue;
            }
            let gap = if dolf == 1 { Bytes::ZERO } else { row };
            let speed = system
                .read_by_hand(synthetic::pieces(&[piece], gap, file))?
                .megabytes_per_second();
            let series = format!("{} KB", size >> 10);
            let whole = *whole.get_or_insert(speed);
            measured.push(&series, dolf as f64, speed / whole, Unit::Times);
        }
    }
    Ok(measured)
}
