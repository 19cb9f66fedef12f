//! Big traces into a profile: `indef profile import` against the papers' own method, which writes
//! records as text, sorts them by file and place with sort(1), and merges what overlaps in one pass
//! (FragPicker §4.1.2, Algorithm 1).
//!
//! Both read the same trace, a fio iolog. The papers' script is in Python; here its pass is compiled,
//! which is in its favour.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, BufRead, BufWriter, Write},
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use units::Bytes;
use workloads::Numbers;

use super::{
    common::Common,
    measure,
    report::{ContenderRuns, Report, Sample, Verdict},
};

/// How to measure profiles.
#[derive(Args, Clone)]
pub struct ProfileArgs {
    #[command(flatten)]
    pub(super) common: Common,
    /// Records in the trace; each takes 35 bytes on disk, twice
    #[arg(long, value_name = "N", default_value_t = 10_000_000)]
    records: u64,
}

const FILES: u64 = 500;
/// Places that can be read: 16,384 in each file.
const PLACES: u64 = FILES << 14;
/// The skew of the law by which places are read: the probability of the place of rank r is
/// proportional to r to the power of minus this.
const SKEW: f64 = 1.2;

/// Measure.
pub(super) fn measure(args: &ProfileArgs, report: &mut Report) -> Result<()> {
    let common = &args.common;
    let indef = common.indef()?;
    let own = common.own_program()?;
    let folder = tempfile::tempdir_in(common.images()?)?;
    let trace = folder.path().join("trace");
    eprintln!("writing a trace of {} records", args.records);
    write_trace(&trace, args.records)?;
    let merged = folder.path().join("merged");
    let store = folder.path().join("store");
    let import: Vec<OsString> = [
        indef.as_os_str(),
        "profile".as_ref(),
        "import".as_ref(),
        store.as_ref(),
        trace.as_ref(),
        // Without a model of read-ahead, like the sorted text.
        "--layer=fs".as_ref(),
        "--quiet".as_ref(),
    ]
    .map(OsStr::to_owned)
    .into();
    let script =
        "export LC_ALL=C; sort -T \"$3\" -k1,1 -k3,3n \"$1\" | \"$4\" bench profile-merge > \"$2\"";
    let sort: Vec<OsString> = [
        "sh".as_ref(),
        "-c".as_ref(),
        script.as_ref(),
        "sh".as_ref(),
        trace.as_os_str(),
        merged.as_ref(),
        folder.path().as_ref(),
        own.as_ref(),
    ]
    .map(OsStr::to_owned)
    .into();
    let case = format!("profile, {} records", args.records);
    let mut ours = row(&case, "indef profile import", &import);
    let mut theirs = row(&case, "sort and merge", &sort);
    for run in 1..=common.runs {
        for (row, command) in [(&mut ours, &import), (&mut theirs, &sort)] {
            eprintln!("{case}: {}, run {run} of {}", row.contender, common.runs);
            measure::ensure_not_stopped()?;
            let _ = fs::remove_file(&store);
            row.samples.push(timed(command)?);
            if row.contender == "indef profile import" {
                check_store(&indef, &store, args.records)?;
            } else {
                check_merged(&merged, args.records)?;
            }
        }
    }
    report.verdicts.push(Verdict::at_most(
        format!("{case}, peak memory"),
        ours.memory().unwrap_or_default().get() as f64 / Bytes::mib(1).get() as f64,
        256.0,
        " MiB",
    ));
    report.verdicts.push(Verdict::at_least(
        format!("{case}, times as fast as sorting and merging"),
        theirs.duration().as_secs_f64() / ours.duration().as_secs_f64(),
        1.0,
        "×",
    ));
    report.rows.extend([ours, theirs]);
    Ok(())
}

fn row(case: &str, contender: &str, command: &[OsString]) -> ContenderRuns {
    ContenderRuns {
        case: case.to_owned(),
        contender: contender.to_owned(),
        command: measure::describe(command),
        extents_before: None,
        samples: Vec::new(),
    }
}

fn timed(command: &[OsString]) -> Result<Sample> {
    let started = Instant::now();
    let used = measure::run(command)?;
    Ok(Sample {
        duration_ns: started.elapsed().as_nanos() as u64,
        device_read_bytes: 0,
        device_written_bytes: 0,
        max_resident_bytes: Some(used.max_resident.get()),
        extents_after: None,
    })
}

/// Reads of 4 to 64 KiB by Zipf's law, a tenth of them writes.
fn write_trace(path: &Path, records: u64) -> Result<()> {
    let file = File::create(path).with_context(|| path.display().to_string())?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    writeln!(out, "fio version 2 iolog")?;
    let mut numbers = Numbers::new(1);
    let tail = 1.0 - SKEW;
    let all = (PLACES as f64).powf(tail) - 1.0;
    for _ in 0..records {
        // The inverse of the law's sum, taken as an integral.
        let even = numbers.fraction();
        let rank = (1.0 + even * all).powf(1.0 / tail) as u64;
        // Hot places lie anywhere.
        let place = rank.wrapping_mul(0x9E37_79B9_7F4A_7C15) % PLACES;
        let (file, start) = (place >> 14, (place & 0x3FFF) * 4096);
        let len = 4096 << (place.wrapping_mul(0xD1B5_4A32_D192_ED03) >> 62);
        let op = if numbers.percent(10) { "write" } else { "read" };
        writeln!(out, "/srv/{file:03} {op} {start} {len}")?;
    }
    out.flush()?;
    Ok(())
}

/// Check that every record is in the store, none twice.
fn check_store(indef: &Path, store: &PathBuf, records: u64) -> Result<()> {
    let output = std::process::Command::new(indef)
        .args(["profile", "show", "--json"])
        .arg(store)
        .output()?;
    let document: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let session = &document["sessions"][0];
    let sum = |name: &str| session[name].as_u64().unwrap_or(0);
    let found = sum("reads") + sum("writes");
    eprintln!(
        "  {} ranges in {} bytes",
        document["totals"]["ranges"], document["totals"]["size_bytes"]
    );
    ensure!(
        found == records,
        "{found} of {records} records in the store"
    );
    Ok(())
}

fn check_merged(merged: &Path, records: u64) -> Result<()> {
    let mut found = 0;
    for line in io::BufReader::new(File::open(merged)?).lines() {
        let line = line?;
        let count = line.rsplit(' ').next().and_then(|word| word.parse().ok());
        found += count.unwrap_or(0_u64);
    }
    ensure!(found == records, "{found} of {records} records merged");
    Ok(())
}

/// Apply Algorithm 1 to sorted text from stdin: overlapping requests become one range with their
/// count.
pub(super) fn merge() -> Result<()> {
    let mut input = io::BufReader::with_capacity(1 << 20, io::stdin());
    let mut out = BufWriter::with_capacity(1 << 20, io::stdout());
    let mut line = String::new();
    // File, first byte, end, count.
    let mut window: Option<(String, u64, u64, u64)> = None;
    loop {
        line.clear();
        if input.read_line(&mut line)? == 0 {
            break;
        }
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let &[file, "read" | "write", start, len] = &words[..] else {
            continue;
        };
        let (start, len): (u64, u64) = (start.parse()?, len.parse()?);
        match &mut window {
            Some((same, _, end, count)) if same == file && start < *end => {
                *end = (*end).max(start + len);
                *count += 1;
            }
            _ => {
                if let Some((file, start, end, count)) = window.take() {
                    writeln!(out, "{file} {start} {end} {count}")?;
                }
                window = Some((file.to_owned(), start, start + len, 1));
            }
        }
    }
    if let Some((file, start, end, count)) = window {
        writeln!(out, "{file} {start} {end} {count}")?;
    }
    out.flush()?;
    Ok(())
}
