//! flashd's NVMe/TCP target against the kernel's own (nvmet over null_blk in memory), under the load
//! generator of flashd, with the profile that has no latencies.
//!
//! This machine need not have NVMe: both run in one guest, over its loopback, in turns. Where the
//! guest runs without KVM every instruction costs many times its cost on a processor, system calls
//! most of all: ratios are meaningful, rates are not.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use guest::{Guest, Release};

use super::{
    common::Common,
    measure,
    median::median,
    report::{ContenderRuns, Report, Sample, Verdict},
};

const SCRIPT: &str = include_str!("target.sh");
/// Duration of each case and contender, in each run.
const SECONDS: u64 = 3;
/// A sample is the time of this many commands.
const COMMANDS: f64 = 1000.0;

/// Measure.
pub(super) fn measure(common: &Common, report: &mut Report) -> Result<()> {
    let flashd = source_tree::release_binary("flashd")?;
    let load = source_tree::release_example("flashd", "load")?;
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("target.sh"), SCRIPT)?;
    let command = format!(
        "exec bash /share/target.sh {} {} {} {SECONDS}",
        flashd.display(),
        load.display(),
        common.runs
    );
    let mut guest = Guest::with(Release::Linux6_12)?
        .load("null_blk")
        .load("nvmet_tcp")
        .share(folder.path())
        .copy(&flashd)
        .copy(&load)
        .stop(measure::stop())
        .timeout(Duration::from_secs(120 + 60 * common.runs as u64));
    for program in ["bash", "ip", "mountpoint"] {
        guest = guest.copy(program);
    }
    let outcome = guest.run(["bash", "-c", &command])?;
    let said = String::from_utf8_lossy(&outcome.stdout);
    ensure!(
        outcome.status == 0,
        "the guest ended with {}:\n{said}{}{}",
        outcome.status,
        String::from_utf8_lossy(&outcome.stderr),
        outcome.console
    );
    let mut rows: Vec<ContenderRuns> = Vec::new();
    for line in said.lines() {
        let (case, contender, rate) = parse(line)?;
        let sample = Sample {
            duration_ns: (COMMANDS * 1e9 / rate) as u64,
            device_read_bytes: 0,
            device_written_bytes: 0,
            max_resident_bytes: None,
            extents_after: None,
        };
        let of_it = |row: &&mut ContenderRuns| row.case == case && row.contender == contender;
        match rows.iter_mut().find(of_it) {
            Some(row) => row.samples.push(sample),
            None => rows.push(ContenderRuns {
                case: case.to_owned(),
                contender: contender.to_owned(),
                command: format!("{COMMANDS} commands ({:?})", outcome.accelerator),
                extents_before: None,
                samples: vec![sample],
            }),
        }
    }
    ensure!(!rows.is_empty(), "the guest has measured nothing:\n{said}");
    for pair in rows.chunks(2) {
        let [theirs, ours] = pair else {
            bail!("{} has no counterpart", pair[0].case);
        };
        report.verdicts.push(Verdict::at_least(
            format!("{}: commands a second, flashd against nvmet", ours.case),
            median_ratio(theirs, ours),
            1.0,
            "×",
        ));
    }
    report.rows.extend(rows);
    Ok(())
}

/// The median over the runs of the ratio by which ours was faster.
fn median_ratio(theirs: &ContenderRuns, ours: &ContenderRuns) -> f64 {
    let pairs = theirs.samples.iter().zip(&ours.samples);
    median(pairs.map(|(theirs, ours)| theirs.duration_ns as f64 / ours.duration_ns as f64))
}

fn parse(line: &str) -> Result<(&str, &str, f64)> {
    let mut words = line.splitn(3, '|');
    let mut word = || words.next().with_context(|| format!("no result: '{line}'"));
    let (case, contender, rate) = (word()?, word()?, word()?);
    let rate = rate.parse().with_context(|| format!("no rate: '{line}'"))?;
    ensure!(rate > 0.0, "nothing was done: '{line}'");
    Ok((case, contender, rate))
}
