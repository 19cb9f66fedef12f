//! Measures that peak memory does not grow with the size of a file, and hardly
//! with the number of files.

use std::{ffi::OsString, path::Path};

use anyhow::Result;
use units::Bytes;

use super::{
    common::Common,
    measure,
    report::{ContenderRuns, Report, Verdict},
    state::{FOLDER, Files, StartState},
};

/// Measure; every command runs once, on a copy.
pub(super) fn measure(common: &Common, report: &mut Report) -> Result<()> {
    report.runs = 1;
    let indef = common.indef()?;
    let images = common.images()?;
    let file = |size, files| StartState {
        fs: "ext4",
        size,
        files,
    };
    let single = [
        (
            "memory 256 MiB",
            file(Bytes::gib(2), Files::Single(Bytes::mib(256))),
        ),
        (
            "memory 1 GiB",
            file(Bytes::gib(4), Files::Single(Bytes::gib(1))),
        ),
        (
            "memory 4 GiB",
            file(Bytes::gib(12), Files::Single(Bytes::gib(4))),
        ),
    ];
    for (case, state) in single {
        peaks(case, state, &["run"], 64, &indef, &images, report)?;
    }
    let tree = file(Bytes::gib(12), Files::Tree(1_000_000));
    peaks(
        "memory 1,000,000 files",
        tree,
        &["scan", "run"],
        256,
        &indef,
        &images,
        report,
    )
}

fn peaks(
    case: &str,
    state: StartState,
    verbs: &[&str],
    wanted_mib: u64,
    indef: &Path,
    images: &Path,
    report: &mut Report,
) -> Result<()> {
    let image = state.prepare(images)?;
    let scratch = state.restore(&image)?;
    let folder = scratch.path().join(FOLDER);
    for verb in verbs {
        eprintln!("{case}: indef {verb}");
        let command: Vec<OsString> = vec![
            indef.into(),
            verb.into(),
            "--quiet".into(),
            folder.clone().into(),
        ];
        measure::drop_caches(&scratch)?;
        let sample = measure::timed(&scratch, || Ok(Some(measure::run(&command)?)))?;
        let row = ContenderRuns {
            case: case.to_owned(),
            contender: format!("indef {verb}"),
            command: measure::describe(&command),
            extents_before: None,
            samples: vec![sample],
        };
        let peak = row.memory().unwrap_or_default();
        report.rows.push(row);
        report.verdicts.push(Verdict::at_most(
            format!("{case}, peak of indef {verb}"),
            peak.get() as f64 / Bytes::mib(1).get() as f64,
            wanted_mib as f64,
            " MiB",
        ));
    }
    Ok(())
}
