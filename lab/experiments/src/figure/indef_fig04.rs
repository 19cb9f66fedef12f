//! InDeF, Figure 4: sequential reads of which the data is on few chips.

use indef_core::layout::Layout;
use lfs_sim::synthetic;
use units::FileRange;

use super::{
    error::FigureError,
    indef::System,
    measured::{Measured, Unit},
    parameters::Parameters,
};

/// See the module.
pub(super) fn measure(parameters: &Parameters) -> Result<Measured, FigureError> {
    parameters.measure(&["request_time"], rows)
}

fn rows(parameters: &Parameters) -> Result<Measured, FigureError> {
    let system = System::new(parameters)?;
    let file = parameters.bytes("file")?;
    let (page, chips) = system.page_and_chips();
    let blocks = (system.io_size.0 / page.0) as u32;
    let series = format!("{} KB", system.io_size.0 >> 10);
    let requests = (file / system.io_size.0) as u32;
    let layout = |on: u32| -> Layout {
        let of_request = (0..blocks).map(move |block| block % on);
        let all = (0..requests).flat_map(move |_| of_request.clone());
        synthetic::on_chips(all, chips, page)
    };
    let on_all = system.read_by_hand(layout(chips))?.megabytes_per_second();
    let mut measured = Measured::default();
    for on in parameters.counts("chips")? {
        let layout = layout(on as u32);
        let request = FileRange::new(0, system.io_size.0);
        let dopf = system.dopf(&layout, request);
        let speed = system.read_by_hand(layout)?.megabytes_per_second();
        measured.push(&series, on as f64, speed / on_all, Unit::Times);
        measured.push("DoPF", on as f64, dopf, Unit::Count);
    }
    Ok(measured)
}
