//! `indef demo --zns`: F2FS on a zoned SSD, in a virtual machine.
//!
//! The SSD is flashd, in this process; the guest (crate `guest`) runs one of Debian's kernels and, in it,
//! this very program: `trace`, `scan`, `plan` and `run`, between what ages, measures and checks the
//! files. Nothing of this machine is touched but the cache folder in which the kernel is kept.
//!
//! Times are the device's: it is slowed down so far that the guest, which is emulated where there is no
//! KVM, weighs little beside it, and the guest's times are divided by that again.

use std::{
    ffi::OsStr,
    io::{self, Write},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail};
use indef_engine::Cancel;
use guest::{
    Cache, Guest, Kernel, LabError, Patched, Release, Zns, ZnsOptions, ZnsSetup, standing::Session,
};
use units::{Bytes, Nanos};

use super::{judge, step::Measurement, stop_if, text};
use crate::{
    args::DemoArgs,
    document::{DeviceFacts, Proof, RunDocument},
    output::{Console, counted, json},
};

const RELEASE: Release = Release::Linux6_12;
/// InDeF's own device, so many times slower.
const PROFILE: &str = "indef-femu";
const TIME_SCALE: f64 = 20.0;
/// What `run --max-stall` is if nothing is said.
const STALL_MS: f64 = 50.0;
/// Each step's time limit: an emulated guest on a busy machine.
const PATIENCE: Duration = Duration::from_secs(600);

/// Packages for all of it.
const PACKAGES: &str = "qemu-system-x86 f2fs-tools xz-utils zstd gcc-12 binutils make patch pahole";

/// Show it.
pub(super) fn show(args: &DemoArgs, console: &Console, cancel: &Cancel) -> Result<()> {
    let zns = Zns::new(ZnsOptions {
        // Aged files, what lay between them, and room to move: as many zones as needed.
        size: zoned(args.size()),
        profile: PROFILE.into(),
        time_scale: TIME_SCALE,
        ..ZnsOptions::default()
    })?;
    let begun = Instant::now();
    let stage = Stage {
        session: boot(&zns, console, cancel).map_err(advise)?,
        console,
        cancel,
    };
    console.note(format_args!(
        "the guest is up after {:.0} s; F2FS is on {} of zones, at 1/{TIME_SCALE} of the device's speed",
        begun.elapsed().as_secs_f64(),
        zns.options().size,
    ));
    let told = tell(args, &stage, &zns);
    if let Err(error) = stage.session.end()
        && told.is_ok()
    {
        return Err(error.into());
    }
    let (document, before, after) = told?;
    stop_if(cancel)?;
    if console.json {
        json::print(&document)?;
    } else if !console.quiet {
        write(
            &mut io::stdout().lock(),
            console,
            &document,
            (&before, &after),
        )?;
    }
    let proof = document.proof.context("there is no proof")?;
    judge(proof.contents_equal, proof.fsck_clean)?;
    if document.totals.files_moved == 0 {
        console.note("nothing was moved; the reasons stand above");
    }
    Ok(())
}

/// Bytes of zones for so much data: whole ones.
fn zoned(size: Bytes) -> Bytes {
    let zone = Bytes::mib(32);
    let wanted = Bytes(size.get().saturating_mul(8)).max(Bytes::gib(2));
    Bytes(wanted.div_ceil(zone) * zone.get())
}

/// What is missing, and how to get it.
fn advise(error: LabError) -> anyhow::Error {
    match error {
        LabError::Unavailable { .. } => anyhow!(
            "{error}\n`indef demo --zns` runs a virtual machine; on Debian it needs: sudo apt-get install {PACKAGES}"
        ),
        error => error.into(),
    }
}

fn boot(zns: &Zns, console: &Console, cancel: &Cancel) -> Result<Session, LabError> {
    let cache = Cache::of_user().ok_or_else(|| {
        LabError::Request(
            "no folder to keep a kernel in: set INDEF_LAB, XDG_CACHE_HOME or HOME".into(),
        )
    })?;
    if Kernel::cached(RELEASE, &cache).is_none() {
        console.note(format_args!(
            "fetching Debian's Linux {RELEASE}, some 110 MB, once, to {}",
            cache.folder().display()
        ));
    }
    let guest = Guest::from_cache(RELEASE, &cache)?;
    console.note(format_args!(
        "booting Linux {} with a zoned SSD of flashd's ({PROFILE})",
        guest.kernel().version()
    ));
    let guest = match guest.with_patched(Patched::F2fs) {
        Ok(patched) => patched,
        // The story can be told without it: F2FS then moves through the host.
        Err(error) => {
            console.note(format_args!(
                "F2FS is the kernel's own, whose data goes through the host, as the patched one \
                 cannot be built here: {error}"
            ));
            Guest::from_cache(RELEASE, &cache)?
        }
    };
    let guest = guest.memory_mib(1024).zns(zns, ZnsSetup::Mounted)?;
    Session::start(guest, cancel.flag())
}

/// The guest, and who is told of it.
struct Stage<'a> {
    session: Session,
    console: &'a Console,
    cancel: &'a Cancel,
}

impl Stage<'_> {
    /// Run this program there; what it prints comes back.
    fn indef<S: AsRef<OsStr>>(&self, words: &[S]) -> Result<Vec<u8>> {
        let program = std::env::current_exe().context("where is this program?")?;
        let words = words.iter().map(AsRef::as_ref);
        self.run([program.as_os_str()].into_iter().chain(words))
    }

    fn run<'w>(&self, words: impl IntoIterator<Item = &'w OsStr>) -> Result<Vec<u8>> {
        stop_if(self.cancel)?;
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
            self.console.detail(complaints.trim());
        }
        Ok(said.stdout)
    }

    fn shell(&self, script: &str) -> Result<String> {
        let said = self.run(["sh", "-c", script].map(OsStr::new))?;
        Ok(String::from_utf8_lossy(&said).into_owned())
    }

    /// The result of a command, for who reads along.
    fn tell(&self, text: &[u8]) -> Result<()> {
        if !self.console.json && !self.console.quiet {
            let mut out = io::stdout().lock();
            out.write_all(text)?;
            writeln!(out)?;
        }
        Ok(())
    }

    fn measure(&self, dir: &str) -> Result<Measurement> {
        let said = self.indef(&["demo-step", "measure", dir])?;
        serde_json::from_slice(&said).context("the guest's measurement is not as written")
    }
}

/// The story, from ageing to proof.
fn tell(
    args: &DemoArgs,
    stage: &Stage<'_>,
    zns: &Zns,
) -> Result<(RunDocument, Measurement, Measurement)> {
    let (console, dir) = (stage.console, "/mnt/f2fs/shop");
    let (profile, plan) = ("/tmp/shop.profile", "/tmp/shop.plan");
    console.note(format_args!(
        "ageing: four writers and a SQLite database, {} in all",
        args.size()
    ));
    let size = args.size().get().to_string();
    stage.indef(&["demo-step", "age", dir, "--size", &size])?;
    console.note("hashing and reading before");
    let before = stage.measure(dir)?;

    console.note("tracing a reader (indef trace)");
    let program = std::env::current_exe().context("where is this program?")?;
    let traced = ["trace", "--quiet", "-o", profile, "--"].map(OsStr::new);
    let reader = ["demo-step", "read", dir].map(OsStr::new);
    let words: Vec<&OsStr> = [&traced[..], &[program.as_os_str()], &reader[..]].concat();
    stage.indef(&words)?;
    console.note("looking at fragments (indef scan), planning (indef plan)");
    stage.tell(&stage.indef(&["scan", "--profile", profile, dir])?)?;
    stage.tell(&stage.indef(&["plan", "--profile", profile, "-o", plan, dir])?)?;

    console.note("running the plan (indef run)");
    let device = zns.flashd().context("the SSD is flashd")?;
    let earlier = device.stats().model;
    // A step's time is the guest's, too: steps shall be as long as at full speed.
    let stall = (STALL_MS * TIME_SCALE).to_string();
    let ran = stage.indef(&["run", "--json", "--max-stall", &stall, "--plan", plan])?;
    let during = device.stats().model.since(&earlier);
    let mut document: RunDocument =
        serde_json::from_slice(&ran).context("the guest's result is not as written")?;

    console.note("checking, and reading after");
    let checked = stage.shell(
        "umount $ZNS_MOUNT && fsck.f2fs --dry-run $ZNS_CONVENTIONAL; mount -t f2fs $ZNS_CONVENTIONAL $ZNS_MOUNT",
    )?;
    let after = stage.measure(dir)?;
    let device_ns = |guest_ns: u64| (guest_ns as f64 / TIME_SCALE) as u64;
    document.proof = Some(Proof {
        contents_equal: before.sha256 == after.sha256,
        fsck_clean: Some(checked.contains("[Ok..]") && !checked.contains("[Fail]")),
        read_ns_before: device_ns(before.read_ns),
        read_ns_after: device_ns(after.read_ns),
        requests_before: before.requests,
        requests_after: after.requests,
        device_reads_before: None,
        device_reads_after: None,
    });
    document.device = Some(DeviceFacts {
        profile: PROFILE.into(),
        time_scale: TIME_SCALE,
        extents_before: before.extents,
        extents_after: after.extents,
        run_ns: during.now_ns.get(),
        bytes_moved_in_device: during.migrated_bytes,
        bytes_over_bus: during.host_read_bytes + during.host_written_bytes,
        die_utilization: during.die_utilisation(),
    });
    Ok((document, before, after))
}

/// The result for a person.
fn write(
    out: &mut dyn Write,
    console: &Console,
    document: &RunDocument,
    (before, after): (&Measurement, &Measurement),
) -> io::Result<()> {
    let (Some(proof), Some(device)) = (&document.proof, &document.device) else {
        return Ok(());
    };
    let label = format!("cold read of {}, device time", Bytes(before.size_bytes));
    let aside = format!("{} times as fast", text::faster(proof));
    let extents = [before.extents, after.extents];
    text::compare(out, console, document, proof, extents, (&label, &aside))?;
    writeln!(out, "\n{}", console.out.bold("The SSD during the run"))?;
    writeln!(
        out,
        "  moved inside it  {} (never on the bus)\n  over the bus     {}\n  its chips        busy {:.0} % of {}",
        Bytes(device.bytes_moved_in_device),
        Bytes(device.bytes_over_bus),
        100.0 * device.die_utilization,
        Nanos(device.run_ns),
    )?;
    let files = counted(before.sha256.len() as u64, "file", "files");
    let files = format!("{files}, read from the SSD again");
    text::prove(out, console, proof, &files, "fsck.f2fs")
}
