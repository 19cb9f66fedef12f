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

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use flash_model::Zone;
use guest::ZnsSetup;
use serde::Serialize;
use units::Bytes;

use super::{
    Experiment, Options,
    ageing::Aged,
    bench::{Bench, State},
    cost::Cost,
    image::{self, FAST},
    layout::{BLOCK, Layout},
    room::{DIR, Room, path},
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

/// The aged SSD.
struct AgedSsd {
    image: PathBuf,
    layout: Layout,
    hash: String,
    zones: Vec<Zone>,
}

pub(super) fn run(experiment: &Experiment, options: &Options) -> Result<Outcome> {
    let bench = Bench::new(experiment, options)?;
    let (aged_ssd, aged, kernel) = age(&bench)?;
    let before = bench.state(&aged_ssd.layout, &aged_ssd.zones)?;
    eprintln!(
        "experiment: aged: {} in {} extents, {:.1} % of it contiguous in requests of {}",
        Bytes(before.bytes),
        before.extents,
        before.contiguous_pct,
        bench.io_size
    );
    let mut ways = Vec::new();
    for (way, is_recorded) in ways(experiment, options) {
        eprintln!("experiment: {way}");
        let measured = measure(&bench, &aged_ssd, way, is_recorded);
        ways.push(measured.with_context(|| way.to_string())?);
    }
    Ok(Outcome {
        title: experiment.title.clone(),
        profile: experiment.profile.clone(),
        kernel,
        factor: bench.plan.factor,
        time_scale: experiment.time_scale,
        aged,
        before,
        ways,
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
    ways.retain(|(way, _)| only.is_empty() || only.iter().any(|name| name == way.name()));
    ways
}

/// Age, trace, and look.
fn age(bench: &Bench<'_>) -> Result<(AgedSsd, Aged, String)> {
    std::fs::create_dir_all(bench.share())?;
    let image = bench.folder.path().join("aged");
    let room = Room::enter(bench, &image, ZnsSetup::Mounted, false)?;
    let kernel = room.kernel.clone();
    let plan = bench.plan;
    let (factor, rounds) = (plan.factor.to_string(), plan.rounds.to_string());
    let (reads, seed) = (plan.reads_percent.to_string(), plan.seed.to_string());
    let mut words = vec![
        "age",
        plan.personality.name(),
        DIR,
        "--factor",
        &factor,
        "--rounds",
        &rounds,
        "--reads",
        &reads,
        "--seed",
        &seed,
    ];
    words.extend(plan.is_trial.then_some("--trial"));
    let said = room.inside(&words)?;
    let aged: Aged = serde_json::from_str(&said).context(said)?;
    eprintln!("experiment: {aged:?}");
    let indef = path(&bench.options.indef)?;
    let reader = format!("cat {DIR}/* >/dev/null");
    room.shell("echo 3 >/proc/sys/vm/drop_caches")?;
    let trace = "trace --quiet --max-overhead off -o /tmp/aged.profile -- sh -c";
    let trace: Vec<&str> = trace.split(' ').collect();
    room.run(&[&[indef.as_str()], trace.as_slice(), &[reader.as_str()]].concat())?;
    room.shell("cp /tmp/aged.profile /share/")?;
    let layout = room.leave()?;
    let device = bench.ssd.open(&image)?;
    let aged_ssd = AgedSsd {
        hash: image::hash(&device, &layout)?,
        zones: device.zones(ZONED),
        layout,
        image,
    };
    Ok((aged_ssd, aged, kernel))
}

fn measure(bench: &Bench<'_>, aged: &AgedSsd, way: Way, is_recorded: bool) -> Result<Measured> {
    let image = image::copy(&aged.image, bench.folder.path().join("copy"))?;
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
        image::hash(&device, &layout)? == aged.hash,
        "the contents have changed"
    );
    let zones = device.zones(ZONED);
    drop(device);
    std::fs::remove_file(&image)?;
    let moved_bytes = moved(&aged.layout, &layout);
    let cost = || Cost::of(bench, &recording, &aged.layout, moved_bytes);
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
