//! Migration by indef, whose data stays in the device, compared with migration of whole files
//! through the host.
//!
//! Each run has a device, a guest and aged files of its own, and files are aged alike. A run is
//! done twice: on the device K times slower than its model, and on the same one so fast that it
//! takes no time. The second run measures the time that the guest needs by itself; in the first
//! one, K times slower, the device weighs K times as much. Elapsed times are the guest's, divided
//! by K: as measured, and with the second run's time subtracted. Work that is not measured (ageing,
//! tracing, hashing) is done on the fast device.

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use flashd::device::Device;
use guest::{Guest, Patched, Zns, ZnsOptions, ZnsSetup, standing::Session};
use serde::Serialize;
use units::Bytes;

use super::{
    Experiment, Options,
    inside::{ReadResult, WatchResult},
};

const DIR: &str = "/mnt/f2fs/aged";
const BESIDE: &str = "/mnt/f2fs/beside";
const PROFILE: &str = "/tmp/aged.profile";
const PATIENCE: Duration = Duration::from_secs(900);
/// The device takes practically no time.
const FAST: f64 = 0.001;
/// The default of `run --max-stall`.
const STALL_MS: f64 = 50.0;
/// Size of the data of the load beside the migration.
const BESIDE_BYTES: u64 = 8 << 20;
/// Time for which the load runs alone, for comparison, in the device's time.
const ALONE_S: f64 = 1.0;

/// The method of migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// `f2fs_io defrag_file` of each file
    Conventional,
    /// `indef run` with a profile
    Indef,
}

/// The cost of one migration.
#[derive(Debug, Serialize)]
pub(super) struct Measured {
    pub(super) method: Method,
    /// The engine that `indef run` reports; `f2fs-defragment` for f2fs_io, whose ioctl that is.
    pub(super) engine: String,
    pub(super) time_scale: f64,
    pub(super) bytes_of_files: u64,
    pub(super) bytes_migrated: u64,
    /// Elapsed time by the guest's clock.
    pub(super) wall_ns: u64,
    /// Busy time of all dies together, in device time.
    pub(super) die_busy_ns: u64,
    pub(super) dies: usize,
    /// Data and descriptors.
    pub(super) bus_bytes: u64,
    pub(super) moved_in_device_bytes: u64,
    pub(super) process_kib: u64,
    pub(super) page_cache_kib: u64,
    pub(super) page_cache_end_kib: u64,
    /// Time of a read before, by the guest's clock.
    pub(super) read_before_ns: u64,
    pub(super) read_after_ns: u64,
    pub(super) contents_equal: bool,
    pub(super) fsck_clean: bool,
    /// Speed of the load beside it, in bytes a second of device time: alone, and during the
    /// migration.
    pub(super) beside_alone: Option<f64>,
    pub(super) beside_during: Option<f64>,
}

/// All results of an experiment.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    pub(super) title: String,
    pub(super) profile: String,
    pub(super) kernel: String,
    pub(super) runs: Vec<Pair>,
}

/// A method's two runs.
#[derive(Debug, Serialize)]
pub(super) struct Pair {
    pub(super) modelled: Measured,
    pub(super) instant: Measured,
    /// A migration with a load beside it.
    pub(super) beside: Option<Measured>,
}

impl Pair {
    /// Elapsed device time, as measured.
    pub(super) fn elapsed_ns(&self) -> f64 {
        self.modelled.wall_ns as f64 / self.modelled.time_scale
    }

    /// Elapsed device time, without the guest's own.
    pub(super) fn net_elapsed_ns(&self) -> f64 {
        let wall = self.modelled.wall_ns.saturating_sub(self.instant.wall_ns);
        wall as f64 / self.modelled.time_scale
    }

    /// Device time of a read, as measured and without the guest's own.
    pub(super) fn read_ns(&self, of: impl Fn(&Measured) -> u64) -> (f64, f64) {
        let (wall, own) = (of(&self.modelled), of(&self.instant));
        let scale = self.modelled.time_scale;
        (wall as f64 / scale, wall.saturating_sub(own) as f64 / scale)
    }

    /// The mean utilization of the dies; infinite where no time has elapsed.
    pub(super) fn utilization(&self, elapsed_ns: f64) -> f64 {
        self.modelled.die_busy_ns as f64 / self.modelled.dies as f64 / elapsed_ns
    }
}

pub(super) fn run(experiment: &Experiment, options: &Options) -> Result<Outcome> {
    let scale = experiment.time_scale;
    let mut runs = Vec::new();
    let mut kernel = String::new();
    for &method in Method::value_variants() {
        if options.only.is_some_and(|only| only != method) {
            continue;
        }
        let mut measure = |scale: f64, beside: bool| -> Result<Measured> {
            eprintln!("experiment: {method:?}, time scale {scale}, load beside it: {beside}");
            let run = Run::start(experiment, options, scale)?;
            kernel.clone_from(&run.kernel);
            run.measure(method, beside)
        };
        runs.push(Pair {
            modelled: measure(scale, false)?,
            instant: measure(FAST, false)?,
            beside: options.beside.then(|| measure(scale, true)).transpose()?,
        });
    }
    Ok(Outcome {
        title: experiment.title.clone(),
        profile: experiment.profile.clone(),
        kernel,
        runs,
    })
}

/// One device, one guest, aged files.
struct Run<'a> {
    experiment: &'a Experiment,
    options: &'a Options,
    /// The device's time scale while it is measured.
    scale: f64,
    zns: Zns,
    kernel: String,
    session: Session,
    program: String,
}

impl<'a> Run<'a> {
    fn start(experiment: &'a Experiment, options: &'a Options, scale: f64) -> Result<Self> {
        let zns = Zns::new(ZnsOptions {
            profile: experiment.profile.clone(),
            time_scale: FAST,
            ..ZnsOptions::default()
        })?;
        let guest = Guest::with(options.kernel)?
            .with_patched(Patched::F2fs)?
            .cpus(options.cpus)
            .copy("f2fs_io");
        let kernel = guest.kernel().version().to_owned();
        let session = Session::start(guest.zns(&zns, ZnsSetup::Mounted)?, Arc::default())?
            .copy(&options.indef);
        let bytes = match options.data {
            Some(bytes) => bytes.get(),
            None => experiment.data.parse::<Bytes>()?.get(),
        };
        let run = Self {
            experiment,
            options,
            scale,
            zns,
            kernel,
            session,
            program: path(&std::env::current_exe()?)?,
        };
        let io_size: Bytes = experiment.io_size.parse()?;
        let ahead = io_size.get() >> 10;
        run.shell(&format!(
            "for disk in /sys/block/nvme*; do echo {ahead} >$disk/queue/read_ahead_kb; done"
        ))?;
        let ageing = serde_json::to_value(experiment.ageing)?;
        let ageing = ageing.as_str().context("an ageing has a name")?.to_owned();
        run.inside(&["age", &ageing, DIR, &bytes.to_string()])?;
        Ok(run)
    }

    fn measure(self, method: Method, beside: bool) -> Result<Measured> {
        let hash = self.hash()?;
        let command = match method {
            Method::Conventional => self.conventional(),
            Method::Indef => self.indef()?,
        };
        if beside {
            self.inside(&["age", "varmail", BESIDE, &BESIDE_BYTES.to_string()])?;
        }
        self.pace(self.scale)?;
        let before = self.read()?;
        let mut alone = None;
        if beside {
            let pause = format!("sleep {}", ALONE_S * self.scale);
            let watched = self.watch(true, &["sh".into(), "-c".into(), pause])?;
            alone = Some(self.rate(&watched));
        }
        let earlier = self.flashd()?.stats().model;
        let watched = self.watch(beside, &command)?;
        let during = self.flashd()?.stats().model.since(&earlier);
        if watched.status != 0 {
            bail!("{command:?}: {}\n{}", watched.status, watched.stderr);
        }
        let after = self.read()?;
        self.pace(FAST)?;
        let contents_equal = hash == self.hash()?;
        let check = "umount $ZNS_MOUNT && fsck.f2fs --dry-run $ZNS_CONVENTIONAL";
        let checked = self.shell(check)?;
        let (engine, migrated) = match method {
            Method::Conventional => ("f2fs-defragment".to_owned(), before.bytes),
            Method::Indef => told(&watched.stdout)?,
        };
        let measured = Measured {
            method,
            engine,
            time_scale: self.scale,
            bytes_of_files: before.bytes,
            bytes_migrated: migrated,
            wall_ns: watched.wall_ns,
            die_busy_ns: during.dies.iter().map(|die| die.busy_ns).sum(),
            dies: during.dies.len(),
            bus_bytes: during.host_read_bytes
                + during.host_written_bytes
                // Two addresses of 4 bytes for each block of 4 KiB.
                + during.migrated_bytes / 4096 * 8,
            moved_in_device_bytes: during.migrated_bytes,
            process_kib: watched.process_kib,
            page_cache_kib: watched.page_cache_kib,
            page_cache_end_kib: watched.page_cache_end_kib,
            read_before_ns: before.wall_ns,
            read_after_ns: after.wall_ns,
            contents_equal,
            fsck_clean: checked.contains("[Ok..]") && !checked.contains("[Fail]"),
            beside_alone: alone,
            beside_during: beside.then(|| self.rate(&watched)),
        };
        self.session.end()?;
        Ok(measured)
    }

    /// The command of an administrator: whole files one after the other.
    fn conventional(&self) -> Vec<String> {
        let script = format!(
            "for file in {DIR}/*; do f2fs_io defrag_file 0 $(stat -c %s $file) $file >/dev/null || exit; done; sync"
        );
        vec!["sh".into(), "-c".into(), script]
    }

    /// The command with a profile of a program that reads all files.
    fn indef(&self) -> Result<Vec<String>> {
        let indef = path(&self.options.indef)?;
        let reader = format!("cat {DIR}/* >/dev/null");
        self.run(&[
            &indef,
            "trace",
            "--quiet",
            "--max-overhead",
            "off",
            "-o",
            PROFILE,
            "--",
            "sh",
            "-c",
            &reader,
        ])?;
        let truncate = self.experiment.truncate.to_string();
        let size = &self.experiment.io_size;
        // In the guest's time; the same for a device that takes none, so that steps are alike.
        let stall = (STALL_MS * self.experiment.time_scale) as u64;
        let stall = stall.clamp(1, 60_000).to_string();
        let words = [
            &indef,
            "run",
            "--json",
            "--max-stall",
            &stall,
            "--profile",
            PROFILE,
            "--ignore-times",
            "--truncate",
            &truncate,
            "--io-size",
            size,
            "--readahead",
            size,
            DIR,
        ];
        Ok(words.map(str::to_owned).to_vec())
    }

    fn flashd(&self) -> Result<&Arc<Device>> {
        self.zns.flashd().context("the device is flashd")
    }

    /// Set the speed of the device.
    fn pace(&self, scale: f64) -> Result<()> {
        let set = self.flashd()?.set_time_scale(scale);
        set.with_context(|| format!("{scale} is no time scale"))
    }

    /// Bytes a second of device time.
    fn rate(&self, watched: &WatchResult) -> f64 {
        watched.beside_bytes as f64 * 1e9 * self.scale / watched.wall_ns.max(1) as f64
    }

    /// A hash of all files' contents.
    fn hash(&self) -> Result<String> {
        self.inside(&["hash", DIR])
    }

    fn read(&self) -> Result<ReadResult> {
        let said = self.inside(&["read", DIR])?;
        serde_json::from_str(&said).context(said)
    }

    fn watch(&self, beside: bool, command: &[String]) -> Result<WatchResult> {
        let mut words = vec!["watch"];
        if beside {
            words.extend(["--beside", BESIDE]);
        }
        words.push("--");
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

/// Engine and bytes of a `run --json` document.
fn told(document: &str) -> Result<(String, u64)> {
    let document: serde_json::Value =
        serde_json::from_str(document).context("indef's result is not as written")?;
    let engine = document["files"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|file| file["status"] == "moved")
        .and_then(|file| file["engine"].as_str())
        .unwrap_or("none");
    let bytes = document["totals"]["bytes_relocated"].as_u64();
    Ok((engine.to_owned(), bytes.context("no bytes_relocated")?))
}

fn path(path: &Path) -> Result<String> {
    let absolute = std::path::absolute(path)?;
    let text = absolute.to_str().context("a path that is no UTF-8")?;
    Ok(text.to_owned())
}
