//! Scans 100,000 files, on each file system; on ext4 also fragmented ones.

use std::{ffi::OsString, fmt, path::Path};

use anyhow::Result;
use scratch_fs::ScratchFs;
use units::Bytes;

use super::{
    common::Common,
    measure,
    peers::Fs,
    report::{ContenderRuns, Report, Verdict},
    state::{FOLDER, Files, StartState},
};

const FILES: u32 = 100_000;
/// Fragments of each file where all are fragmented: more than an inode of ext4 holds.
const PIECES: u32 = 8;

/// Measure on each file system.
pub(super) fn measure(common: &Common, report: &mut Report) -> Result<()> {
    for fs in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        let files = Files::Tree(FILES);
        one(fs, Bytes::gib(2), files, "100,000 files", common, report)?;
    }
    let (files, named) = (Files::Scattered(FILES, PIECES), "100,000 files in 8 pieces");
    one(Fs::Ext4, Bytes::gib(8), files, named, common, report)
}

/// Measure, with cold and with warm caches. Neither changes anything, so one mount is enough.
fn one(
    fs: Fs,
    size: Bytes,
    files: Files,
    named: &str,
    common: &Common,
    report: &mut Report,
) -> Result<()> {
    let fs = fs.name();
    let state = StartState { fs, size, files };
    let indef = common.indef()?;
    let image = state.prepare(&common.images()?)?;
    let scratch = state.restore(&image)?;
    let folder = scratch.path().join(FOLDER);
    let ours: Vec<OsString> = vec![indef.into(), "scan".into(), folder.clone().into()];
    let theirs = find_filefrag(&folder);

    for cache in [Cache::Cold, Cache::Warm] {
        let case = &format!("{fs} {named}, {cache}");
        let commands = [("indef scan", &ours), ("find | xargs filefrag", &theirs)];
        let mut rows = contenders(case, commands);
        for run in 1..=common.runs {
            let told = format!("{case}: run {run} of {}", common.runs);
            in_turn(&told, &mut rows, commands, cache, &theirs, &scratch)?;
        }
        let ratio = rows[1].duration().as_secs_f64() / rows[0].duration().as_secs_f64();
        report.rows.extend(rows);
        report.verdicts.push(Verdict::at_least(
            format!("{case}, find | xargs filefrag / indef"),
            ratio,
            least(fs, files, cache),
            "×",
        ));
    }
    Ok(())
}

/// How many times as fast as the peer a scan is at least.
fn least(fs: &str, files: Files, cache: Cache) -> f64 {
    match (fs, files, cache) {
        // A block of the extent tree for each file, which the device reads one by one for both.
        (_, Files::Scattered(..), Cache::Cold) => 1.0,
        (_, Files::Scattered(..), Cache::Warm) => 1.5,
        // Bulk statistics take the kernel half the time of opening each file, and the device as long.
        ("xfs", _, Cache::Cold) => 1.5,
        ("xfs", _, Cache::Warm) => 3.0,
        _ => 5.0,
    }
}

/// What is in the caches when a command begins.
#[derive(Clone, Copy)]
enum Cache {
    Cold,
    Warm,
}

impl fmt::Display for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cold => "cold",
            Self::Warm => "warm",
        })
    }
}

/// A contender with its command.
type Named<'a> = (&'static str, &'a Vec<OsString>);

fn contenders<const N: usize>(case: &str, commands: [Named<'_>; N]) -> [ContenderRuns; N] {
    commands.map(|(contender, command)| ContenderRuns {
        case: case.to_owned(),
        contender: contender.to_owned(),
        command: measure::describe(command),
        extents_before: None,
        samples: Vec::new(),
    })
}

/// Time each command once. `warming` fills the caches before each, so that the first one does not find them
/// colder than the others.
fn in_turn<const N: usize>(
    told: &str,
    rows: &mut [ContenderRuns; N],
    commands: [Named<'_>; N],
    cache: Cache,
    warming: &[OsString],
    scratch: &ScratchFs,
) -> Result<()> {
    for (row, (_, command)) in rows.iter_mut().zip(commands) {
        eprintln!("{told}: {}", row.contender);
        match cache {
            Cache::Cold => measure::drop_caches(scratch)?,
            Cache::Warm => {
                measure::run(warming)?;
            }
        }
        row.samples.push(measure::timed(scratch, || {
            Ok(Some(measure::run(command)?))
        })?);
    }
    Ok(())
}

fn find_filefrag(folder: &Path) -> Vec<OsString> {
    let pipe = "find \"$0\" -type f -print0 | xargs -0 filefrag";
    let command: Vec<OsString> = ["sh", "-c", pipe].map(OsString::from).into();
    [command, vec![folder.into()]].concat()
}
