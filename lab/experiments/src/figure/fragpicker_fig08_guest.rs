//! FragPicker, Figure 8b with F2FS in a guest: its file, read before and after three defragmenters.

use super::{
    error::FigureError,
    in_guest::{Rig, Runs, rows_of},
    measured::Measured,
    parameters::Parameters,
    turn::Turn,
};

/// See the module.
pub(super) fn measure(parameters: &Parameters, turn: &Turn<'_>) -> Result<Measured, FigureError> {
    let rig = Rig::new(parameters)?;
    let runs = Runs::measure(&rig, turn)?;
    let mut measured = Measured::default();
    rows_of(&runs, &mut measured);
    Ok(measured)
}
