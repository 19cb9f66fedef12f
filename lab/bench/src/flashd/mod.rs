//! How close flashd's answers come to its model, and what its path costs: over FUSE and a loop device
//! (`flashd mount`), and over NVMe/TCP on loopback (`flashd serve`).
//!
//! Latencies are of 4 KiB reads, one at a time, of data that is on flash; in the device's time, which
//! is the host's divided by the time scale. Each configuration is one daemon, started anew in every
//! run; all of them take turns. The model's own value is computed in virtual time.

use std::{path::Path, process::Command};

use anyhow::{Context, Result};
use fio::{Fio, Job};
use flash_model::{
    Command as Request, Device, Done, NamespaceKind, NamespaceSpec, Placement, Profile,
};
use stage::{Loop, Mounted, Served};
use units::{Bytes, Nanos};

use super::{
    common::Common,
    measure::{self, text},
    report::Report,
};

/// A mounted device.
const SIZE: Bytes = Bytes::gib(1);
/// The part of a device that is written first, and then read.
const SPAN: Bytes = Bytes::mib(64);
/// Seconds of each load.
const SECONDS: u32 = 4;

/// A device, and the options that it runs with.
struct Setup {
    profile: &'static str,
    kind: NamespaceKind,
    scale: f64,
    options: &'static [&'static str],
}

const fn setup(profile: &'static str, scale: f64, options: &'static [&'static str]) -> Setup {
    Setup {
        profile,
        kind: NamespaceKind::Conventional,
        scale,
        options,
    }
}

const MOUNTS: [Setup; 4] = [
    setup("fast24", 10.0, &[]),
    setup("fast24", 10.0, &["--overhead", "17"]),
    setup("fast24", 1.0, &[]),
    setup("fast24", 1.0, &["--overhead", "17"]),
];

const SERVED: [Setup; 6] = [
    setup("fast24", 10.0, &[]),
    setup("fast24", 10.0, &["--spin"]),
    setup("fast24", 10.0, &["--spin", "--overhead", "45"]),
    zoned("zn540", 10.0, &[]),
    zoned("zn540", 10.0, &["--spin"]),
    zoned("zn540", 10.0, &["--spin", "--overhead", "45"]),
];

const fn zoned(profile: &'static str, scale: f64, options: &'static [&'static str]) -> Setup {
    Setup {
        kind: NamespaceKind::Zoned,
        ..setup(profile, scale, options)
    }
}

/// Loads over a loop device on the profile `zero`, with the options of fio.
const FIO: [(&str, &[&str]); 3] = [
    ("reads of 4 KiB", &["--rw=randread", "--bs=4k"]),
    ("writes of 4 KiB", &["--rw=randwrite", "--bs=4k"]),
    ("reads of 128 KiB", &["--rw=read", "--bs=128k"]),
];

/// Loads of the example `load`, on the profile `zero`.
const LOADS: [(&str, &[&str]); 8] = [
    ("reads of 4 KiB, 1 queue, depth 64", &[]),
    ("reads of 4 KiB, 2 queues, depth 64", &["--queues", "2"]),
    (
        "reads of 4 KiB, depth 64, header and data digests",
        &["--digests"],
    ),
    ("reads of 4 KiB, depth 1", &["--depth", "1"]),
    (
        "reads of 128 KiB, 1 queue, depth 16",
        &["--size", "128KiB", "--depth", "16"],
    ),
    (
        "reads of 128 KiB, 2 queues, depth 16",
        &["--size", "128KiB", "--depth", "16", "--queues", "2"],
    ),
    ("writes of 4 KiB, 1 queue, depth 64", &["--write"]),
    (
        "writes of 128 KiB, 1 queue, depth 16",
        &["--write", "--size", "128KiB", "--depth", "16"],
    ),
];

/// Measure; what needs no root is measured without it.
pub(super) fn measure(common: &Common, report: &mut Report) -> Result<()> {
    let flashd = source_tree::release_binary("flashd")?;
    let load = source_tree::release_example("flashd", "load")?;
    let mut samples = Samples::default();
    for setup in [&MOUNTS[0], &SERVED[3]] {
        let model = [by_the_model(setup)?];
        report.figure(setup.profile, "by the model", "latency_ns", &model);
    }
    for run in 1..=common.runs {
        for setup in &MOUNTS {
            eprintln!("run {run} of {}: {}", common.runs, setup.name("mount"));
            mounted(&flashd, setup, &mut samples)?;
        }
        eprintln!("run {run} of {}: mount zero", common.runs);
        mounted_at_once(&flashd, &mut samples)?;
        for setup in &SERVED {
            eprintln!("run {run} of {}: {}", common.runs, setup.name("serve"));
            served(&flashd, &load, setup, &mut samples)?;
        }
        for (name, options) in LOADS {
            measure::ensure_not_stopped()?;
            eprintln!("run {run} of {}: serve zero, {name}", common.runs);
            let said = LoadReport::parse(&loaded(&load, options)?)?;
            samples.add("serve zero", name, "commands_per_s", said.rate);
            samples.add("serve zero", name, "bandwidth_mb_per_s", said.mb_per_s);
            samples.add("serve zero", name, "latency_ns", said.median_ns);
        }
    }
    for (case, contender, quantity, samples) in &samples.0 {
        report.figure(case, contender, quantity, samples);
    }
    Ok(())
}

/// All samples so far, by case, contender and quantity.
#[derive(Default)]
struct Samples(Vec<(String, String, &'static str, Vec<f64>)>);

impl Samples {
    fn add(&mut self, case: &str, contender: &str, quantity: &'static str, value: f64) {
        let is_it = |it: &&mut (String, String, &str, Vec<f64>)| {
            it.0 == case && it.1 == contender && it.2 == quantity
        };
        match self.0.iter_mut().find(is_it) {
            Some((.., samples)) => samples.push(value),
            None => self
                .0
                .push((case.into(), contender.into(), quantity, vec![value])),
        }
    }
}

impl Setup {
    fn name(&self, verb: &str) -> String {
        format!("{verb} {}, {}", self.profile, self.contender())
    }

    fn contender(&self) -> String {
        let scale = format!("K = {}", self.scale);
        [&[scale.as_str()], self.options].concat().join(" ")
    }

    fn arguments(&self) -> Vec<String> {
        let scale = self.scale.to_string();
        let own = ["--profile", self.profile, "--time-scale", &scale];
        own.iter()
            .chain(self.options)
            .map(|&it| it.to_owned())
            .collect()
    }
}

/// Latency and lateness over FUSE and a loop device.
fn mounted(flashd: &Path, setup: &Setup, samples: &mut Samples) -> Result<()> {
    measure::ensure_not_stopped()?;
    let disk = Mounted::start(flashd, SIZE, &setup.arguments())?;
    let device = Loop::attach(&disk.path())?;
    let job = fio(
        &device.0,
        &["--rw=randread", "--bs=4k", "--ioengine=psync"],
        true,
    )?;
    let contender = setup.contender();
    let case = format!("mount {}", setup.profile);
    for (quantity, percent) in [("latency_ns", 50.0), ("p99_latency_ns", 99.0)] {
        let latency = job.read.completion.percentile(percent)? / setup.scale;
        samples.add(&case, &contender, quantity, latency);
        if quantity == "latency_ns" {
            let off = (latency / by_the_model(setup)? - 1.0) * 100.0;
            samples.add(&case, &contender, "off_pct", off);
        }
    }
    let stats = disk.stats()?;
    for (quantity, field) in [("lateness_ns", "p50_ns"), ("p99_lateness_ns", "p99_ns")] {
        let late = stats["lateness"][field].as_f64();
        let late = late.context("flashd stats tells no lateness")?;
        samples.add(&case, &contender, quantity, late);
    }
    drop(device);
    Ok(disk.stop()?)
}

/// Measure the throughput of the path where the device takes no time.
fn mounted_at_once(flashd: &Path, samples: &mut Samples) -> Result<()> {
    measure::ensure_not_stopped()?;
    let disk = Mounted::start(flashd, SIZE, &["--profile".into(), "zero".into()])?;
    let device = Loop::attach(&disk.path())?;
    for (name, options) in FIO {
        let options = [options, &["--ioengine=libaio", "--iodepth=32"]].concat();
        let job = fio(&device.0, &options, false)?;
        let side = match name.starts_with("writes") {
            true => &job.write,
            false => &job.read,
        };
        samples.add("mount zero", name, "commands_per_s", side.iops);
        let bytes = side.bytes_per_s;
        samples.add("mount zero", name, "bandwidth_mb_per_s", bytes / 1e6);
    }
    drop(device);
    Ok(disk.stop()?)
}

/// Latency over NVMe/TCP.
fn served(flashd: &Path, load: &Path, setup: &Setup, samples: &mut Samples) -> Result<()> {
    measure::ensure_not_stopped()?;
    let kind = match setup.kind {
        NamespaceKind::Conventional => "conventional:1GiB",
        NamespaceKind::Zoned => "zoned:4GiB",
    };
    let mut arguments = setup.arguments();
    arguments.extend(["--namespace".into(), kind.into()]);
    let target = Served::start(flashd, &arguments)?;
    let span = SPAN.get().to_string();
    let options = [
        "--address",
        &target.address,
        "--nqn",
        &target.nqn,
        "--depth",
        "1",
        "--span",
        &span,
    ];
    let said = LoadReport::parse(&loaded(load, &options)?)?;
    let case = format!("serve {}", setup.profile);
    let contender = setup.contender();
    let latency = said.median_ns / setup.scale;
    let off = (latency / by_the_model(setup)? - 1.0) * 100.0;
    samples.add(&case, &contender, "latency_ns", latency);
    samples.add(&case, &contender, "off_pct", off);
    Ok(target.stop()?)
}

fn loaded(load: &Path, options: &[&str]) -> Result<String> {
    let seconds = SECONDS.to_string();
    text(
        Command::new(load)
            .args(options)
            .args(["--seconds", &seconds]),
    )
}

/// The report of the example `load`.
struct LoadReport {
    rate: f64,
    mb_per_s: f64,
    median_ns: f64,
}

impl LoadReport {
    fn parse(said: &str) -> Result<Self> {
        let between = |begin: &str, end: &str| -> Result<f64> {
            let value = said
                .split_once(begin)
                .and_then(|(_, rest)| rest.split_once(end));
            let (value, _) = value.with_context(|| format!("load said: {said}"))?;
            Ok(value.trim().parse()?)
        };
        let rate = said.split_once("/s,").map_or("", |(before, _)| before);
        let rate = rate.rsplit(": ").next().unwrap_or_default();
        Ok(Self {
            rate: rate.parse().with_context(|| format!("load said: {said}"))?,
            mb_per_s: between("/s, ", " MB/s")?,
            median_ns: between("p50 ", " µs")? * 1e3,
        })
    }
}

/// One job of fio on the disk; with `fill`, on data that it has written before.
fn fio(device: &str, options: &[&str], fill: bool) -> Result<Job> {
    let file = format!("--filename={device}");
    let size = format!("--size={}", SPAN.get());
    if fill {
        let first = [
            "--name=fill",
            &file,
            &size,
            "--rw=write",
            "--bs=128k",
            "--direct=1",
            "--end_fsync=1",
        ];
        Fio::start(first)?.finish()?;
    }
    let runtime = format!("--runtime={SECONDS}");
    let common = [
        "--name=load",
        &file,
        &size,
        "--direct=1",
        "--time_based",
        &runtime,
        "--ramp_time=1",
        "--randseed=7",
    ];
    let report = Fio::start(common.iter().chain(options))?.finish()?;
    Ok(report.job("load")?.clone())
}

/// The same read by the model alone, in nanoseconds.
fn by_the_model(setup: &Setup) -> Result<f64> {
    let profile = Profile::builtin(setup.profile).context("it is built in")?;
    let spec = NamespaceSpec {
        kind: setup.kind,
        size: Bytes::gib(4),
    };
    let mut device = Device::new(&profile, &[spec])?;
    let mut now = 0;
    for at in 0..SPAN.get() >> 20 {
        // Apart, so that none waits for room.
        now += 1_000_000_000;
        let (offset, len) = (at << 20, 1 << 20);
        let placement = Placement::RoundRobin;
        let fua = false;
        device.submit(
            Nanos(now),
            0,
            &Request::Write {
                offset,
                len,
                fua,
                placement,
            },
        )?;
    }
    now += 1_000_000_000;
    let (offset, len) = (4 << 20, 4096);
    match device
        .submit(Nanos(now), 0, &Request::Read { offset, len })?
        .done
    {
        Done::At(time) => Ok((time.get() - now) as f64),
        Done::Later(_) => anyhow::bail!("a read has its time at once"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_of_load_is_understood() {
        let said = "reads of 4 KiB, 1 queues, depth 64: 364012/s, 1491 MB/s, latency p50 162.3 µs, \
                    p99 301.0 µs, 1820060 commands, all as written\n";
        let load = LoadReport::parse(said).unwrap();
        assert_eq!((load.rate, load.mb_per_s), (364_012.0, 1491.0));
        assert!((load.median_ns - 162_300.0).abs() < 1.0);
        assert!(LoadReport::parse("nothing").is_err());
    }

    #[test]
    fn the_model_takes_the_time_of_its_page() {
        let fast24 = by_the_model(&MOUNTS[0]).unwrap();
        assert!((60_000.0..70_000.0).contains(&fast24), "{fast24}");
        let zn540 = by_the_model(&SERVED[3]).unwrap();
        assert!((70_000.0..76_000.0).contains(&zn540), "{zn540}");
    }
}
