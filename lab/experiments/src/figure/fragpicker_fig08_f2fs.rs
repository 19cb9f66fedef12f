//! FragPicker, Figure 8b: the same file on an Optane SSD with F2FS.

use super::{
    error::FigureError, fragpicker::FileSystem, fragpicker_fig08::measure_of, measured::Measured,
    parameters::Parameters,
};

/// See the module.
pub(super) fn measure(parameters: &Parameters) -> Result<Measured, FigureError> {
    measure_of(parameters, FileSystem::F2fs)
}
