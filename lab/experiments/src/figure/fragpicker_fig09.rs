//! FragPicker, Figure 9: its file on a SATA SSD with ext4.

use super::{
    error::FigureError, fragpicker::FileSystem, fragpicker_fig08::measure_of, measured::Measured,
    parameters::Parameters,
};

/// See the module.
pub(super) fn measure(parameters: &Parameters) -> Result<Measured, FigureError> {
    measure_of(parameters, FileSystem::Ext4)
}
