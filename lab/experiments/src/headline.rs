//! InDeF's Fig 12 to 16: ways of migrating, each on a copy of one aged SSD.
//!
//! A guest ages the files, has `indef trace` see a program that reads them all, and ends. For each way a new
//! guest with a copy of that SSD migrates. What is reported comes from three sources, and none of them is a
//! guest's clock:
//!
//! - **places** of all blocks, before and after: data moved, and contents, which are read from these places;
//! - **reads**: the reads of that program from these places, in the model ([`Reader`]);
//! - **commands**: those that the device got while a way migrated, done again in the model ([`Recorded`]):
//!   elapsed time and busy chips, alone and beside a load ([`Load`]). The device is slower than its model by
//!   the time scale while they are recorded, so that commands that the host submits together overlap.
//!
//! Memory is the guest's own report.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use flash_model::{Command, Zone};
use flashd::device::{Device, LoggedCommand};
use guest::{Guest, Patched, Zns, ZnsOptions, ZnsSetup, standing::Session};
use serde::Serialize;
use units::Bytes;

use super::{
    Experiment, Options,
    ageing::{Aged, Plan},
    image::{self, FAST, Ssd},
    inside::{Memory, WatchResult},
    layout::{BLOCK, Layout},
    virtual_time::{Elapsed, Load, Machine, Reader, Recorded, ZONED},
    way::{Commands, Way, said},
};

const DIR: &str = "/mnt/f2fs/aged";
const PATIENCE: Duration = Duration::from_secs(1800);
/// Longest part of a migration beside a load, and the time of the load alone.
const BESIDE_NS: u64 = 2_000_000_000;

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

/// What a migration costs, by the model.
#[derive(Debug, Serialize)]
pub(super) struct Cost {
    pub(super) commands: usize,
    pub(super) elapsed_ns: u64,
    pub(super) busy_pct: f64,
    /// Program time × moved pages ÷ chips: no way is faster.
    pub(super) bound_ns: f64,
    /// Data between host and device, and lists of moves.
    pub(super) bus_bytes: u64,
    pub(super) migrated_bytes: u64,
    pub(super) host_written_bytes: u64,
    pub(super) host_read_bytes: u64,
    pub(super) memory: Memory,
    /// Bytes of a load in a second of the device: alone, and beside the migration.
    pub(super) load_alone: f64,
    pub(super) load_beside: f64,
    /// Elapsed time of the migration beside the load; a longer one is reckoned from its first part.
    pub(super) beside_ns: f64,
    /// By the guest's clock, for those who wonder; no measure of the device.
    pub(super) guest_wall_ns: u64,
}

/// A recorded migration.
struct Recording {
    zones: Vec<Zone>,
    commands: Vec<LoggedCommand>,
    watched: WatchResult,
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
    let (aged_ssd, aged, kernel) = bench.age()?;
    let before = bench.state(&aged_ssd.layout, &aged_ssd.zones)?;
    eprintln!(
        "experiment: aged: {} in {} extents, {:.1} % of it contiguous in requests of {}",
        Bytes(before.bytes),
        before.extents,
        before.contiguous_pct,
        bench.io_size
    );
    let mut ways = Vec::new();
    for (way, is_recorded) in bench.ways() {
        eprintln!("experiment: {way}");
        let measured = bench.measure(&aged_ssd, way, is_recorded);
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

/// What all ways share.
struct Bench<'a> {
    experiment: &'a Experiment,
    options: &'a Options,
    plan: Plan,
    ssd: Ssd,
    io_size: Bytes,
    /// The image files, and what guests share.
    folder: tempfile::TempDir,
}

impl<'a> Bench<'a> {
    fn new(experiment: &'a Experiment, options: &'a Options) -> Result<Self> {
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

    /// The ways, and whether their cost is measured: InDeF's Fig 12, 14 to 16, then Fig 13.
    fn ways(&self) -> Vec<(Way, bool)> {
        let truncate = self.experiment.truncate;
        let mut ways = vec![
            (Way::Conventional, true),
            (Way::FragPicker, true),
            (Way::Indef { truncate }, true),
            (Way::Copy { truncate }, true),
        ];
        let others = self
            .experiment
            .sweep
            .iter()
            .filter(|other| **other != truncate);
        ways.extend(others.map(|truncate| {
            (
                Way::Indef {
                    truncate: *truncate,
                },
                false,
            )
        }));
        let only = &self.options.only;
        ways.retain(|(way, _)| only.is_empty() || only.iter().any(|name| name == way.name()));
        ways
    }

    fn share(&self) -> PathBuf {
        self.folder.path().join("share")
    }

    /// Age, trace, and look.
    fn age(&self) -> Result<(AgedSsd, Aged, String)> {
        std::fs::create_dir_all(self.share())?;
        let image = self.folder.path().join("aged");
        let room = Room::enter(self, &image, ZnsSetup::Mounted, false)?;
        let kernel = room.kernel.clone();
        let plan = self.plan;
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
        let indef = path(&self.options.indef)?;
        let reader = format!("cat {DIR}/* >/dev/null");
        room.shell("echo 3 >/proc/sys/vm/drop_caches")?;
        let trace = "trace --quiet --max-overhead off -o /tmp/aged.profile -- sh -c";
        let trace: Vec<&str> = trace.split(' ').collect();
        room.run(&[&[indef.as_str()], trace.as_slice(), &[reader.as_str()]].concat())?;
        room.shell("cp /tmp/aged.profile /share/")?;
        let layout = room.leave()?;
        let device = self.ssd.open(&image)?;
        let aged_ssd = AgedSsd {
            hash: image::hash(&device, &layout)?,
            zones: device.zones(ZONED),
            layout,
            image,
        };
        Ok((aged_ssd, aged, kernel))
    }

    fn state(&self, layout: &Layout, zones: &[Zone]) -> Result<State> {
        let io_bytes = self.io_size.get();
        let mut machine = Machine::new(&self.ssd.profile, zones, self.ssd.conventional)?;
        let read = machine.run(&mut [&mut Reader::of(layout, io_bytes)])?;
        Ok(State {
            bytes: layout.bytes(),
            extents: layout.extents(),
            contiguous_pct: layout.contiguous_percent(io_bytes),
            dolf: layout.dolf_mean(io_bytes),
            read_ns: read.ns,
        })
    }

    fn measure(&self, aged: &AgedSsd, way: Way, is_recorded: bool) -> Result<Measured> {
        let image = image::copy(&aged.image, self.folder.path().join("copy"))?;
        let standard_only = matches!(way, Way::Copy { .. });
        let room = Room::enter(self, &image, ZnsSetup::Kept, standard_only)?;
        room.shell("cp /share/aged.profile /tmp/; sync; echo 3 >/proc/sys/vm/drop_caches")?;
        let time_scale = if is_recorded {
            self.experiment.time_scale
        } else {
            FAST
        };
        let recording = room.migrate(way, time_scale)?;
        let engine = match way {
            Way::Conventional => "f2fs-defragment".to_owned(),
            _ => said(&recording.watched.stdout)?.0,
        };
        let layout = room.leave()?;
        let device = self.ssd.open(&image)?;
        ensure!(
            image::hash(&device, &layout)? == aged.hash,
            "the contents have changed"
        );
        let zones = device.zones(ZONED);
        drop(device);
        std::fs::remove_file(&image)?;
        let moved_bytes = moved(&aged.layout, &layout);
        let cost = || self.cost(&recording, &aged.layout, moved_bytes);
        Ok(Measured {
            way,
            engine,
            moved_bytes,
            after: self.state(&layout, &zones)?,
            cost: is_recorded.then(cost).transpose()?,
        })
    }

    fn cost(&self, recording: &Recording, layout: &Layout, moved_bytes: u64) -> Result<Cost> {
        let machine = || Machine::new(&self.ssd.profile, &recording.zones, self.ssd.conventional);
        let alone = machine()?.run(&mut [&mut Recorded::new(&recording.commands)])?;
        let (load_alone, load_beside, beside_ns) = self.load(recording, layout)?;
        let Elapsed { ns, stats } = &alone;
        let pages = moved_bytes as f64 / self.ssd.page_bytes as f64;
        Ok(Cost {
            commands: recording.commands.len(),
            elapsed_ns: *ns,
            busy_pct: alone.busy_percent(),
            bound_ns: self.ssd.program_ns * pages / stats.dies.len() as f64,
            bus_bytes: stats.host_read_bytes
                + stats.host_written_bytes
                + list_bytes(&recording.commands),
            migrated_bytes: stats.migrated_bytes,
            host_written_bytes: stats.host_written_bytes,
            host_read_bytes: stats.host_read_bytes,
            memory: recording.watched.memory,
            load_alone,
            load_beside,
            beside_ns,
            guest_wall_ns: recording.watched.wall_ns,
        })
    }

    /// The load's bytes a second, alone and beside the migration, and the migration's time beside it.
    fn load(&self, recording: &Recording, layout: &Layout) -> Result<(f64, f64, f64)> {
        let io_bytes = self.io_size.get();
        let rate =
            |load: &Load<'_>, elapsed: &Elapsed| load.bytes_done as f64 * 1e9 / elapsed.ns as f64;
        let machine = || Machine::new(&self.ssd.profile, &recording.zones, self.ssd.conventional);
        let mut device = machine()?;
        let mut load = Load::new(layout, io_bytes, device.zones_of_load());
        let elapsed = device.run_until(&mut [&mut load], BESIDE_NS)?;
        let alone = rate(&load, &elapsed);
        let mut device = machine()?;
        let mut load = Load::new(layout, io_bytes, device.zones_of_load());
        let mut migration = Recorded::new(&recording.commands);
        let elapsed = device.run_until(&mut [&mut migration, &mut load], BESIDE_NS)?;
        let beside_ns = elapsed.ns as f64 / migration.progress();
        Ok((alone, rate(&load, &elapsed), beside_ns))
    }
}

/// Bytes of the lists of moves and of sources that the host has sent.
fn list_bytes(commands: &[LoggedCommand]) -> u64 {
    let bytes = |logged: &LoggedCommand| match logged.command.as_command() {
        // Two addresses of 4 bytes for each block (In_Device_Defragment).
        Command::Migrate { moves } => moves.iter().map(|it| it.len / BLOCK * 8).sum(),
        // 32 bytes for each source (NVM Command Set, Copy, format 0h).
        Command::Copy { sources, .. } => sources.len() as u64 * 32,
        _ => 0,
    };
    commands.iter().map(bytes).sum()
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

/// A guest with an SSD.
struct Room<'a> {
    bench: &'a Bench<'a>,
    device: Arc<Device>,
    // The guest ends before its SSD does.
    session: Session,
    _zns: Zns,
    kernel: String,
    program: String,
}

impl<'a> Room<'a> {
    fn enter(
        bench: &'a Bench<'a>,
        image: &Path,
        setup: ZnsSetup,
        standard_only: bool,
    ) -> Result<Self> {
        let device = bench.ssd.open(image)?;
        let zns = Zns::serving(
            Arc::clone(&device),
            ZnsOptions {
                standard_only,
                ..ZnsOptions::default()
            },
        )?;
        let options = bench.options;
        let guest = Guest::with(options.kernel)?
            .with_patched(Patched::F2fs)?
            .cpus(options.cpus)
            .copy("f2fs_io")
            .share(&bench.share());
        let kernel = guest.kernel().version().to_owned();
        let session = Session::start(guest.zns(&zns, setup)?, Arc::default())?.copy(&options.indef);
        let room = Self {
            bench,
            device,
            session,
            _zns: zns,
            kernel,
            program: path(&std::env::current_exe()?)?,
        };
        let ahead = bench.io_size.get() >> 10;
        room.shell(&format!(
            "for disk in /sys/block/nvme*; do echo {ahead} >$disk/queue/read_ahead_kb; done"
        ))?;
        if setup == ZnsSetup::Kept {
            // Only the way moves data. (F2FS cannot be mounted on zones without its collector.)
            room.shell(
                "cd /sys/fs/f2fs/$(basename $(readlink -f $ZNS_CONVENTIONAL)) && \
                 for time in gc_no_gc_sleep_time gc_max_sleep_time gc_min_sleep_time; do \
                 echo 3600000 >$time; done",
            )?;
        }
        Ok(room)
    }

    /// Migrate, and record the device's commands.
    fn migrate(&self, way: Way, time_scale: f64) -> Result<Recording> {
        let commands = Commands {
            indef: &path(&self.bench.options.indef)?,
            dir: DIR,
            profile: "/tmp/aged.profile",
            io_size: self.bench.io_size,
            time_scale: self.bench.experiment.time_scale,
        };
        let command = commands.of(way);
        self.pace(time_scale)?;
        let zones = self.device.zones(ZONED);
        self.device.begin_command_log();
        let watched = self.watch(&command)?;
        let commands = self.device.take_command_log();
        self.pace(FAST)?;
        if watched.status != 0 {
            bail!(
                "{command:?}: {}\n{}{}",
                watched.status,
                watched.stderr,
                watched.stdout
            );
        }
        Ok(Recording {
            zones,
            commands,
            watched,
        })
    }

    /// Look where the files lie, unmount and check F2FS, and end the guest.
    fn leave(self) -> Result<Layout> {
        self.inside(&["layout", DIR, "/share/layout"])?;
        let checked = self.shell("umount $ZNS_MOUNT && fsck.f2fs --dry-run $ZNS_CONVENTIONAL")?;
        ensure!(
            checked.contains("[Ok..]") && !checked.contains("[Fail]"),
            "fsck.f2fs: {checked}"
        );
        let layout = std::fs::read(self.bench.share().join("layout"))?;
        self.session.end()?;
        self.device.flush_all()?;
        let layout: Layout = serde_json::from_slice(&layout)?;
        layout.in_namespace(self.bench.ssd.conventional.get())
    }

    /// Set the speed of the device.
    fn pace(&self, scale: f64) -> Result<()> {
        let set = self.device.set_time_scale(scale);
        set.with_context(|| format!("{scale} is no time scale"))
    }

    fn watch(&self, command: &[String]) -> Result<WatchResult> {
        let mut words = vec!["watch", "--"];
        words.extend(command.iter().map(String::as_str));
        let said = self.inside(&words)?;
        serde_json::from_str(&said).context(said)
    }

    fn inside(&self, words: &[&str]) -> Result<String> {
        let words = [&[self.program.as_str(), "inside"], words].concat();
        self.run(&words)
    }

    fn shell(&self, script: &str) -> Result<String> {
        self.run(&["sh", "-c", script])
    }

    fn run(&self, words: &[&str]) -> Result<String> {
        let said = self.session.run(words, PATIENCE)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if said.status != 0 {
            bail!(
                "in the guest, {words:?} ended with status {}: {}{}",
                said.status,
                text(&said.stderr),
                text(&said.stdout)
            );
        }
        Ok(text(&said.stdout))
    }
}

fn path(path: &Path) -> Result<String> {
    let absolute = std::path::absolute(path)?;
    let text = absolute.to_str().context("a path that is no UTF-8")?;
    Ok(text.to_owned())
}

impl Measured {
    /// How much faster reads are afterwards, in percent.
    pub(super) fn read_gain_pct(&self, outcome: &Outcome) -> f64 {
        100.0 * (outcome.before.read_ns as f64 / self.after.read_ns as f64 - 1.0)
    }
}

impl Cost {
    /// The change of the load's speed, in percent.
    pub(super) fn load_change_pct(&self) -> f64 {
        100.0 * (self.load_beside / self.load_alone - 1.0)
    }
}
