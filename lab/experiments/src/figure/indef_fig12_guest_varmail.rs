//! InDeF, Figure 12 with F2FS in a guest, varmail.

use workloads::filebench::Personality;

use super::{
    error::FigureError, indef_fig12_guest::measure_of, measured::Measured, parameters::Parameters,
    turn::Turn,
};

/// See the module.
pub(super) fn measure(parameters: &Parameters, turn: &Turn<'_>) -> Result<Measured, FigureError> {
    measure_of(parameters, Personality::Varmail, turn)
}
