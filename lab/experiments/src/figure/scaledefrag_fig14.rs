//! ScaleDefrag, Figure 14: up to 64 defraggers on Optane.

use super::{error::FigureError, measured::Measured, parameters::Parameters, scaledefrag_fig13};

/// See the module.
pub(super) fn measure(parameters: &Parameters) -> Result<Measured, FigureError> {
    scaledefrag_fig13::measure(parameters)
}
