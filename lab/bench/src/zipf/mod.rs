//! The whole procedure: watch an application, find the fragments that cost it time, move only
//! those.
//!
//! A file in pieces of 4 KiB is read in 128 KiB requests, by Zipf's law at several skews and
//! evenly. The reader is traced; from the profile, more and more of the file is moved, and the same
//! reads are timed on each state, paired with those on the original file and on the file moved as a
//! whole. The expected results (issue: "What it must show"):
//!
//! - `indef`, which learned from the trace, is nowhere more than 2 points below the `oracle`, which
//!   gets the true counts;
//! - at skew 1.4 a tenth of the bytes gives at least 95 % of the gain of moving all;
//! - the prediction of `--target-gain` is within 5 points of the result.
//!
//! A gain is the part of the time that moving all saves. `fragpicker` keeps the hottest share;
//! `whole` goes from front to back, as the conventional tools do.
//!
//! Not covered: the host below this machine, whose caches cannot be dropped from here, serves
//! repeated reads faster than a device would. It does so for every state, and requests are counted,
//! too.

mod curve;
mod reader;
mod timing;

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
    time::SystemTime,
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use indef_trace::{TracedFile, store::Store};
use scratch_fs::ScratchFs;
use units::Bytes;
use workloads::zipf::Zipf;

use super::{
    common::Common,
    measure,
    report::{Report, Verdict},
    state::{FOLDER, Files, StartState},
};
use curve::{Curve, Point, Target, gain};
use reader::{DirectReader, READ};
use timing::{Cost, paired};

/// The reads, and the shares of the file to move.
#[derive(Args, Clone)]
pub struct ZipfArgs {
    #[command(flatten)]
    pub(super) common: Common,
    /// The file system: ext4, xfs or btrfs
    #[arg(long, default_value = "ext4", value_parser = ["ext4", "xfs", "btrfs"])]
    fs: String,
    /// Size of the file
    #[arg(long, default_value = "1GiB")]
    size: Bytes,
    /// Skews of Zipf's law; 0 reads evenly
    #[arg(long, value_delimiter = ',', default_value = "0,0.8,0.99,1.2,1.4")]
    skews: Vec<f64>,
    /// Shares of the file to move, in percent, ascending
    #[arg(long, value_delimiter = ',', default_value = "1,2,5,10,20,50")]
    shares: Vec<f64>,
    /// Reads that are traced
    #[arg(long, default_value_t = 32_768)]
    reads: u64,
    /// Reads that are timed on each state, a sample of the traced ones
    #[arg(long, default_value_t = 2048)]
    sample: usize,
    /// Write the profile from the known sequence instead of tracing: where BPF is not permitted
    #[arg(long)]
    known: bool,
}

/// Target gains, in percent.
const TARGETS: [f64; 2] = [80.0, 95.0];

/// The reader by itself, as a program that can be traced.
#[derive(Args, Clone)]
pub struct ReaderArgs {
    file: PathBuf,
    #[arg(long)]
    skew: f64,
    #[arg(long)]
    reads: u64,
    #[arg(long)]
    seed: u64,
}

/// Read as the arguments say.
pub(super) fn read(args: &ReaderArgs) -> Result<()> {
    let workload = Zipf {
        skew: args.skew,
        ranges: fs::metadata(&args.file)?.len() / READ.get(),
        reads: args.reads,
        seed: args.seed,
    };
    let mut reader = DirectReader::open(&args.file)?;
    for range in workload.sequence() {
        reader.read(range)?;
    }
    Ok(())
}

/// Measure.
pub(super) fn measure(args: &ZipfArgs, report: &mut Report) -> Result<()> {
    ensure!(
        args.size.get() >= READ.get() * 64 && args.shares.is_sorted(),
        "--size must hold 64 reads of {READ}, and --shares ascend"
    );
    let bench = ZipfBench::new(args)?;
    for &skew in &args.skews {
        let curve = bench.curve(skew)?;
        eprintln!("{curve}");
        judge(&curve, report)?;
    }
    Ok(())
}

/// Put a curve beside what is wanted of it, and into the report.
fn judge(curve: &Curve, report: &mut Report) -> Result<()> {
    let skew = curve.skew;
    let (time, requests) = curve.behind_oracle();
    let mut verdict = |what: &str, value: f64, wanted: f64| {
        let what = format!("{} skew {skew}: {what}", curve.fs);
        report.verdicts.push(match what.contains("a tenth") {
            true => Verdict::at_least(what, value, wanted, " %"),
            false => Verdict::at_most(what, value, wanted, " points"),
        });
    };
    verdict("behind the oracle at worst, in time", time, 2.0);
    verdict("behind the oracle at worst, in requests", requests, 2.0);
    let is_tenth = |p: &&Point| p.contender == "indef" && (9.0..=10.5).contains(&p.moved_pct);
    if let Some(tenth) = curve.points.iter().find(is_tenth).filter(|_| skew >= 1.4) {
        verdict(
            "saved by a tenth of the bytes, in time",
            tenth.time_gain_pct,
            95.0,
        );
        verdict(
            "saved by a tenth of the bytes, in requests",
            tenth.request_gain_pct,
            95.0,
        );
    }
    for t in &curve.targets {
        let off = |measured: f64| (measured - t.predicted_pct).abs();
        let named = |of| format!("off the prediction of {:.0} %, in {of}", t.predicted_pct);
        verdict(&named("time"), off(t.time_gain_pct), 5.0);
        verdict(&named("requests"), off(t.request_gain_pct), 5.0);
    }
    curve.add_to(report);
    report.add("curves", curve)
}

/// A state, and the options that produced it.
struct Moving {
    contender: &'static str,
    scratch: ScratchFs,
    file: PathBuf,
    moved: u64,
}

/// The environment that all workloads share.
struct ZipfBench<'a> {
    args: &'a ZipfArgs,
    indef: PathBuf,
    state: StartState,
    image: PathBuf,
    before: Moving,
    after: Moving,
}

impl<'a> ZipfBench<'a> {
    fn new(args: &'a ZipfArgs) -> Result<Self> {
        let indef = args.common.indef()?;
        let state = StartState {
            fs: match &*args.fs {
                "xfs" => "xfs",
                "btrfs" => "btrfs",
                _ => "ext4",
            },
            // Room for the file, the data between its pieces, and a move of all of it.
            size: args.size * 4 + Bytes::mib(256),
            files: Files::Single(args.size),
        };
        let image = state.prepare(&args.common.images()?)?;
        let mut bench = Self {
            before: start(&state, &image, "before")?,
            after: start(&state, &image, "after")?,
            args,
            indef,
            state,
            image,
        };
        let whole = [&bench.after.file];
        let options = ["--policy", "whole"].map(OsString::from);
        bench.after.moved = run(&bench.indef, &options, whole[0])?;
        Ok(bench)
    }

    fn curve(&self, skew: f64) -> Result<Curve> {
        let workload = Zipf {
            skew,
            ranges: self.args.size.get() / READ.get(),
            reads: self.args.reads,
            seed: 1 + (skew * 100.0) as u64,
        };
        let sequence = workload.sequence();
        let counts = workload.counts(&sequence);
        let profiles = tempfile::tempdir()?;
        let oracle = known_profile(&counts);
        let (learned, traced) = match self.args.known {
            true => (oracle.clone(), false),
            false => (self.traced_profile(&workload, profiles.path())?, true),
        };
        let sample = workload.sample(&sequence, self.args.sample);
        let ranges = counts.iter().filter(|count| **count > 0).count() as f64;
        let mut states = Vec::new();
        for (contender, text) in [
            ("oracle", Some(&oracle)),
            ("indef", Some(&learned)),
            ("fragpicker", Some(&learned)),
            ("whole", None),
        ] {
            let state = start(&self.state, &self.image, contender)?;
            if let Some(text) = text {
                write_profile(&profiles.path().join(contender), text, &state.file)?;
            }
            states.push(state);
        }
        let mut points = Vec::new();
        for &share in &self.args.shares {
            eprintln!("{} skew {skew}: {share} %", self.args.fs);
            for state in &mut states {
                let left = (share / 100.0 * self.args.size.get() as f64) as u64;
                let budget = left.saturating_sub(state.moved);
                if budget < READ.get() {
                    continue;
                }
                let hot = (share * workload.ranges as f64 / ranges).min(100.0);
                let profile = profiles.path().join(state.contender);
                let options = options(state.contender, &profile, budget, hot);
                state.moved += run(&self.indef, &options, &state.file)?;
            }
            let (costs, before, after) = self.timed(&states, &sample)?;
            for (state, now) in states.iter().zip(costs) {
                let (time_gain_pct, request_gain_pct) = gain(before, after, now);
                points.push(Point {
                    contender: state.contender,
                    moved_pct: self.moved_pct(state),
                    mib_per_s: mib_per_s(now),
                    time_gain_pct,
                    request_gain_pct,
                });
            }
            if Some(&share) == self.args.shares.last() {
                for (contender, cost) in [("before", before), ("after", after)] {
                    points.push(Point {
                        contender,
                        moved_pct: if contender == "after" { 100.0 } else { 0.0 },
                        mib_per_s: mib_per_s(cost),
                        time_gain_pct: gain(before, after, cost).0,
                        request_gain_pct: gain(before, after, cost).1,
                    });
                }
            }
        }
        drop(states);
        points.sort_by_key(|p| p.contender);
        Ok(Curve {
            fs: self.state.fs,
            skew,
            traced,
            points,
            targets: self.targets(&learned, &sample, profiles.path())?,
        })
    }

    /// Predict, move, and measure the result.
    fn targets(&self, learned: &str, sample: &[u32], profiles: &Path) -> Result<Vec<Target>> {
        let mut states = Vec::new();
        let mut predicted = Vec::new();
        for pct in TARGETS {
            let mut state = start(&self.state, &self.image, "target")?;
            let profile = profiles.join("target");
            write_profile(&profile, learned, &state.file)?;
            let profile = profile.as_os_str().to_owned();
            let options: Vec<OsString> = [
                "--target-gain",
                &pct.to_string(),
                "--ignore-times",
                "--profile",
            ]
            .map(OsString::from)
            .into_iter()
            .chain([profile])
            .collect();
            let plan = call(&self.indef, "plan", &options, &state.file)?;
            let prediction = plan["prediction"]["gain_pct"].as_f64();
            predicted.push(prediction.context("the plan predicts nothing")?);
            state.moved = run(&self.indef, &options, &state.file)?;
            states.push(state);
        }
        let (costs, before, after) = self.timed(&states, sample)?;
        let target = |((state, now), predicted_pct): ((&Moving, Cost), f64)| {
            let (time_gain_pct, request_gain_pct) = gain(before, after, now);
            Target {
                predicted_pct,
                moved_pct: self.moved_pct(state),
                time_gain_pct,
                request_gain_pct,
            }
        };
        Ok(states
            .iter()
            .zip(costs)
            .zip(predicted)
            .map(target)
            .collect())
    }

    /// The cost of the reads on these states, before, and after moving all.
    fn timed(&self, states: &[Moving], sample: &[u32]) -> Result<(Vec<Cost>, Cost, Cost)> {
        let all: Vec<(&ScratchFs, &Path)> = states
            .iter()
            .chain([&self.before, &self.after])
            .map(|state| (&state.scratch, &*state.file))
            .collect();
        let mut costs = paired(&all, sample, self.args.common.runs)?;
        let after = costs.pop().context("a state was timed")?;
        let undisturbed = after.reads as usize;
        if undisturbed < sample.len() {
            let all = sample.len();
            eprintln!("  {undisturbed} of {all} reads were undisturbed, only these are timed");
        }
        let before = costs.pop().context("a state was timed")?;
        Ok((costs, before, after))
    }

    fn moved_pct(&self, state: &Moving) -> f64 {
        state.moved as f64 * 100.0 / self.args.size.get() as f64
    }

    /// Trace the reader on the original file, and export the recorded accesses from the store as
    /// text.
    fn traced_profile(&self, workload: &Zipf, folder: &Path) -> Result<String> {
        measure::drop_caches(&self.before.scratch)?;
        let store = folder.join("store");
        let mut trace: Vec<OsString> = vec![self.indef.clone().into(), "trace".into()];
        trace.extend(["-o".into(), store.clone().into()]);
        trace.extend(["--layer", "fs", "--half-life", "0s", "--quiet"].map(OsString::from));
        trace.extend(["--max-overhead", "off", "--"].map(OsString::from));
        trace.push(std::env::current_exe()?.into());
        trace.extend(["bench", "zipf-reader"].map(OsString::from));
        trace.push(self.before.file.clone().into());
        for (name, value) in [
            ("--skew", workload.skew.to_string()),
            ("--reads", workload.reads.to_string()),
            ("--seed", workload.seed.to_string()),
        ] {
            trace.extend([name.into(), value.into()]);
        }
        measure::run(&trace)?;
        learned_profile(&store, &self.before.file)
    }
}

/// A fresh copy of the image, mounted.
fn start(state: &StartState, image: &Path, contender: &'static str) -> Result<Moving> {
    let scratch = state.restore(image)?;
    Ok(Moving {
        contender,
        file: scratch.path().join(FOLDER).join("file"),
        scratch,
        moved: 0,
    })
}

/// The options of `indef run` that continue a contender from its present state.
fn options(contender: &str, profile: &Path, budget: u64, hot: f64) -> Vec<OsString> {
    let budget = budget.to_string();
    let words: Vec<&str> = match contender {
        "whole" => vec!["--policy", "sequential", "--budget", &budget],
        "fragpicker" => vec!["--policy", "fragpicker"],
        _ => vec!["--policy", "indef", "--truncate", "0", "--budget", &budget],
    };
    let mut words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
    if contender == "fragpicker" {
        words.extend(["--hot".into(), format!("{hot:.4}").into()]);
    }
    if contender != "whole" {
        words.extend(["--profile".into(), profile.into(), "--ignore-times".into()]);
    }
    words
}

/// Move. Returns the number of bytes.
fn run(indef: &Path, options: &[OsString], file: &Path) -> Result<u64> {
    let moved = &call(indef, "run", options, file)?["totals"]["bytes_relocated"];
    moved.as_u64().context("a run tells what it moved")
}

fn call(indef: &Path, verb: &str, options: &[OsString], file: &Path) -> Result<serde_json::Value> {
    // What somebody probed here, or left half done, is not of this benchmark; nor is what it does of their history.
    let state = tempfile::tempdir()?;
    let output = Command::new(indef)
        .env("STATE_DIRECTORY", state.path())
        .args([verb, "--json"])
        .args(options)
        .arg(file)
        .output()
        .with_context(|| format!("cannot run {}", indef.display()))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success() && errors.is_empty(),
        "indef {verb} {options:?}: {}: {errors}",
        output.status
    );
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The placeholder for the file's path in the text of a profile.
const PLACE: &str = "\u{1}";

/// The true counts, as a profile.
fn known_profile(counts: &[u64]) -> String {
    let mut text = format!("indef-profile 1\nfile 0 - - {PLACE}\n");
    for (range, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let offset = range as u64 * READ.get();
        text += &format!("range 0 {offset} {} reads={count} writes=0\n", READ.get());
    }
    text
}

/// The accesses to a file in a store, as a profile that is valid for every copy of it.
fn learned_profile(store: &Path, file: &Path) -> Result<String> {
    let heat = Store::open(store)?.load(SystemTime::now())?;
    let status = fs::metadata(file)?;
    let is_file =
        |traced: &TracedFile| (traced.key.dev, traced.key.inode) == (status.dev(), status.ino());
    let index = heat.files.iter().position(is_file);
    let index = index.with_context(|| format!("the trace did not see {}", file.display()))?;
    let mut text = format!("indef-profile 1\nfile 0 - - {PLACE}\n");
    for (_, access) in heat.ranges.iter().filter(|(of, _)| *of as usize == index) {
        let (range, seen) = (access.range, access.observed);
        text += &format!(
            "range 0 {} {} reads={} writes={}",
            range.start.get(),
            range.len.get(),
            access.reads,
            access.writes
        );
        if seen.requests > 0 {
            text += &format!(" requests={}", seen.requests);
        }
        if seen.timed > 0 {
            text += &format!(" timed={} time={}", seen.timed, seen.time.get());
        }
        text.push('\n');
    }
    Ok(text)
}

fn write_profile(to: &Path, text: &str, file: &Path) -> Result<()> {
    let name = file.to_str().context("a path in ASCII")?;
    Ok(fs::write(to, text.replace(PLACE, name))?)
}

fn mib_per_s(cost: Cost) -> f64 {
    let mib = cost.reads as f64 * READ.get() as f64 / f64::from(1 << 20);
    mib / (cost.time_ns as f64 / 1e9)
}

#[cfg(test)]
mod tests;
