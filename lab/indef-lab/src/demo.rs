//! The laboratory's part of `indef demo --zns`: F2FS on a zoned SSD, in a virtual machine.
//!
//! indef starts this program, reads one [`Said`] per line, and shows it. The SSD is flashd, in this
//! process; the guest runs one of Debian's kernels and, in it, that same indef: `trace`, `scan`,
//! `plan` and `run`, between the steps that age, measure and check the files. Indef's output there
//! is passed on unchanged. Nothing of this machine is modified except the cache folder in which the
//! kernel is kept.
//!
//! Times are the device's: it is slowed down so far that the guest, which is emulated where there
//! is no KVM, has little weight beside it.
//!
//! It stops, and removes the guest, at a signal and at the end of its standard input, which comes
//! also when indef is killed.

use std::{
    ffi::OsStr,
    io::{self, Read, Write},
    path::PathBuf,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use flashd::device::Device;
use guest::{
    Cache, Guest, Kernel, LabError, Patched, Release, Zns, ZnsOptions, ZnsSetup, standing::Session,
};
use serde::Serialize;
use units::Bytes;

use crate::signals::stop_on_signals;

const RELEASE: Release = Release::Linux6_12;
/// InDeF's own device, slowed down by this factor.
const PROFILE: &str = "indef-femu";
const TIME_SCALE: f64 = 20.0;
/// The default of `run --max-stall`.
const STALL_MS: f64 = 50.0;
/// Time limit of each step: an emulated guest on a busy machine.
const PATIENCE: Duration = Duration::from_secs(600);

/// The packages needed for all of it.
const PACKAGES: &str = "qemu-system-x86 f2fs-tools xz-utils zstd gcc-12 binutils make patch pahole";

/// The request of indef.
#[derive(Args)]
pub(crate) struct DemoArgs {
    /// The indef that runs in the guest
    #[arg(long, value_name = "FILE")]
    indef: PathBuf,
    /// How much data to age
    #[arg(long, value_name = "SIZE")]
    size: Bytes,
}

/// A line of standard output. indef reads these (`demo/zns.rs`).
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
enum Said<'a> {
    /// A step begins.
    Note(&'a str),
    /// A complaint of a command that succeeded.
    Detail(&'a str),
    /// A result of a command, for the reader of the output.
    Output(&'a str),
    /// All steps are done.
    Done(Box<Story>),
    /// A step failed, for this reason.
    Failed(String),
}

/// The measurements, for indef to judge.
#[derive(Serialize)]
struct Story {
    /// The output of `indef demo-step measure`.
    before: String,
    after: String,
    /// The output of `indef run --json`.
    run: String,
    fsck_clean: bool,
    /// The name of flashd's profile.
    profile: &'static str,
    /// The factor by which the device was slowed down.
    time_scale: f64,
    /// The device's own time for a cold read of all files.
    read_ns_before: u64,
    read_ns_after: u64,
    /// The device's own time during the run.
    run_ns: u64,
    bytes_moved_in_device: u64,
    bytes_over_bus: u64,
    die_utilization: f64,
}

/// Run the laboratory's part of a demo.
pub(crate) fn run(args: &DemoArgs) -> Result<ExitCode> {
    let stop = stop_on_signals()?;
    stop_without_listener(&stop);
    let (said, code) = match play(args, &stop) {
        Ok(story) => (Said::Done(Box::new(story)), ExitCode::SUCCESS),
        Err(error) => (Said::Failed(format!("{error:#}")), ExitCode::FAILURE),
    };
    say(&said)?;
    Ok(code)
}

/// Set `stop` at the end of standard input.
fn stop_without_listener(stop: &Arc<AtomicBool>) {
    let stop = Arc::clone(stop);
    thread::spawn(move || {
        let mut nothing = [0; 64];
        while io::stdin().read(&mut nothing).is_ok_and(|n| n > 0) {}
        stop.store(true, Ordering::Relaxed);
    });
}

fn say(said: &Said<'_>) -> Result<()> {
    let mut line = serde_json::to_vec(said)?;
    line.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&line)?;
    Ok(out.flush()?)
}

fn note(text: impl AsRef<str>) -> Result<()> {
    say(&Said::Note(text.as_ref()))
}

fn play(args: &DemoArgs, stop: &Arc<AtomicBool>) -> Result<Story> {
    let zns = Zns::new(ZnsOptions {
        // Room for aged files, the data between them, and moves: as many zones as needed.
        size: zoned(args.size),
        profile: PROFILE.into(),
        time_scale: TIME_SCALE,
        ..ZnsOptions::default()
    })?;
    let begun = Instant::now();
    let stage = Stage {
        session: boot(&zns, stop)?,
        args,
        stop,
    };
    note(format!(
        "the guest is up after {:.0} s; F2FS is on {} of zones, at 1/{TIME_SCALE} of the device's speed",
        begun.elapsed().as_secs_f64(),
        zns.options().size,
    ))?;
    let told = tell(&stage, &zns);
    if let Err(error) = stage.session.end()
        && told.is_ok()
    {
        return Err(error.into());
    }
    told
}

/// Bytes of whole zones for this much data.
fn zoned(size: Bytes) -> Bytes {
    let zone = Bytes::mib(32);
    let wanted = Bytes(size.get().saturating_mul(8)).max(Bytes::gib(2));
    Bytes(wanted.div_ceil(zone) * zone.get())
}

/// Add to the error how to install a missing package.
fn advise(error: LabError) -> anyhow::Error {
    match error {
        LabError::Unavailable { .. } => anyhow!(
            "{error}\n`indef demo --zns` runs a virtual machine; on Debian it needs: sudo apt-get install {PACKAGES}"
        ),
        error => error.into(),
    }
}

fn boot(zns: &Zns, stop: &Arc<AtomicBool>) -> Result<Session> {
    let cache = Cache::of_user()
        .context("no folder to keep a kernel in: set INDEF_LAB, XDG_CACHE_HOME or HOME")?;
    if Kernel::cached(RELEASE, &cache).is_none() {
        note(format!(
            "fetching Debian's Linux {RELEASE}, some 110 MB, once, to {}",
            cache.folder().display()
        ))?;
    }
    let guest = Guest::from_cache(RELEASE, &cache).map_err(advise)?;
    note(format!(
        "booting Linux {} with a zoned SSD of flashd's ({PROFILE})",
        guest.kernel().version()
    ))?;
    let guest = match guest.with_patched(Patched::F2fs) {
        Ok(patched) => patched,
        // The demo works without it: F2FS then moves through the host.
        Err(error) => {
            note(format!(
                "F2FS is the kernel's own, whose data goes through the host, as the patched one \
                 cannot be built here: {error}"
            ))?;
            Guest::from_cache(RELEASE, &cache).map_err(advise)?
        }
    };
    let guest = guest.memory_mib(1024).zns(zns, ZnsSetup::Mounted);
    Session::start(guest.map_err(advise)?, Arc::clone(stop)).map_err(advise)
}

/// The guest, and the programs that run there.
struct Stage<'a> {
    session: Session,
    args: &'a DemoArgs,
    stop: &'a AtomicBool,
}

impl Stage<'_> {
    /// Run indef there. Returns its output.
    fn indef<S: AsRef<OsStr>>(&self, words: &[S]) -> Result<String> {
        let program = self.args.indef.as_os_str();
        let words = words.iter().map(AsRef::as_ref);
        self.run([program].into_iter().chain(words))
    }

    fn run<'w>(&self, words: impl IntoIterator<Item = &'w OsStr>) -> Result<String> {
        if self.stop.load(Ordering::Relaxed) {
            bail!("stopped");
        }
        let words: Vec<&OsStr> = words.into_iter().collect();
        let said = self.session.run(&words, PATIENCE)?;
        let complaints = String::from_utf8_lossy(&said.stderr);
        if said.status != 0 {
            let command: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
            bail!(
                "in the guest, `{}` ended with status {}: {}",
                command.join(" "),
                said.status,
                complaints.trim()
            );
        }
        if !complaints.trim().is_empty() {
            say(&Said::Detail(complaints.trim()))?;
        }
        Ok(String::from_utf8_lossy(&said.stdout).into_owned())
    }

    fn shell(&self, script: &str) -> Result<String> {
        self.run(["sh", "-c", script].map(OsStr::new))
    }

    /// Read all files cold. Returns the time in which the device had reads to do.
    fn read(&self, dir: &str, device: &Device) -> Result<u64> {
        let earlier = device.stats().model;
        self.indef(&["demo-step", "read", dir])?;
        Ok(device.stats().model.since(&earlier).host_reading_ns)
    }

    fn measure(&self, dir: &str) -> Result<String> {
        self.indef(&["demo-step", "measure", dir])
    }
}

/// The story, from ageing to proof.
fn tell(stage: &Stage<'_>, zns: &Zns) -> Result<Story> {
    let (size, dir) = (stage.args.size, "/mnt/f2fs/shop");
    let (profile, plan) = ("/tmp/shop.profile", "/tmp/shop.plan");
    note(format!(
        "ageing: four writers and a SQLite database, {size} in all"
    ))?;
    let bytes = size.get().to_string();
    stage.indef(&["demo-step", "age", dir, "--size", &bytes])?;
    note("hashing and reading before")?;
    let before = stage.measure(dir)?;
    let device = zns.flashd().context("the SSD is flashd")?;
    let read_ns_before = stage.read(dir, device)?;

    note("tracing a reader (indef trace)")?;
    // An emulated processor is slow: within the usual bound only a few of the reads would be counted.
    let traced = [
        "trace",
        "--quiet",
        "--max-overhead",
        "off",
        "-o",
        profile,
        "--",
    ]
    .map(OsStr::new);
    let reader = ["demo-step", "read", dir].map(OsStr::new);
    let program = [stage.args.indef.as_os_str()];
    stage.indef(&[&traced[..], &program, &reader].concat())?;
    note("looking at fragments (indef scan), planning (indef plan)")?;
    for words in [
        &["scan", "--profile", profile, dir][..],
        // The guest's own times say nothing about the device, which is slowed down.
        &[
            "plan",
            "--ignore-times",
            "--profile",
            profile,
            "-o",
            plan,
            dir,
        ],
    ] {
        say(&Said::Output(&stage.indef(words)?))?;
    }

    note("running the plan (indef run)")?;
    let earlier = device.stats().model;
    // A step's time is the guest's, too: steps shall be as long as at full speed.
    let stall = (STALL_MS * TIME_SCALE).to_string();
    let run = stage.indef(&["run", "--json", "--max-stall", &stall, "--plan", plan])?;
    let during = device.stats().model.since(&earlier);

    note("checking, and reading after")?;
    let checked = stage.shell(
        "umount $ZNS_MOUNT && fsck.f2fs --dry-run $ZNS_CONVENTIONAL; mount -t f2fs $ZNS_CONVENTIONAL $ZNS_MOUNT",
    )?;
    Ok(Story {
        before,
        after: stage.measure(dir)?,
        run,
        fsck_clean: checked.contains("[Ok..]") && !checked.contains("[Fail]"),
        profile: PROFILE,
        time_scale: TIME_SCALE,
        read_ns_before,
        read_ns_after: stage.read(dir, device)?,
        run_ns: during.now_ns.get(),
        bytes_moved_in_device: during.migrated_bytes,
        bytes_over_bus: during.host_read_bytes + during.host_written_bytes,
        die_utilization: during.die_utilisation(),
    })
}
