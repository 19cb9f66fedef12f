//! The work of a defragmenter.

use std::{process::Command, time::Instant};

use stage::{Stage, StageError, Traffic, text};

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct Work {
    /// Until all was written back.
    pub(in super::super) seconds: f64,
    /// What the device was told to read and write.
    pub(in super::super) traffic: Traffic,
}

impl Work {
    /// Runs a command to its end, and until all that it left dirty is written back.
    pub(super) fn of(stage: &Stage, command: &mut Command) -> Result<Self, StageError> {
        let before = stage.traffic()?;
        let begun = Instant::now();
        text(command)?;
        stage.sync()?;
        Ok(Self {
            seconds: begun.elapsed().as_secs_f64(),
            traffic: stage.traffic()? - before,
        })
    }
}
