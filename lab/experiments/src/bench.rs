//! Common ground of all ways of an experiment, and the files as they lie before and after.

use std::path::PathBuf;

use anyhow::Result;
use flash_model::Zone;
use serde::Serialize;
use units::Bytes;

use super::{
    ageing::Plan,
    experiment::{Experiment, Options},
    image::Ssd,
    layout::Layout,
    virtual_time::{Machine, Reader},
};

/// The files as they lie.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct State {
    pub(super) bytes: u64,
    pub(super) extents: usize,
    /// Percentage of the data in requests of one piece.
    pub(super) contiguous_pct: f64,
    /// Mean number of pieces of a request.
    pub(super) dolf: f64,
    /// Time to read all of it, by the model.
    pub(super) read_ns: u64,
}

/// The common ground of all ways.
pub(super) struct Bench<'a> {
    pub(super) experiment: &'a Experiment,
    pub(super) options: &'a Options,
    pub(super) plan: Plan,
    pub(super) ssd: Ssd,
    pub(super) io_size: Bytes,
    /// The image files, and what guests share.
    pub(super) folder: tempfile::TempDir,
}

impl<'a> Bench<'a> {
    pub(super) fn new(experiment: &'a Experiment, options: &'a Options) -> Result<Self> {
        let plan = experiment.plan(options.trial);
        Ok(Self {
            experiment,
            options,
            plan,
            ssd: Ssd::new(&experiment.profile, plan)?,
            io_size: experiment.io_size.parse()?,
            folder: tempfile::Builder::new()
                .prefix("indef-lab-")
                .tempdir_in(guest::Cache::of_project().folder())?,
        })
    }

    /// The folder that guests have as `/share`.
    pub(super) fn share(&self) -> PathBuf {
        self.folder.path().join("share")
    }

    /// The model of the SSD, with its zones like these.
    pub(super) fn machine(&self, zones: &[Zone]) -> Result<Machine> {
        Machine::new(&self.ssd.profile, zones, self.ssd.conventional)
    }

    pub(super) fn state(&self, layout: &Layout, zones: &[Zone]) -> Result<State> {
        let io_bytes = self.io_size.get();
        let read = self
            .machine(zones)?
            .run(&mut [&mut Reader::of(layout, io_bytes)])?;
        Ok(State {
            bytes: layout.bytes(),
            extents: layout.extents(),
            contiguous_pct: layout.contiguous_percent(io_bytes),
            dolf: layout.dolf_mean(io_bytes),
            read_ns: read.ns,
        })
    }
}
