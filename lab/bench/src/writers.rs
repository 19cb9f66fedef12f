//! An application that writes to a file while it is moved: fio, with verification.
//!
//! fio writes random blocks of a fragmented file at a fixed rate, each with a checksum, and reads
//! all of them back at the end; any byte that a relocation lost is an error of fio, and so of this
//! benchmark. The longest write is compared with the longest of the same job on an equal copy on
//! which nothing else runs: the difference is indef's addition, and `--max-stall` is its bound.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    thread::sleep,
    time::Duration,
};

use anyhow::{Context, Result};
use clap::Args;
use fio::Fio;
use stage::Fs;
use units::{Bytes, Nanos};

use super::{
    common::Common,
    measure,
    report::{ContenderRuns, Report, Verdict},
    state::{FOLDER, Files, StartState},
};

const SIZE: Bytes = Bytes::gib(1);

/// The part of the measurement.
#[derive(Args)]
pub struct WritersArgs {
    #[command(flatten)]
    pub(super) common: Common,
    /// Only this file system
    #[arg(long)]
    fs: Option<Fs>,
    /// The bound given to indef in milliseconds; 50 is its own default
    #[arg(long, value_name = "MS", default_value_t = 50)]
    max_stall: u32,
}

/// Measure on each file system, with direct and with buffered writes.
pub(super) fn measure(args: &WritersArgs, report: &mut Report) -> Result<()> {
    for fs in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        if args.fs.is_some_and(|only| only != fs) {
            continue;
        }
        for direct in [true, false] {
            pair(fs.name(), direct, args, report)?;
        }
    }
    Ok(())
}

fn pair(fs: &'static str, direct: bool, args: &WritersArgs, report: &mut Report) -> Result<()> {
    let WritersArgs {
        common, max_stall, ..
    } = args;
    let indef = common.indef()?;
    let state = StartState {
        fs,
        size: Bytes::gib(6),
        files: Files::Single(SIZE),
    };
    let image = state.prepare(&common.images()?)?;
    let way = if direct { "direct" } else { "buffered" };
    let case = format!("{fs} 1 GiB beside fio, {way}, --max-stall {max_stall}");
    let contenders = [
        ("fio alone", None),
        ("fio beside indef run", Some(indef.as_path())),
    ];
    let (mut rows, mut longest) = (Vec::new(), [Vec::new(), Vec::new()]);
    for (contender, _) in contenders {
        rows.push(ContenderRuns {
            case: case.clone(),
            contender: contender.to_owned(),
            command: format!(
                "fio {}",
                measure::describe(&options(Path::new("FILE"), direct))
            ),
            extents_before: None,
            samples: Vec::new(),
        });
    }
    for _ in 0..common.runs {
        for (index, (contender, program)) in contenders.into_iter().enumerate() {
            eprintln!("{case}: {contender}");
            let scratch = state.restore(&image)?;
            let file = scratch.path().join(FOLDER).join("file");
            rows[index].extents_before = Some(measure::extents(std::slice::from_ref(&file))?);
            measure::drop_caches(&scratch)?;
            let mut sample = measure::timed(&scratch, || {
                longest[index].push(write_beside(&file, direct, program, *max_stall)?);
                Ok(None)
            })?;
            sample.extents_after = Some(measure::extents(&[file])?);
            rows[index].samples.push(sample);
        }
    }
    for (row, longest) in rows.iter().zip(&longest) {
        let samples: Vec<f64> = longest.iter().map(|it| it.get() as f64).collect();
        report.figure(&case, &row.contender, "longest_write_ns", &samples);
    }
    report.rows.extend(rows);
    let [alone, beside] = longest.map(|mut all| {
        all.sort_unstable();
        all[all.len() / 2].get() as f64 / 1e6
    });
    report.verdicts.push(Verdict::at_most(
        format!("{case}: longest write {beside:.1} ms, alone {alone:.1} ms; difference"),
        beside - alone,
        f64::from(*max_stall),
        " ms",
    ));
    Ok(())
}

/// Run fio, and `indef run` in the middle of it. Returns the longest write.
fn write_beside(file: &Path, direct: bool, indef: Option<&Path>, max_stall: u32) -> Result<Nanos> {
    let fio = Fio::start(options(file, direct))?;
    if let Some(program) = indef {
        sleep(Duration::from_secs(1));
        let stall = max_stall.to_string();
        let options = ["run", "--quiet", "--max-stall", &stall].map(OsString::from);
        let command: Vec<OsString> = std::iter::once(PathBuf::from(program).into())
            .chain(options)
            .chain([file.into()])
            .collect();
        measure::run(&command)?;
    }
    let report = fio.finish().context("a write was lost or failed")?;
    Ok(Nanos(report.job("writer")?.write.whole.max))
}

/// The options for 40,000 writes of 4 KiB in 20 seconds, then all of them read back.
fn options(file: &Path, direct: bool) -> Vec<OsString> {
    let mut name = OsString::from("--filename=");
    name.push(file);
    let mut options: Vec<OsString> = [
        "--name=writer",
        "--rw=randwrite",
        "--bs=4k",
        "--size=1g",
        "--io_size=160m",
        "--rate_iops=,2000",
        "--ioengine=psync",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--verify_state_save=0",
        "--randseed=7",
    ]
    .map(OsString::from)
    .to_vec();
    options.push(if direct { "--direct=1" } else { "--direct=0" }.into());
    options.push(name);
    options
}
