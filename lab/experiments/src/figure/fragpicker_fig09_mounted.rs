//! FragPicker, Figure 9 on a mounted file system: its file on ext4 on a SATA SSD, and the cost of discards.

use stage::Fs;

use super::{
    error::FigureError,
    measured::Measured,
    mounted::{Rig, Runs, rows_of, trim_rows},
    parameters::Parameters,
    turn::Turn,
};

/// See the module.
pub(super) fn measure(parameters: &Parameters, turn: &Turn<'_>) -> Result<Measured, FigureError> {
    let runs = Runs::measure(&Rig::new(parameters)?, Fs::Ext4, true, turn)?;
    let mut measured = Measured::default();
    rows_of(&runs, "", &mut measured);
    trim_rows(&runs, &mut measured);
    Ok(measured)
}
