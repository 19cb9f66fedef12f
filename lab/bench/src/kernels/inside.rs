//! The part of one guest: a disk that is as slow, for this guest, as a flash drive is for a processor, and the cases on
//! it.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use clap::Args;

use super::cases::cases;
use crate::{common::Common, measure, peers, report::Report};

/// How a guest's part is measured.
#[derive(Args)]
pub struct InsideArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Only cases whose name contains this
    #[arg(long)]
    case: Option<String>,
    /// The host's line of the processor's model in /proc/cpuinfo
    #[arg(long)]
    host_processor: String,
}

/// A random read of 4 KiB, one at a time: 72.6 µs on a Western Digital ZN540 (its published raw data). Writes have the
/// same time here, though a drive with a cache answers them sooner; there is no flush.
const READ: Duration = Duration::from_nanos(72_600);
/// So much longer does the disk take where QEMU translates the guest's code. What the kernel does to move a page takes
/// 30 times as long there (0.8 to 1.1 ms with Linux 6.12 and 7.3, against 29 µs on a processor with 6.18: 256 MiB in
/// pages, figures/peers.json), so waiting for the disk counts for half of what it does on a machine.
const SLOWER: u32 = 15;
/// So much longer may a step of indef take, which ends with a commit: 50 ms by default. Steps would be smaller than ever
/// else.
const SLOWER_OPTIONS: &[&str] = &["--max-stall", "750"];
/// Of the disk in memory; only what is written takes memory.
const DISK_MIB: &str = "2048";

/// Measure in the guest; the folder of images becomes the mount point of its disk.
pub(crate) fn inside(args: &InsideArgs, report: &mut Report) -> Result<()> {
    let (slower, options) = if processor()? != args.host_processor {
        (SLOWER, SLOWER_OPTIONS)
    } else {
        (1, [].as_slice())
    };
    let cases = cases(args.case.as_deref(), options)?;
    let latency = READ * slower;
    let device = make_disk(latency)?;
    let folder = args.common.images()?;
    let mut mkfs = Command::new("mkfs.ext4");
    mkfs.args(["-q", "-F", "-b", "4096"]);
    mkfs.args(["-E", "lazy_itable_init=0,lazy_journal_init=0"]);
    measure::text(mkfs.arg(&device))?;
    measure::text(Command::new("mount").args([&device, &folder]))?;
    peers::measure_cases(&args.common, &cases, report)?;
    measure::text(Command::new("umount").arg(&folder))?;
    report.note = Some(format!(
        "on a disk that answers after {:.1} ms, {slower} times the {:.1} µs of a flash drive{}",
        latency.as_secs_f64() * 1e3,
        READ.as_secs_f64() * 1e6,
        match options {
            [] => String::new(),
            options => format!(" (and indef has {})", options.join(" ")),
        }
    ));
    Ok(())
}

/// The processor's model. A guest with KVM has that of its host; QEMU's translator plays another one.
pub(super) fn processor() -> Result<String> {
    let text = fs::read_to_string("/proc/cpuinfo")?;
    let model = text.lines().find(|line| line.starts_with("model name"));
    Ok(model.unwrap_or_default().to_owned())
}

/// Make a disk in memory that answers each request after `latency`, however many are under way.
fn make_disk(latency: Duration) -> Result<PathBuf> {
    let config = Path::new("/sys/kernel/config");
    // The module has made one disk of its own, which is not used.
    let before = disks()?;
    if !config.join("nullb").exists() {
        measure::text(
            Command::new("mount")
                .args(["-t", "configfs", "none"])
                .arg(config),
        )?;
    }
    let disk = config.join("nullb/disk");
    fs::create_dir(&disk).with_context(|| disk.display().to_string())?;
    let nanos = latency.as_nanos().to_string();
    for (name, value) in [
        ("size", DISK_MIB),
        ("memory_backed", "1"),
        // Requests end when a timer ends.
        ("irqmode", "2"),
        ("completion_nsec", nanos.as_str()),
        ("hw_queue_depth", "128"),
        ("power", "1"),
    ] {
        let path = disk.join(name);
        let mut file = File::options().write(true).open(&path)?;
        (file.write_all(value.as_bytes())).with_context(|| path.display().to_string())?;
    }
    let mut new = disks()?;
    new.retain(|name| !before.contains(name));
    ensure!(new.len() == 1, "new disks: {new:?}");
    Ok(Path::new("/dev").join(&new[0]))
}

/// Names of null_blk's disks.
fn disks() -> Result<Vec<String>> {
    let names = fs::read_dir("/sys/block")?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<std::io::Result<Vec<_>>>()?;
    names.retain(|name| name.starts_with("nullb") || name == "disk");
    Ok(names)
}
