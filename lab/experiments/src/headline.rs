//! InDeF's Fig 12 to 16: ways of migrating, each on a copy of one aged SSD.
//!
//! A guest ages the files, has `indef trace` see a program that reads them all, and ends. For each way a new
//! guest with a copy of that SSD migrates. What is reported comes from three sources, and none of them is a
//! guest's clock:
//!
//! - **places** of all blocks, before and after: data moved, and contents, which are read from these places;
//! - **reads**: the reads of that program from these places, in the model ([`Bench::state`]);
//! - **commands**: those that the device got while a way migrated, done again in the model ([`Cost`]):
//!   elapsed time and busy chips, alone and beside a load. The device is slower than its model by
//!   the time scale while they are recorded, so that commands that the host submits together overlap.
//!
//! Memory is the guest's own report.

use anyhow::{Context, Result, ensure};
use guest::ZnsSetup;
use serde::Serialize;
use units::{Bytes, Nanos};

use super::{
    aged::AgedSsd,
    ageing::Aged,
    bench::{Bench, State},
    cost::Cost,
    experiment::{Experiment, Options},
    image::{self, FAST},
    layout::{BLOCK, Layout},
    room::Room,
    virtual_time::ZONED,
    way::{Way, engine},
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
    pub(super) ways: Vec<Measured>,
}

/// A way, and what it came to.
#[derive(Debug, Serialize)]
pub(super) struct Measured {
    pub(super) way: Way,
    /// The engine that `indef run` reports; `f2fs-defragment` for f2fs_io, whose ioctl that is.
    pub(super) engine: String,
    /// Bytes of files that lie elsewhere afterwards.
    pub(super) moved_bytes: u64,
    pub(super) after: State,
    /// The migration itself, where it was recorded.
    pub(super) cost: Option<Cost>,
}

pub(super) fn run(experiment: &Experiment, options: &Options) -> Result<Outcome> {
    let bench = Bench::new(experiment, options)?;
    let ssd = AgedSsd::obtain(&bench)?;
    let before = bench.state(&ssd.notes.layout, &ssd.zones)?;
    eprintln!(
        "experiment: aged: {} in {} extents, {:.1} % of it contiguous in requests of {}",
        Bytes(before.bytes),
        before.extents,
        before.contiguous_pct,
        bench.io_size
    );
    let mut measured = Vec::new();
    for (way, is_recorded) in ways(experiment, options) {
        eprintln!("experiment: {way}");
        let one = measure(&bench, &ssd, way, is_recorded).with_context(|| way.to_string())?;
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
        factor: bench.plan.factor,
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

fn measure(bench: &Bench<'_>, ssd: &AgedSsd, way: Way, is_recorded: bool) -> Result<Measured> {
    let image = image::copy(&ssd.image, bench.folder.path().join("copy"))?;
    let standard_only = matches!(way, Way::Copy { .. });
    let room = Room::enter(bench, &image, ZnsSetup::Kept, standard_only)?;
    room.shell("cp /share/aged.profile /tmp/; sync; echo 3 >/proc/sys/vm/drop_caches")?;
    let time_scale = if is_recorded {
        bench.experiment.time_scale
    } else {
        FAST
    };
    let recording = room.migrate(way, time_scale)?;
    let engine = match way {
        Way::Conventional => "f2fs-defragment".to_owned(),
        _ => engine(&recording.watched.stdout)?,
    };
    let layout = room.leave()?;
    let device = bench.ssd.open(&image)?;
    ensure!(
        image::hash(&device, &layout)? == ssd.hash,
        "the contents have changed"
    );
    let zones = device.zones(ZONED);
    drop(device);
    std::fs::remove_file(&image)?;
    let before = &ssd.notes.layout;
    let moved_bytes = moved(before, &layout);
    let cost = || Cost::of(bench, &recording, before, moved_bytes);
    Ok(Measured {
        way,
        engine,
        moved_bytes,
        after: bench.state(&layout, &zones)?,
        cost: is_recorded.then(cost).transpose()?,
    })
}

/// Bytes of files that lie elsewhere.
fn moved(before: &Layout, after: &Layout) -> u64 {
    let places = |layout: &Layout| -> Vec<u64> {
        let files = layout.files.iter().flat_map(|file| &file.extents);
        files
            .flat_map(|extent| (0..extent.bytes / BLOCK).map(|block| extent.place + block * BLOCK))
            .collect()
    };
    let (before, after) = (places(before), places(after));
    let elsewhere = before
        .iter()
        .zip(&after)
        .filter(|(before, after)| before != after);
    elsewhere.count() as u64 * BLOCK
}

impl Measured {
    /// How much faster reads are afterwards, in percent.
    pub(super) fn read_gain_pct(&self, outcome: &Outcome) -> f64 {
        100.0 * (outcome.before.read_ns as f64 / self.after.read_ns as f64 - 1.0)
    }
}
