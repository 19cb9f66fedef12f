//! The gain of defragmenting a file, as `indef probe` and `indef plan --weight device` foretell it and as measured.
//!
//! Each device is a flashd with a file system. indef probes it; files are aged, each in fragments of one
//! length; the plan of each foretells the part of the time of its reads that moving it saves. The file
//! is read, one read at a time, moved by indef, and read again. Deviations are in points.
//!
//! The devices are also those on which a probe foretells less well: pages of different speed, a narrow link. A plan
//! foretells only of what it moves; where that is not nearly all of what is then moved and read, a verdict says so.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use scratch_fs::{FragmentOptions, fragment};
use serde_json::Value;
use stage::Stage;
use tempfile::TempDir;
use units::Bytes;

use crate::{
    common::Common,
    measure,
    median::median,
    predictions::{Mode, Readers, saved_pct},
    report::{Report, Verdict},
};

/// How far a prediction may be off, in points.
const NEAR: f64 = 10.0;
/// The percentage of the bytes moved of which the plan has to foretell.
const ALL: f64 = 95.0;

/// The devices, and the files on them.
#[derive(Args, Clone)]
pub struct ProbeGainArgs {
    #[command(flatten)]
    pub(super) common: Common,
    /// Devices: profiles of flashd
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "fast24,indef-femu,zn540,tlc,qlc,sata-mx500,optane-905p"
    )]
    devices: Vec<String>,
    /// Lengths of fragments, a file of each
    #[arg(long, value_delimiter = ',', default_value = "4KiB,16KiB,64KiB")]
    pieces: Vec<Bytes>,
    /// Size of a file
    #[arg(long, default_value = "32MiB")]
    size: Bytes,
    /// Size of the probe's file
    #[arg(long, default_value = "128MiB")]
    probe_size: Bytes,
    /// Seconds that the probe may take
    #[arg(long, default_value_t = 90)]
    probe_seconds: u32,
    /// Seconds of each timed run
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// flashd's devices are slower by this factor, so that the way to them weighs less
    #[arg(long, default_value_t = 10.0)]
    time_scale: f64,
}

/// Measure.
pub(super) fn measure(args: &ProbeGainArgs, report: &mut Report) -> Result<()> {
    let indef = args.common.indef()?;
    for device in &args.devices {
        // Room for the files, what lies between their fragments, and a move.
        let files = args.size.get() * args.pieces.len() as u64;
        let size = Bytes(files * 3) + args.probe_size * 2 + Bytes::mib(512);
        let ground = Ground {
            args,
            indef: &indef,
            stage: args.common.ext4(device, size, args.time_scale)?,
            state: tempfile::tempdir()?,
        };
        let probed = ground.probe()?;
        let Some(geometry) = probed["geometry"].as_str() else {
            let why = &probed["unknown"]["granularity_bytes"];
            eprintln!("{device}: nothing to foretell: {why}");
            report
                .verdicts
                .push(Verdict::at_least(format!("{device}: probed"), 0.0, 1.0, ""));
            continue;
        };
        eprintln!("{device}: {geometry}");
        // A move leaves free space in one piece: all files are aged before the first one.
        args.pieces
            .iter()
            .try_for_each(|piece| ground.age(*piece))?;
        // What lies in an SLC cache is read faster.
        ground.stage.settle()?;
        for piece in &args.pieces {
            measure::ensure_not_stopped()?;
            let case = format!("{device} in fragments of {piece}");
            let Gains {
                foretold,
                measured,
                planned,
            } = ground.gains(*piece)?;
            let middle = median(measured.iter().copied());
            eprintln!("{case}: {foretold:.1} % foretold, {middle:.1} % measured");
            report.figure(&case, "probe", "foretold_pct", &[foretold]);
            report.figure(&case, "probe", "measured_pct", &measured);
            report.figure(&case, "probe", "planned_pct", &[planned]);
            let off = (foretold - middle).abs();
            let off = Verdict::at_most(format!("{case}: off"), off, NEAR, " points");
            let of_all = format!("{case}: planned of what was moved");
            let of_all = Verdict::at_least(of_all, planned, ALL, " %");
            report.verdicts.extend([off, of_all]);
        }
    }
    Ok(())
}

/// What moving a file saves of the time of its reads, in percent.
struct Gains {
    foretold: f64,
    /// In each run after the move, of the median before.
    measured: Vec<f64>,
    /// The bytes that the plan moves, of those that were moved.
    planned: f64,
}

/// A file system on a device.
struct Ground<'a> {
    args: &'a ProbeGainArgs,
    indef: &'a Path,
    stage: Stage,
    /// indef's own.
    state: TempDir,
}

impl Ground<'_> {
    fn indef(&self, arguments: &[&str], path: &Path) -> Result<Value> {
        let mut command = Command::new(self.indef);
        command.env("STATE_DIRECTORY", self.state.path());
        let text = measure::text(command.args(arguments).arg("--json").arg(path))?;
        serde_json::from_str(&text).with_context(|| format!("indef {arguments:?}: {text}"))
    }

    fn probe(&self) -> Result<Value> {
        let size = self.args.probe_size.get().to_string();
        let limit = format!("{}s", self.args.probe_seconds);
        let arguments = ["probe", "--size", &size, "--time-limit", &limit];
        self.indef(&arguments, &self.stage.path())
    }

    fn file(&self, piece: Bytes) -> PathBuf {
        self.stage.path().join(format!("in-{}", piece.get()))
    }

    fn age(&self, piece: Bytes) -> Result<()> {
        let options = FragmentOptions {
            size: self.args.size,
            piece,
            seed: 1,
        };
        let path = self.file(piece);
        fragment(&path, options).with_context(|| format!("cannot make {}", path.display()))
    }

    /// Plan, read, move and read again.
    fn gains(&self, piece: Bytes) -> Result<Gains> {
        let file = self.file(piece);
        let plan = self.indef(&["plan", "--weight", "device"], &file)?;
        let foretold = plan["read_time"]["saved_pct"].as_f64();
        let foretold = foretold.with_context(|| format!("the plan foretells no time: {plan}"))?;
        let before = self.read(&file)?;
        let ran = self.indef(&["run", "--policy", "whole"], &file)?;
        ensure!(ran["totals"]["files_moved"] == 1, "not moved: {ran}");
        self.stage.settle()?;
        let bytes = |of: &Value, name: &str| of["totals"][name].as_f64().unwrap_or(0.0);
        let moved = bytes(&ran, "bytes_relocated").max(1.0);
        Ok(Gains {
            foretold,
            measured: saved_pct(&before, &self.read(&file)?),
            planned: bytes(&plan, "cost_bytes") / moved * 100.0,
        })
    }

    /// The mean time of a read in each run.
    fn read(&self, file: &Path) -> Result<Vec<f64>> {
        let readers = Readers {
            common: &self.args.common,
            file,
            depth: 1,
            mode: Mode::Direct,
            by_device: None,
        };
        readers.timed(&self.stage, self.args.seconds, self.args.common.runs)
    }
}
