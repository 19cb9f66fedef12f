//! FAST'24's files with ext4 in a guest, without and with die hints (`kernel/die-hints`): the speed at
//! which the model of the device reads them.
//!
//! The guest only decides where data is placed. Times are the model's, so that the guest's speed does
//! not matter.

use anyhow::Result;
use die_hints::{Case, Comparison, FileSystem, Lab, Outcome};
use guest::Guest;
use units::Bytes;

use super::{
    common::Common,
    report::{Report, Verdict},
};

/// Measure.
pub(super) fn measure(common: &Common, report: &mut Report) -> Result<()> {
    let program = source_tree::release_binary("die-hints")?;
    let pieces = Case::pieces("fdatasync");
    let all = [pieces.clone(), Case::programs()].concat();
    let lab = Lab::start(Guest::with_die_hints()?, &program, Bytes::gib(2))?;
    for system in [FileSystem::Ext4JournalApart, FileSystem::Ext4] {
        compare(&lab, system, &system.to_string(), &all, common, report)?;
    }
    lab.end()?;

    // As much to spare as the profile says, and all of it in use.
    let mut lab = Lab::start(Guest::with_die_hints()?, &program, Bytes::gib(8))?;
    lab.fill(2)?;
    compare(
        &lab,
        FileSystem::Ext4,
        "full device",
        &pieces,
        common,
        report,
    )?;
    lab.end()
}

fn compare(
    lab: &Lab,
    system: FileSystem,
    name: &str,
    cases: &[Case],
    common: &Common,
    report: &mut Report,
) -> Result<()> {
    for case in cases {
        let mut runs = Vec::new();
        for _ in 0..common.runs {
            runs.push(lab.compare(system, case)?);
        }
        add(report, name, case, &runs);
    }
    Ok(())
}

fn add(report: &mut Report, group: &str, case: &Case, runs: &[Comparison]) {
    let name = format!("{group}, {case}");
    let shares = |of: usize| -> Vec<f64> {
        let runs = runs.iter();
        runs.map(|run| run.share(&run.written[of])).collect()
    };
    for (of, contender) in ["without", "with hints"].into_iter().enumerate() {
        let mut figure = |quantity: &str, value: &dyn Fn(&Outcome) -> f64| {
            let samples: Vec<f64> = runs.iter().map(|run| value(&run.written[of])).collect();
            report.figure(&name, contender, quantity, &samples);
        };
        figure("read_mib_per_s", &Outcome::speed);
        figure("extents", &|outcome| outcome.extents as f64);
        figure("hints", &|outcome| outcome.hints.given as f64);
        figure("refused_hints", &|outcome| outcome.hints.refused() as f64);
        report.figure(&name, contender, "share", &shares(of));
    }
    let contiguous: Vec<f64> = runs.iter().map(|run| run.contiguous.speed()).collect();
    report.figure(&name, "contiguous", "read_mib_per_s", &contiguous);
    let least = |of| shares(of).into_iter().fold(f64::INFINITY, f64::min);
    println!(
        "{name}: share {:.3} without, {:.3} with hints",
        least(0),
        least(1)
    );
    report.verdicts.push(Verdict::at_least(
        format!("{name}: share of the contiguous speed, with hints"),
        least(1),
        0.98,
        "",
    ));
}
