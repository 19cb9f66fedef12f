//! Scans 100,000 files, on each file system.

use std::ffi::OsString;

use anyhow::Result;
use units::Bytes;

use super::{
    common::Common,
    measure,
    peers::Fs,
    report::{ContenderRuns, Report, Verdict},
    state::{FOLDER, Files, StartState},
};

const FILES: u32 = 100_000;

/// Measure on each file system.
pub(super) fn measure(common: &Common, report: &mut Report) -> Result<()> {
    for fs in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        one(fs.name(), common, report)?;
    }
    Ok(())
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
    let pipe = "find \"$0\" -type f -print0 | xargs -0 filefrag";
    let theirs: Vec<OsString> = ["sh", "-c", pipe].map(OsString::from).into();
    let theirs = [theirs, vec![folder.into()]].concat();

    for (cache, cold) in [("cold", true), ("warm", false)] {
        let case = &format!("{fs} 100,000 files, {cache}");
        let mut rows = [("indef scan", &ours), ("find | xargs filefrag", &theirs)].map(
            |(contender, command)| ContenderRuns {
                case: case.to_owned(),
                contender: contender.to_owned(),
                command: measure::describe(command),
                extents_before: None,
                samples: Vec::new(),
            },
        );
        for run in 1..=common.runs {
            for (row, command) in rows.iter_mut().zip([&ours, &theirs]) {
                eprintln!("{case}: run {run} of {}: {}", common.runs, row.contender);
                if cold {
                    measure::drop_caches(&scratch)?;
                } else {
                    // The first contender must not find the cache colder than the second one.
                    measure::run(&theirs)?;
                }
                row.samples.push(measure::timed(&scratch, || {
                    Ok(Some(measure::run(command)?))
                })?);
            }
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
