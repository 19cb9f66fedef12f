//! The device and the file of a figure, as its parameters have them.

use super::{
    super::{error::FigureError, parameters::Parameters, workload::Workload},
    ground::Ground,
};

/// See the module.
pub(in super::super) struct Rig {
    pub(super) ground: Ground,
    pub(super) workload: Workload,
    /// Of the reader and the updater over the file.
    pub(super) passes: u64,
}

impl Rig {
    pub(in super::super) fn new(parameters: &Parameters) -> Result<Self, FigureError> {
        Ok(Self {
            ground: Ground::new(parameters)?,
            workload: Workload::new(parameters)?,
            passes: parameters.count("passes")?,
        })
    }
}
