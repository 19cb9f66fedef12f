//! Scans 100,000 files, on each file system; on ext4 and XFS also fragmented ones, on XFS also as the whole file system;
//! 1,000,000 files on Btrfs once more, after few have changed.

use std::{ffi::OsString, fmt, fs::File, path::Path};

use anyhow::Result;
use scratch_fs::ScratchFs;
use stage::Fs;
use units::Bytes;

use super::{
    common::Common,
    measure,
    report::{ContenderRuns, Report, Verdict},
    state::{FOLDER, Files, StartState, small_path, write_small},
};

const FILES: u32 = 100_000;
/// Files of which few change.
const MANY: u32 = 1_000_000;
/// Fragments of each file where all are fragmented: more than an inode of ext4 holds.
const PIECES: u32 = 8;

/// Measure on each file system.
pub(super) fn measure(common: &Common, report: &mut Report) -> Result<()> {
    let tree = (Files::Tree(FILES), "100,000 files");
    for fs in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        one(fs, Bytes::gib(2), tree, Scanned::Folder, common, report)?;
    }
    one(Fs::Xfs, Bytes::gib(2), tree, Scanned::All, common, report)?;
    let scattered = (Files::Scattered(FILES, PIECES), "100,000 files in 8 pieces");
    one(
        Fs::Ext4,
        Bytes::gib(8),
        scattered,
        Scanned::Folder,
        common,
        report,
    )?;
    one(
        Fs::Xfs,
        Bytes::gib(8),
        scattered,
        Scanned::All,
        common,
        report,
    )?;
    again(common, report)
}

/// Scan a subvolume of Btrfs again after every file of one folder in a hundred was written, with what the scan before
/// remembered and without.
fn again(common: &Common, report: &mut Report) -> Result<()> {
    let state = StartState {
        fs: Fs::Btrfs.name(),
        size: Bytes::gib(12),
        files: Files::Small(MANY),
    };
    let case = "btrfs 1,000,000 files, again after 1 % changed, warm";
    let indef = common.indef()?;
    let image = state.prepare(&common.images()?)?;
    let scratch = state.restore(&image)?;
    let remembers = tempfile::tempdir()?;
    let scan = |options: &[&str]| -> Vec<OsString> {
        let mut directory = OsString::from("STATE_DIRECTORY=");
        directory.push(remembers.path());
        let program = ["env".into(), directory, indef.clone().into(), "scan".into()];
        let options = options.iter().map(OsString::from);
        let path = scratch.path().as_os_str().to_owned();
        program.into_iter().chain(options).chain([path]).collect()
    };
    let (remembering, full) = (scan(&[]), scan(&["--full"]));
    // The size leaves nothing out, but has the tree walked.
    let walk = scan(&["--min-size", "1"]);
    let commands = [
        ("indef scan", &remembering),
        ("indef scan by a walk", &walk),
        ("indef scan --full", &full),
    ];
    let mut rows = contenders(case, commands);
    for run in 1..=common.runs {
        let told = format!("{case}: run {run} of {}", common.runs);
        measure::run(&remembering)?;
        for folder in (run as u32 % 100..MANY / 1000).step_by(100) {
            for number in folder * 1000..(folder + 1) * 1000 {
                let path = small_path(&scratch.path().join(FOLDER), number);
                let file = File::options().write(true).open(path)?;
                write_small(&file, number.wrapping_add(run as u32))?;
            }
        }
        scratch.sync()?;
        in_turn(&told, &mut rows, commands, Cache::Warm, &walk, &scratch)?;
    }
    let seconds = |row: &ContenderRuns| row.duration().as_secs_f64();
    for (row, least) in [(&rows[1], 10.0), (&rows[2], 100.0)] {
        report.verdicts.push(Verdict::at_least(
            format!("{case}, {} / indef scan", row.contender),
            seconds(row) / seconds(&rows[0]),
            least,
            "×",
        ));
    }
    report.rows.extend(rows);
    Ok(())
}

/// Measure, with cold and with warm caches. Neither changes anything, so one mount is enough.
fn one(
    fs: Fs,
    size: Bytes,
    (files, named): (Files, &str),
    scanned: Scanned,
    common: &Common,
    report: &mut Report,
) -> Result<()> {
    let fs = fs.name();
    let state = StartState { fs, size, files };
    let indef = common.indef()?;
    let image = state.prepare(&common.images()?)?;
    let scratch = state.restore(&image)?;
    let (folder, named) = match scanned {
        Scanned::Folder => (scratch.path().join(FOLDER), named.to_owned()),
        Scanned::All => (scratch.path().to_owned(), format!("all of {named}")),
    };
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
            least(fs, files, scanned, cache),
            "×",
        ));
    }
    Ok(())
}

/// How many times as fast as the peer a scan is at least.
fn least(fs: &str, files: Files, scanned: Scanned, cache: Cache) -> f64 {
    match (fs, files, scanned, cache) {
        // A block of the extent tree for each file.
        ("ext4", Files::Scattered(..), _, Cache::Cold) => 1.0,
        ("ext4", Files::Scattered(..), _, Cache::Warm) => 1.5,
        // Each is opened and mapped, which takes the kernel as long for both.
        ("xfs", Files::Scattered(..), ..) => 1.5,
        // Bulk statistics take the kernel half the time of opening each file, and the device as long; of all inodes it
        // reads many at once.
        ("xfs", _, Scanned::Folder, Cache::Cold) => 1.0,
        ("xfs", _, Scanned::Folder, Cache::Warm) => 3.0,
        ("xfs", _, Scanned::All, Cache::Cold) => 2.0,
        _ => 5.0,
    }
}

/// What is scanned.
#[derive(Clone, Copy)]
enum Scanned {
    /// The folder with the files.
    Folder,
    /// The file system, which has nothing else.
    All,
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
