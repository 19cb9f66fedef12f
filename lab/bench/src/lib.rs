//! Measurements, compared with the tools that people use today.
//!
//! Every contender starts from the same state: a file system image is prepared once, and each run
//! gets a fresh copy of it on a loop device, with all caches dropped. Contenders take turns, so
//! that a slow minute of the machine affects all of them. The timed span is the command and the
//! write-back of everything that it left dirty. Afterwards contents are compared: a fast wrong
//! result is a failure of the benchmark.

#![forbid(unsafe_code)]

mod aged;
mod beside;
mod common;
mod compact;
mod core;
mod databases;
mod day;
mod die_hints;
mod flashd;
mod kernels;
mod limit;
mod measure;
mod median;
mod memory;
mod overhead;
mod peers;
mod predictions;
mod probe_gain;
mod profile;
mod report;
mod scan;
mod service;
mod shared;
mod state;
mod target;
mod upkeep;
mod writers;
mod zbd;
mod zipf;

use std::{fs, path::Path};

use anyhow::{Context, Result, ensure};
use clap::Subcommand;
use serde::Serialize;

pub use common::Common;
use report::Report;

/// The measurements.
#[derive(Subcommand)]
pub enum Bench {
    /// indef against e4defrag, xfs_fsr and btrfs filesystem defragment
    Peers(peers::PeersArgs),
    /// ext4 on several kernels: indef against e4defrag, in guests and here
    Kernels(kernels::KernelsArgs),
    /// indef scan of 100,000 files against find and filefrag
    Scan(Common),
    /// The access analysis on 10 million records
    Core(Common),
    /// Peak memory, by file size and with 1,000,000 files
    Memory(Common),
    /// A file that fio writes to, with verification, while indef moves it
    Writers(writers::WritersArgs),
    /// Cloning, copying and deleting a file in 65,536 extents, against one in one
    Upkeep(Common),
    /// Files that snapshots (Btrfs) or reflink copies (XFS) share, against btrfs filesystem defragment -r and xfs_fsr:
    /// space, extents, time
    Shared(Common),
    /// Free space in tiny pieces made whole, beside e4defrag, xfs_fsr and btrfs balance
    Compact(Common),
    /// Files aged by a year of what people do with them: how fragmented, what moves, how fast it comes again
    Aged(aged::AgedArgs),
    /// The service beside fio at three loads, against fio without it
    Beside(beside::BesideArgs),
    /// A day of the service within minutes, on flashd, with a load that changes: what it moved, gained and wore
    Day(day::DayArgs),
    /// The part of a SQLite or RocksDB database that has to move
    Databases(Common),
    /// The cost of tracing for fio, at each layer
    Overhead(overhead::OverheadArgs),
    /// Read speed over bytes moved, learned from a trace, for reads by Zipf's law
    Zipf(zipf::ZipfArgs),
    /// The time of reads that plans predict, at several queue depths, against what comes
    Predictions(predictions::PredictionsArgs),
    /// The gain of defragmenting a file that a probe of its drive foretells, against the measured one
    ProbeGain(probe_gain::ProbeGainArgs),
    /// Big traces into a profile, against sorting and merging text as the papers do
    Profile(profile::ProfileArgs),
    /// flashd's answers beside its model's, and what its path carries, mounted and served
    Flashd(Common),
    /// flashd's NVMe/TCP target against the kernel's own, in a guest
    Target(Common),
    /// fio's own zoned tests (t/zbd) on flashd's disks, in a guest: which cases pass
    Zbd(zbd::ZbdArgs),
    /// FAST'24's files with ext4 on flashd, without and with die hints, in a guest
    DieHints(die_hints::DieHintsArgs),
    /// Peers, scan, core and memory
    All(peers::PeersArgs),
    /// One kernel's part; `kernels` starts this in a guest
    #[command(hide = true)]
    KernelsInside(kernels::InsideArgs),
    /// Only read, by Zipf's law; `zipf` starts this as a process that is traced
    #[command(hide = true)]
    ZipfReader(zipf::ReaderArgs),
    /// Only read, several at a time; `predictions` starts this as a process that is traced
    #[command(hide = true)]
    PredictionsLoad(predictions::LoadArgs),
    /// Merge sorted text from stdin; `profile` starts this after sort(1)
    #[command(hide = true)]
    ProfileMerge,
    /// Run the access analysis right here; `core` starts this as a process of its own
    #[command(hide = true)]
    CoreInner {
        /// Number of records
        records: u64,
    },
}

/// Run a measurement.
///
/// # Errors
///
/// A measurement failed. A missed target is no error: the table shows it.
pub fn run(bench: &Bench) -> Result<()> {
    let common = match bench {
        Bench::Peers(args) | Bench::All(args) => &args.common,
        Bench::Scan(common)
        | Bench::Core(common)
        | Bench::Memory(common)
        | Bench::Upkeep(common)
        | Bench::Shared(common)
        | Bench::Compact(common)
        | Bench::Databases(common)
        | Bench::Flashd(common)
        | Bench::Target(common) => common,
        Bench::Kernels(args) => &args.common,
        Bench::KernelsInside(args) => &args.common,
        Bench::Aged(args) => &args.common,
        Bench::Beside(args) => &args.common,
        Bench::Day(args) => &args.common,
        Bench::DieHints(args) => &args.common,
        Bench::Zbd(args) => &args.common,
        Bench::Overhead(args) => &args.common,
        Bench::Writers(args) => &args.common,
        Bench::Zipf(args) => &args.common,
        Bench::Profile(args) => &args.common,
        Bench::Predictions(args) => &args.common,
        Bench::ProbeGain(args) => &args.common,
        Bench::PredictionsLoad(args) => return predictions::load(args),
        Bench::ProfileMerge => return profile::merge(),
        Bench::ZipfReader(args) => return zipf::read(args),
        Bench::CoreInner { records } => return core::inner(*records),
    };
    ensure!(common.runs > 0, "--runs must be at least 1");
    ensure!(
        rustix::process::geteuid().is_root()
            || matches!(
                bench,
                Bench::Core(_)
                    | Bench::Profile(_)
                    | Bench::Target(_)
                    | Bench::DieHints(_)
                    | Bench::Zbd(_)
            ),
        "benchmarks mount file systems and drop caches, which needs root"
    );
    measure::stop_cleanly()?;
    let folder = common.images()?;
    let mut reports = Vec::new();
    let mut one = |name, measure: &dyn Fn(&mut Report) -> Result<()>| {
        let mut report = Report::new(name, &folder, common.runs);
        measure(&mut report)?;
        println!("\n{report}");
        if common.keep {
            keep(&report)?;
        }
        reports.push(report);
        anyhow::Ok(())
    };
    match bench {
        Bench::Memory(_) => one("memory", &|report| memory::measure(common, report))?,
        Bench::Core(_) => one("core", &|report| core::measure(common, report))?,
        Bench::Profile(args) => one("profile", &|report| profile::measure(args, report))?,
        Bench::Scan(_) => one("scan", &|report| scan::measure(common, report))?,
        Bench::Upkeep(_) => one("upkeep", &|report| upkeep::measure(common, report))?,
        Bench::Shared(_) => one("shared", &|report| shared::measure(common, report))?,
        Bench::Compact(_) => one("compact", &|report| compact::measure(common, report))?,
        Bench::Aged(args) => one("aged", &|report| aged::measure(args, report))?,
        Bench::Beside(args) => one("beside", &|report| beside::measure(args, report))?,
        Bench::Day(args) => one("day", &|report| day::measure(args, report))?,
        Bench::Databases(_) => one("databases", &|report| databases::measure(common, report))?,
        Bench::Overhead(args) => one("overhead", &|report| overhead::measure(args, report))?,
        Bench::Flashd(_) => one("flashd", &|report| flashd::measure(common, report))?,
        Bench::Writers(args) => one("writers", &|report| writers::measure(args, report))?,
        Bench::Target(_) => one("target", &|report| target::measure(common, report))?,
        Bench::DieHints(args) => one("die-hints", &|report| die_hints::measure(args, report))?,
        Bench::Zbd(args) => one("zbd", &|report| zbd::measure(args, report))?,
        Bench::Zipf(args) => one("zipf", &|report| zipf::measure(args, report))?,
        Bench::Predictions(args) => {
            one("predictions", &|report| predictions::measure(args, report))?;
        }
        Bench::ProbeGain(args) => {
            one("probe-gain", &|report| probe_gain::measure(args, report))?;
        }
        Bench::Peers(args) => one("peers", &|report| peers::measure(args, report))?,
        Bench::Kernels(args) => one("kernels", &|report| kernels::measure(args, report))?,
        Bench::KernelsInside(args) => one("kernels", &|report| kernels::inside(args, report))?,
        Bench::All(args) => {
            // Memory first: the kernel's peak for a child includes the memory of its parent.
            one("memory", &|report| memory::measure(common, report))?;
            one("core", &|report| core::measure(common, report))?;
            one("scan", &|report| scan::measure(common, report))?;
            one("peers", &|report| peers::measure(args, report))?;
        }
        Bench::ProfileMerge
        | Bench::ZipfReader(_)
        | Bench::PredictionsLoad(_)
        | Bench::CoreInner { .. } => {}
    }
    match &common.json {
        Some(path) if reports.len() == 1 => write_json(path, &reports[0]),
        Some(path) => write_json(path, &reports),
        None => Ok(()),
    }
}

/// Keep a result in the tree, with the command that gives it again.
fn keep(report: &Report) -> Result<()> {
    let command = command(report.name, std::env::args().skip(3));
    let file = figures::tree::keep(source_tree::root(), report.name, report.session(command))?;
    eprintln!(
        "{}: kept; make figures brings it to the pages",
        file.display()
    );
    Ok(())
}

/// `sudo cargo lab bench NAME` with the options that decide what is measured.
fn command(name: &str, options: impl Iterator<Item = String>) -> String {
    let mut command = format!("sudo cargo lab bench {name}");
    let mut options = options;
    while let Some(option) = options.next() {
        match option.as_str() {
            "--keep" => {}
            "--json" | "--images" => {
                options.next();
            }
            _ if option.starts_with("--json=") || option.starts_with("--images=") => {}
            _ => command = format!("{command} {option}"),
        }
    }
    command
}

fn write_json(path: &Path, report: &impl Serialize) -> Result<()> {
    let mut json = serde_json::to_vec_pretty(report)?;
    json.push(b'\n');
    fs::write(path, json).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_command_has_no_paths() {
        let options = [
            "--runs",
            "7",
            "--json",
            "/tmp/x",
            "--keep",
            "--images=/y",
            "--fs",
            "xfs",
        ];
        let command = command("peers", options.map(str::to_owned).into_iter());
        assert_eq!(command, "sudo cargo lab bench peers --runs 7 --fs xfs");
    }
}
