//! The time of a read as `indef plan --weight measured --calibrate` predicts it, against the measured one.
//!
//! For each case (device, direct or buffered, readers) there is a file of its own on an aged file
//! system, of ranges of 128 KiB in 1 to 32 fragments. Its readers, which each wait for their read, are
//! timed, and traced; from the profile two plans are made, one of all and one with `--target-gain`, and
//! their predictions noted. The second is carried out and the same readers are timed again; then the
//! first, which does not move ranges that the trace did not see. Where indef says that there is nothing to
//! gain, all of the file is moved instead. A gain is the part of the mean time of a read that is saved; the
//! deviation is in points.
//! Times are compared with those of a twin, a file of the same shape that stays as it is, read in turns
//! with it.

mod load;

use std::{
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use scratch_fs::{Segment, Shape};
use serde::Serialize;
use serde_json::Value;
use stage::Stage;
use units::Bytes;
use workloads::Numbers;

use super::{
    common::Common,
    measure,
    median::median,
    report::{Report, Verdict},
};
use load::READ;
pub(super) use load::{LoadArgs, Mode, Readers, load};

/// Bytes of the fragments of ranges: of eight each, in any order.
const PIECES: [u64; 8] = [128, 4, 32, 128, 8, 64, 128, 16];

/// How far a prediction may be off, in points.
const NEAR: f64 = 10.0;

/// The cases to predict.
#[derive(Args, Clone)]
pub struct PredictionsArgs {
    #[command(flatten)]
    pub(super) common: Common,
    /// Devices: loop, or profiles of flashd
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "loop,fast24,indef-femu,zn540,zero"
    )]
    devices: Vec<String>,
    /// Readers at the same time
    #[arg(long, value_delimiter = ',', default_value = "1,8,32")]
    depths: Vec<u32>,
    /// With O_DIRECT, through the page cache, or through it by readers that say that they read at random
    #[arg(long, value_delimiter = ',', default_value = "direct,buffered,random")]
    modes: Vec<Mode>,
    /// Size of the file of a case
    #[arg(long, default_value = "64MiB")]
    size: Bytes,
    /// Seconds that readers are traced
    #[arg(long, default_value_t = 15.0)]
    trace: f64,
    /// Seconds of each timed run
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// The second plan: `--target-gain` of this
    #[arg(long, default_value_t = 50.0)]
    target: f64,
    /// flashd's devices are slower by this factor, so that the way to them weighs less
    #[arg(long, default_value_t = 5.0)]
    time_scale: f64,
    /// Measure what a prediction is of, the time from the first request of a read queued to the last one done,
    /// instead of the whole call
    #[arg(long)]
    by_device: bool,
}

/// Percent of the time that each run after a move saved.
pub(super) fn saved_pct(before: &[f64], after: &[f64]) -> Vec<f64> {
    let before = median(before.iter().copied());
    let saved = after.iter().map(|after| (1.0 - after / before) * 100.0);
    saved.collect()
}

/// One prediction, and what came.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Prediction {
    device: String,
    mode: Mode,
    depth: u32,
    /// `all`, or the target gain.
    plan: String,
    /// The mean time of a read ÷ that of the twin, in each run.
    before: Vec<f64>,
    after: Vec<f64>,
    /// Percent of the time saved; null where indef says that it cannot tell.
    predicted_pct: Option<f64>,
    error_pct: Option<f64>,
    measured_pct: f64,
    /// Why it cannot tell.
    unknown: Option<String>,
}

impl Prediction {
    /// Keep what the table of the figures shows.
    fn keep(&self, report: &mut Report) {
        let mode = self.mode.as_str();
        let case = format!("{}, {mode}, depth {}", self.device, self.depth);
        let mut figure = |quantity, samples: &[f64]| {
            if !samples.is_empty() {
                report.figure(&case, &self.plan, quantity, samples);
            }
        };
        figure("measured_pct", &saved_pct(&self.before, &self.after));
        figure("predicted_pct", self.predicted_pct.as_slice());
        figure("stated_error_pct", self.error_pct.as_slice());
    }
}

impl fmt::Display for Prediction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = self.mode.as_str();
        write!(
            f,
            "{:11} {mode:8} depth {:2} {:6} ",
            self.device, self.depth, self.plan
        )?;
        match (self.predicted_pct, self.error_pct) {
            (Some(says), Some(error)) => write!(
                f,
                "{says:5.1} % (±{error:.1}) predicted, {:5.1} % measured: off by {:+.1}",
                self.measured_pct,
                says - self.measured_pct
            ),
            _ => write!(
                f,
                "no prediction, {:5.1} % measured: {}",
                self.measured_pct,
                self.unknown.as_deref().unwrap_or("no reason given")
            ),
        }
    }
}

/// Measure.
pub(super) fn measure(args: &PredictionsArgs, report: &mut Report) -> Result<()> {
    ensure!(
        args.size.get() >= READ.get() * 64,
        "--size must hold 64 reads of {READ}"
    );
    let indef = args.common.indef()?;
    for device in &args.devices {
        let cases: Vec<(Mode, u32)> = (args.modes.iter())
            .flat_map(|mode| args.depths.iter().map(|depth| (*mode, *depth)))
            .collect();
        // Room for the files and their twin, what lies between their fragments, and a move.
        let size = Bytes(args.size.get() * (cases.len() as u64 + 1) * 4) + Bytes::mib(512);
        let stage = args.common.ext4(device, size, args.time_scale)?;
        let twin = stage.path().join("twin");
        let cases: Vec<PredictionCase<'_>> = (cases.into_iter().enumerate())
            .map(|(number, (mode, depth))| PredictionCase {
                args,
                indef: &indef,
                stage: &stage,
                device,
                twin: &twin,
                mode,
                depth,
                file: stage.path().join(format!("file{number}")),
            })
            .collect();
        // A move leaves free space in one piece: all files are aged before the first one.
        age(&twin, args.size)?;
        (cases.iter()).try_for_each(|case| age(&case.file, args.size))?;
        stage.settle()?;
        for case in &cases {
            let (mode, depth) = (case.mode, case.depth);
            for prediction in case.measure()? {
                eprintln!("{prediction}");
                if let Some(says) = prediction.predicted_pct {
                    let what = format!(
                        "{device} {:?} depth {depth}, {}: prediction off",
                        mode, prediction.plan
                    );
                    let off = (says - prediction.measured_pct).abs();
                    report
                        .verdicts
                        .push(Verdict::at_most(what, off, NEAR, " points"));
                }
                prediction.keep(report);
                report.add("predictions", &prediction)?;
            }
        }
    }
    Ok(())
}

/// Make a file of ranges in all kinds of fragments, in any order: at equal distances the contiguous ones would all lie on the same
/// dies, and wait for each other there.
fn age(file: &Path, size: Bytes) -> Result<()> {
    let ranges = 0..(size.get() / READ.get()) as usize;
    let mut pieces: Vec<u64> = ranges.map(|range| PIECES[range % PIECES.len()]).collect();
    Numbers::new(1).shuffle(&mut pieces);
    let mut shape = Shape::new(1);
    for piece in pieces {
        shape = shape.with(Segment::Data {
            len: READ,
            piece: Bytes::kib(piece),
        });
    }
    (shape.roughly().make(file)).with_context(|| format!("cannot make {}", file.display()))?;
    Ok(())
}

struct PredictionCase<'a> {
    args: &'a PredictionsArgs,
    indef: &'a Path,
    stage: &'a Stage,
    device: &'a str,
    twin: &'a Path,
    mode: Mode,
    depth: u32,
    file: PathBuf,
}

impl PredictionCase<'_> {
    fn measure(&self) -> Result<Vec<Prediction>> {
        measure::ensure_not_stopped()?;
        let before = self.timed()?;
        let folder = tempfile::tempdir()?;
        let profile = folder.path().join("profile");
        let mut trace: Vec<OsString> = vec![self.indef.into(), "trace".into(), "-o".into()];
        trace.push(profile.clone().into());
        trace.extend(["--layer", "fs", "--quiet", "--"].map(OsString::from));
        trace.extend(self.readers().command(self.args.trace, 99)?);
        self.stage.drop_caches()?;
        self.command(&trace)?;
        let all: [OsString; 2] = ["--truncate".into(), "0".into()];
        let part = ["--target-gain".into(), self.args.target.to_string().into()];
        let (whole_file, part_file) = (folder.path().join("whole"), folder.path().join("part"));
        let whole_plan = self.plan(&profile, &all, &whole_file)?;
        let part_plan = self.plan(&profile, &part, &part_file)?;
        if whole_plan["nothing_to_gain"].is_string() {
            let whole = ["--policy".into(), "whole".into(), self.file.clone().into()];
            let with_all = self.after(whole)?;
            return Ok(vec![self.prediction(
                "all".to_owned(),
                &whole_plan,
                &before,
                with_all,
            )]);
        }
        let with_part = self.after(["--plan".into(), part_file.into()])?;
        let with_all = self.after(["--plan".into(), whole_file.into()])?;
        let target = format!("{} %", self.args.target);
        Ok(vec![
            self.prediction(target, &part_plan, &before, with_part),
            self.prediction("all".to_owned(), &whole_plan, &before, with_all),
        ])
    }

    /// `indef run` with this, and time the readers again when the device has settled: what it may still do with what was moved is
    /// not of the layout.
    fn after(&self, what: impl IntoIterator<Item = OsString>) -> Result<Vec<f64>> {
        let mut run: Vec<OsString> = vec![self.indef.into(), "run".into(), "--quiet".into()];
        run.extend(what);
        self.command(&run)?;
        self.stage.settle()?;
        self.timed()
    }

    fn readers(&self) -> Readers<'_> {
        Readers {
            common: &self.args.common,
            file: &self.file,
            depth: self.depth,
            mode: self.mode,
            by_device: self.args.by_device.then_some(self.indef),
        }
    }

    /// The mean time of a read ÷ that of the twin, in each run.
    fn timed(&self) -> Result<Vec<f64>> {
        let args = self.args;
        let (seconds, runs) = (args.seconds, args.common.runs);
        (self.readers()).timed_beside(self.twin, self.stage, seconds, runs)
    }

    /// Plan, keep the plan, and return the document.
    fn plan(&self, profile: &Path, options: &[OsString], into: &Path) -> Result<Value> {
        let mut plan: Vec<OsString> = vec![self.indef.into(), "plan".into(), "--json".into()];
        let calibrate = match self.mode {
            // What is measured are whole calls.
            Mode::Buffered | Mode::Random if !self.args.by_device => "--calibrate=buffered",
            _ => "--calibrate",
        };
        plan.extend(["--weight", "measured", calibrate, "--profile"].map(OsString::from));
        plan.push(profile.into());
        plan.extend_from_slice(options);
        plan.extend(["-o".into(), into.into()]);
        plan.push(self.file.clone().into());
        self.stage.drop_caches()?;
        Ok(serde_json::from_str(&self.command(&plan)?)?)
    }

    fn prediction(
        &self,
        plan: String,
        said: &Value,
        before: &[f64],
        after: Vec<f64>,
    ) -> Prediction {
        let told = &said["read_time"];
        let nothing = said["nothing_to_gain"].as_str();
        // "Nothing to gain" is a prediction, too.
        let number = |name: &str| told[name].as_f64().or(nothing.map(|_| 0.0));
        let why = told["unknown"]
            .as_str()
            .or(said["weights_refused"].as_str());
        Prediction {
            device: self.device.to_owned(),
            mode: self.mode,
            depth: self.depth,
            plan,
            predicted_pct: number("saved_pct"),
            error_pct: number("error_pct"),
            measured_pct: median(saved_pct(before, &after)),
            unknown: why.map(str::to_owned),
            before: before.to_vec(),
            after,
        }
    }

    fn command(&self, command: &[OsString]) -> Result<String> {
        // What somebody probed here, or left half done, is not of this benchmark; nor is what it does of their history.
        let state = tempfile::tempdir()?;
        let output = Command::new(&command[0])
            .env("STATE_DIRECTORY", state.path())
            .args(&command[1..])
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            bail!(
                "{}: {}: {errors}",
                measure::describe(command),
                output.status
            );
        }
        Ok(text)
    }
}
