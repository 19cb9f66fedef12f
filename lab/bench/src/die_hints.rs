//! FAST'24's files with ext4 in a guest, without and with die hints (`kernel/die-hints`): the speed at
//! which the model of the device reads them.
//!
//! The guest only decides where data is placed. Times are the model's, so that the guest's speed does
//! not matter.

use anyhow::Result;
use die_hints::{Case, Comparison, Journal, Lab, Outcome};
use guest::Guest;
use units::Bytes;

use super::{
    Common,
    report::{Report, Verdict},
};

/// Measure.
pub(super) fn measure(common: &Common, report: &mut Report) -> Result<()> {
    let program = source_tree::release_binary("die-hints")?;
    let lab = Lab::start(Guest::with_die_hints()?, &program, Bytes::gib(2))?;
    for journal in [Journal::Apart, Journal::Within] {
        for case in Case::pieces("fdatasync")
            .into_iter()
            .chain(Case::programs())
        {
            let mut runs = Vec::new();
            for _ in 0..common.runs {
                runs.push(lab.compare(journal, &case)?);
            }
            add(report, journal, &case, &runs);
        }
    }
    lab.end()
}

fn add(report: &mut Report, journal: Journal, case: &Case, runs: &[Comparison]) {
    let name = format!("{journal}, {case}");
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
