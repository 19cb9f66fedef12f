//! The cost of tracing to an application: fio alone, and the same fio traced at each layer, in
//! turn.
//!
//! A round runs all three one after the other, each time beginning with another one, and compares
//! the IOPS that fio reports within the round; the median of the rounds counts. On a device that
//! others use, IOPS change by more than tracing costs. So the processor time that fio needs for a
//! read is reported, too: its increase, as a share of the time from one read to the next, is the
//! loss of a program that waits for each read. (The cost of interrupts is not in it.) Beside it the
//! memory of the collector: resident memory, and the content of its BPF maps.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use units::Bytes;

use super::{
    Common, measure,
    report::{Report, Verdict},
};

/// One pattern of reads by fio.
struct Load {
    name: &'static str,
    options: &'static [&'static str],
}

const LOADS: [Load; 4] = [
    Load {
        name: "4 KiB random, direct, one at a time",
        options: &["--rw=randread", "--bs=4k", "--direct=1", "--ioengine=psync"],
    },
    Load {
        name: "4 KiB random, direct, 32 at a time",
        options: &[
            "--rw=randread",
            "--bs=4k",
            "--direct=1",
            "--ioengine=libaio",
            "--iodepth=32",
        ],
    },
    Load {
        name: "128 KiB random, buffered",
        options: &["--rw=randread", "--bs=128k", "--ioengine=psync"],
    },
    Load {
        name: "4 KiB random, from the page cache",
        options: &[
            "--rw=randread",
            "--bs=4k",
            "--ioengine=psync",
            "--invalidate=0",
            "--pre_read=1",
            "--norandommap=1",
        ],
    },
];

/// The layers, with their permitted cost in percent.
const LAYERS: [(&str, f64); 2] = [("fs", 1.0), ("syscall", 2.0)];
/// Maximum memory of the collector.
const MEMORY: Bytes = Bytes::mib(64);

/// Measure all of them.
pub(super) fn measure(common: &Common, report: &mut Report) -> Result<()> {
    let indef = common.indef()?;
    let folder = tempfile::tempdir_in(common.images()?)?;
    let file = folder.path().join("file");
    let mut peak = Bytes::ZERO;
    for load in &LOADS {
        let mut shares = [Vec::new(), Vec::new()];
        let mut processor = [Vec::new(), Vec::new()];
        for round in 0..common.runs {
            measure::ensure_not_stopped()?;
            eprintln!("{}: round {} of {}", load.name, round + 1, common.runs);
            let mut speeds = [Speed::default(); 3];
            for turn in 0..3 {
                let which = (round + turn) % 3;
                speeds[which] = match which.checked_sub(1) {
                    None => finished(start(&fio(&file, load))?, &mut peak, false)?,
                    Some(layer) => {
                        let profile = folder.path().join("profile");
                        let command = traced(&indef, &profile, LAYERS[layer].0, &fio(&file, load));
                        finished(start(&command)?, &mut peak, true)?
                    }
                };
            }
            let [alone, traced @ ..] = speeds;
            for (layer, speed) in traced.into_iter().enumerate() {
                shares[layer].push((1.0 - speed.iops / alone.iops) * 100.0);
                processor[layer].push((speed.busy - alone.busy) * alone.iops * 100.0);
            }
        }
        for (at, (layer, wanted)) in LAYERS.into_iter().enumerate() {
            for (lost, shares) in [("IOPS", &shares[at]), ("processor time", &processor[at])] {
                let quantity = format!("{}_lost_pct", lost.replace(' ', "_"));
                report.figure(load.name, &format!("layer {layer}"), &quantity, shares);
                let what = format!("trace --layer {layer}, fio {}: {lost} lost", load.name);
                report.verdicts.push(verdict(&what, shares, wanted));
            }
        }
    }
    let memory = [peak.0 as f64];
    report.figure("collector", "largest of all runs", "memory_bytes", &memory);
    report.verdicts.push(Verdict::at_most(
        "memory of the collector, with its BPF maps".to_owned(),
        peak.0 as f64 / Bytes::mib(1).0 as f64,
        MEMORY.0 as f64 / Bytes::mib(1).0 as f64,
        " MiB",
    ));
    Ok(())
}

fn verdict(what: &str, shares: &[f64], wanted: f64) -> Verdict {
    let mut shares = shares.to_vec();
    shares.sort_unstable_by(f64::total_cmp);
    let last = shares.len() - 1;
    let what = format!("{what} ({:.2} to {:.2} %)", shares[0], shares[last]);
    Verdict::at_most(what, shares[last / 2], wanted, " %")
}

/// The report of fio.
#[derive(Clone, Copy, Debug, Default)]
struct Speed {
    iops: f64,
    /// Processor time of a read, in seconds.
    busy: f64,
}

fn fio(file: &Path, load: &Load) -> Vec<OsString> {
    let mut name = OsString::from("--filename=");
    name.push(file);
    let mut command: Vec<OsString> = [
        "fio",
        "--name=reader",
        "--size=1g",
        "--time_based",
        "--runtime=6",
        "--ramp_time=1",
        "--randseed=7",
        "--output-format=json",
    ]
    .map(OsString::from)
    .to_vec();
    command.extend(load.options.iter().map(OsString::from));
    command.push(name);
    command
}

fn traced(indef: &Path, profile: &Path, layer: &str, command: &[OsString]) -> Vec<OsString> {
    let mut traced: Vec<OsString> = vec![indef.into(), "trace".into(), "--quiet".into()];
    traced.extend([
        "--layer".into(),
        layer.into(),
        "-o".into(),
        profile.into(),
        "--".into(),
    ]);
    traced.extend_from_slice(command);
    traced
}

fn start(command: &[OsString]) -> Result<Child> {
    Command::new(&command[0])
        .args(&command[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot run {}", measure::describe(command)))
}

/// Wait for fio's document and parse it; for a collector, watch the memory meanwhile.
fn finished(mut child: Child, peak: &mut Bytes, collector: bool) -> Result<Speed> {
    if collector {
        // fio's document fits into a pipe, so it need not be read before the end.
        while child.try_wait()?.is_none() {
            *peak = (*peak).max(memory(child.id()));
            sleep(Duration::from_millis(100));
        }
    }
    let output = child.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "fio: {}\n{text}", output.status);
    let json = text.find('{').map_or("", |start| &text[start..]);
    let document: serde_json::Value = serde_json::from_str(json).context("what fio printed")?;
    let job = &document["jobs"][0];
    let iops = job["read"]["iops"].as_f64().filter(|iops| *iops > 0.0);
    let iops = iops.context("fio reports no reads")?;
    // Percent of its run time; Linux scales both so that their sum is exact.
    let percent = |which: &str| job[which].as_f64().context("fio reports no processor time");
    let busy = (percent("usr_cpu")? + percent("sys_cpu")?) / 100.0 / iops;
    Ok(Speed { iops, busy })
}

/// Resident memory of a process, and the memory of the BPF maps that it holds. Pages of maps that
/// are mapped, a ring's even twice, count once, with the maps.
fn memory(pid: u32) -> Bytes {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let status = fs::read_to_string(process.join("status")).unwrap_or_default();
    let resident = field(&status, "VmRSS:").unwrap_or(0) * 1024;
    let open = fs::read_dir(process.join("fdinfo"))
        .into_iter()
        .flatten()
        .flatten();
    let maps: u64 = open
        .filter_map(|fd| fs::read_to_string(fd.path()).ok())
        .filter(|text| text.contains("map_id:"))
        .filter_map(|text| field(&text, "memlock:"))
        .sum();
    let mapped = fs::read_to_string(process.join("smaps")).unwrap_or_default();
    Bytes((resident + maps).saturating_sub(mapped_maps(&mapped)))
}

/// Resident pages of BPF maps among the mappings of a process.
fn mapped_maps(smaps: &str) -> u64 {
    let mut of_map = false;
    let mut sum = 0;
    for line in smaps.lines() {
        if let Some(kib) = line.strip_prefix("Rss:") {
            let kib = kib.split_whitespace().next().and_then(|n| n.parse().ok());
            sum += if of_map { kib.unwrap_or(0) * 1024 } else { 0 };
        } else if line.contains('-') {
            of_map = line.ends_with("anon_inode:bpf-map");
        }
    }
    sum
}

fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}
