//! InDeF's Fig 12 to 16: ways of migrating, each on a copy of one aged SSD.
//!
//! A guest ages the files, has `indef trace` see a program that reads them all, and ends. For each way a new
//! guest with a copy of that SSD migrates. What is reported comes from three sources, and none of them is a
//! guest's clock:
//!
//! - **places** of all blocks, before and after: data moved, and contents, which are read from these places;
//! - **reads**: the reads of that program from these places, in the model ([`Bench::state`]);
//! - **commands**: those that the device got while a way migrated, done again in the model ([`Migration::cost`]):
//!   elapsed time and busy chips, alone and beside a load. The device is slower than its model by
//!   the time scale while they are recorded, so that commands that the host submits together overlap.
//!
//! Memory is the guest's own report.

use std::sync::Arc;

use anyhow::{Context, Result};
use serde::Serialize;
use units::{Bytes, Nanos};

use super::{
    aged::AgedSsd,
    ageing::Aged,
    bench::{Bench, Setup, State},
    experiment::{Experiment, Options},
    image::Ssd,
    migration::Migration,
    way::Way,
};

/// All results of an experiment.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    pub(super) title: String,
    pub(super) profile: String,
    pub(super) kernel: String,
    pub(super) factor: u64,
    pub(super) time_scale: f64,
    pub(super) aged: Aged,
    pub(super) before: State,
    pub(super) ways: Vec<Migration>,
}

pub(super) fn run(experiment: &Experiment, options: &Options) -> Result<Outcome> {
    let plan = experiment.plan(options.trial);
    let bench = Bench::new(Setup {
        ageing: plan.ageing(),
        writes: plan.writes,
        ssd: Ssd::new(&experiment.profile, plan.factor, plan.zones())?,
        io_size: experiment.io_size.parse()?,
        time_scale: experiment.time_scale,
        kernel: options.kernel,
        cpus: options.cpus,
        memory_mib: options.memory,
        indef: options.indef.clone(),
        stop: Arc::default(),
    })?;
    let ssd = AgedSsd::obtain(&bench, options)?;
    let before = bench.state(&ssd.notes.layout, &ssd.zones)?;
    eprintln!(
        "experiment: {:?}; aged: {} in {} extents, {:.1} % of it contiguous in requests of {}",
        ssd.notes.aged,
        Bytes(before.bytes),
        before.extents,
        before.contiguous_pct,
        bench.setup.io_size
    );
    let mut measured = Vec::new();
    for (way, is_recorded) in ways(experiment, options) {
        eprintln!("experiment: {way}");
        let one =
            Migration::measure(&bench, &ssd, way, is_recorded).with_context(|| way.to_string())?;
        eprintln!(
            "experiment: {way}: {} moved, {} for reading them",
            Bytes(one.moved_bytes),
            Nanos(one.after.read_ns)
        );
        measured.push(one);
    }
    Ok(Outcome {
        title: experiment.title.clone(),
        profile: experiment.profile.clone(),
        kernel: ssd.notes.kernel,
        factor: plan.factor,
        time_scale: experiment.time_scale,
        aged: ssd.notes.aged,
        before,
        ways: measured,
    })
}

/// The ways, and whether their cost is measured: InDeF's Fig 12, 14 to 16, then Fig 13.
fn ways(experiment: &Experiment, options: &Options) -> Vec<(Way, bool)> {
    let truncate = experiment.truncate;
    let mut ways = vec![
        (Way::Conventional, true),
        (Way::FragPicker, true),
        (Way::Indef { truncate }, true),
        (Way::Copy { truncate }, true),
    ];
    let others = experiment.sweep.iter().filter(|other| **other != truncate);
    ways.extend(others.map(|truncate| {
        (
            Way::Indef {
                truncate: *truncate,
            },
            false,
        )
    }));
    let only = &options.only;
    let is_wanted = |way: Way| only.is_empty() || only.iter().any(|name| name == way.name());
    ways.retain(|(way, _)| !options.age_only && is_wanted(*way));
    ways
}
