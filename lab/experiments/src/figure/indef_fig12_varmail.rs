//! InDeF, Figure 12, varmail.

use workloads::filebench::Personality;

use super::{
    error::FigureError, indef_fig12::measure_of, measured::Measured, parameters::Parameters,
};

/// See the module.
pub(super) fn measure(parameters: &Parameters) -> Result<Measured, FigureError> {
    measure_of(parameters, Personality::Varmail)
}
