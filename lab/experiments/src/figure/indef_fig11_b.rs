//! InDeF, Figure 11, file B: reads of 16 pages on 2, 8 and 16 chips.

use lfs_sim::synthetic;

use super::{
    error::FigureError,
    indef::System,
    indef_fig11::{blocks, rows, written},
    measured::Measured,
    parameters::Parameters,
};

/// See the module.
pub(super) fn measure(parameters: &Parameters) -> Result<Measured, FigureError> {
    parameters.measure(&["request_time"], of)
}

fn of(parameters: &Parameters) -> Result<Measured, FigureError> {
    let system = System::new(parameters)?;
    let (page, chips) = system.page_and_chips();
    let requests = parameters.count("requests")? as u32;
    let in_page = blocks(page);
    let pages_of_request = blocks(system.io_size) / in_page;
    // The log goes over the chips page by page: others' pages bring its head to the chip that is wanted, once around
    // where it is there already, as two pages must not touch.
    let mut head = 0;
    let pieces = synthetic::file_b(requests, pages_of_request, chips).map(|chip| {
        let away = (chip + chips - head) % chips;
        let gap = if away == 0 { chips } else { away };
        head = (chip + 1) % chips;
        (gap * in_page, in_page)
    });
    let ground = written(&system, pieces)?;
    rows(&system, &ground, parameters)
}
