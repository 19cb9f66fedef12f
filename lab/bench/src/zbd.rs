//! fio's own zoned tests (t/zbd) on disks of flashd in this process, by the kernel of a guest ([`zbd`]).
//!
//! Nothing is timed. Each disk is a case with counts of the suite's cases; each of these that does not pass on every
//! disk is a case with a row of each disk. Several runs tell which do not always end alike. A case that neither passes
//! nor is an exception of the trial `vm_zbd` ends the measurement, and nothing is kept.

use anyhow::{Result, ensure};
use clap::Args;
use guest::{Accelerator, Guest};
use zbd::{Case, Disk, Suite, Verdict};

use crate::{common::Common, measure, report::Report};

/// The disks.
#[derive(Args)]
pub struct ZbdArgs {
    #[command(flatten)]
    pub(super) common: Common,
    /// Disks, separated by commas: `regular` has no zones, `whole` zones of 1 MiB without limits, `limited` zones of
    /// 4 MiB, of which 14 may be open
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "regular,whole,limited"
    )]
    disk: Vec<Disk>,
}

/// Run all cases.
pub(super) fn measure(args: &ZbdArgs, report: &mut Report) -> Result<()> {
    let suite = Suite::of_installed_fio()?;
    let cases = suite.cases()?;
    for disk in &args.disk {
        let mut runs = Vec::new();
        for run in 1..=args.common.runs {
            measure::ensure_not_stopped()?;
            eprintln!("{disk}: run {run} of {}", args.common.runs);
            let guest = Guest::with(zbd::HOST)?.stop(measure::stop());
            let ran = zbd::run(*disk, &suite, &cases, guest)?;
            for case in &ran.cases {
                eprintln!("{disk}: {case}");
            }
            let unexpected = &ran.unexpected;
            ensure!(unexpected.is_empty(), "{}", unexpected.join("\n\n"));
            let accelerator = match ran.accelerator {
                Accelerator::Kvm => "with KVM",
                Accelerator::Tcg => "without KVM",
            };
            report.note = Some(format!(
                "The host is Linux {} in a guest {accelerator}; the suite is that of fio {}.",
                ran.kernel,
                suite.version()
            ));
            runs.push(ran.cases);
        }
        add(report, *disk, &runs);
    }
    Ok(())
}

/// Add what came of each run on a disk.
fn add(report: &mut Report, disk: Disk, runs: &[Vec<Case>]) {
    let mut add = |case: &str, contender: &str, quantity: &str, is_it: &dyn Fn(&Case) -> bool| {
        let count = |run: &Vec<Case>| run.iter().filter(|case| is_it(case)).count() as f64;
        let samples: Vec<f64> = runs.iter().map(count).collect();
        report.figure(case, contender, quantity, &samples);
    };
    let mut told = zbd::excepted();
    let others = runs.iter().flatten();
    let others = others.filter(|case| case.verdict != Verdict::Pass);
    told.extend(others.map(|case| case.number));
    add(disk.name(), "suite", "cases", &|_| true);
    for verdict in Verdict::ALL {
        let quantity = verdict.quantity();
        add(disk.name(), "suite", quantity, &|case| {
            case.verdict == verdict
        });
        for number in &told {
            add(&format!("case {number}"), disk.name(), quantity, &|case| {
                case.number == *number && case.verdict == verdict
            });
        }
    }
    for run in runs {
        let count = |verdict| run.iter().filter(|case| case.verdict == verdict).count();
        let [passed, skipped, failed] = Verdict::ALL.map(count);
        report.heading(&format!(
            "{disk}: {passed} passed, {skipped} skipped, {failed} failed"
        ));
    }
}
