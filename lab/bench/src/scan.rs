//! Scans 100,000 files, on each file system; on ext4 also fragmented ones of which one in a hundred has
//! changed since the last scan.

use std::{ffi::OsString, fmt, fs::File, os::unix::fs::FileExt, path::Path};

use anyhow::Result;
use scratch_fs::ScratchFs;
use units::Bytes;

use super::{
    common::Common,
    measure,
    peers::Fs,
    report::{ContenderRuns, Report, Verdict},
    state::{FOLDER, Files, StartState, scattered_path},
};

const FILES: u32 = 100_000;

/// Measure on each file system.
pub(super) fn measure(common: &Common, report: &mut Report) -> Result<()> {
    for fs in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        one(fs.name(), common, report)?;
    }
    again(common, report)
}

/// Measure, with cold and with warm caches. Neither changes anything, so one mount is enough.
fn one(fs: &'static str, common: &Common, report: &mut Report) -> Result<()> {
    let state = StartState {
        fs,
        size: Bytes::gib(2),
        files: Files::Tree(FILES),
    };
    let indef = common.indef()?;
    let image = state.prepare(&common.images()?)?;
    let scratch = state.restore(&image)?;
    let folder = scratch.path().join(FOLDER);
    let ours: Vec<OsString> = vec![indef.into(), "scan".into(), folder.clone().into()];
    let theirs = find_filefrag(&folder);

    for cache in [Cache::Cold, Cache::Warm] {
        let case = &format!("{fs} 100,000 files, {cache}");
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
            // The inode tables can be read at once only on ext4.
            if fs == "ext4" { 5.0 } else { 1.0 },
            "×",
        ));
    }
    Ok(())
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

/// Fragments of a file that is scanned again: more than an inode holds.
const PIECES: u32 = 8;

/// Scan fragmented files again, with cold and with warm caches, after one in a hundred has changed: what an
/// earlier scan keeps against `--full`.
fn again(common: &Common, report: &mut Report) -> Result<()> {
    let state = StartState {
        fs: Fs::Ext4.name(),
        size: Bytes::gib(8),
        files: Files::Scattered(FILES, PIECES),
    };
    let indef = common.indef()?;
    let image = state.prepare(&common.images()?)?;
    let scratch = state.restore(&image)?;
    let folder = scratch.path().join(FOLDER);
    let memories = tempfile::tempdir()?;
    let scan = |memory: &str, further: &[&str]| {
        let mut memory_is = OsString::from("STATE_DIRECTORY=");
        memory_is.push(memories.path().join(memory));
        let words = [&["scan"], further].concat();
        let words = words.into_iter().map(OsString::from);
        let mut command = vec!["env".into(), memory_is, indef.clone().into()];
        command.extend(words.chain([folder.clone().into()]));
        command
    };
    let (ours, full) = (scan("ours", &[]), scan("full", &["--full"]));
    let theirs = find_filefrag(&folder);
    measure::run(&ours)?;
    let mut changed = 0;
    for cache in [Cache::Cold, Cache::Warm] {
        let case = &format!("ext4 100,000 files in {PIECES} pieces, one in 100 changed, {cache}");
        let commands = [
            ("indef scan", &ours),
            ("indef scan --full", &full),
            ("find | xargs filefrag", &theirs),
        ];
        let mut rows = contenders(case, commands);
        for run in 1..=common.runs {
            // Blocks that are written for the first time are other extents.
            for number in (changed..FILES).step_by(100) {
                let file = File::options()
                    .write(true)
                    .open(scattered_path(&folder, number))?;
                file.write_all_at(&[1; 4096], 0)?;
            }
            changed = (changed + 1) % 100;
            scratch.sync()?;
            let told = format!("{case}: run {run} of {}", common.runs);
            in_turn(&told, &mut rows, commands, cache, &theirs, &scratch)?;
        }
        let ratio =
            |row: usize| rows[row].duration().as_secs_f64() / rows[0].duration().as_secs_f64();
        for (row, least) in [(1, 1.0), (2, 5.0)] {
            let name = format!("{case}, {} / indef scan", rows[row].contender);
            report
                .verdicts
                .push(Verdict::at_least(name, ratio(row), least, "×"));
        }
        report.rows.extend(rows);
    }
    Ok(())
}
