//! FAST'24's files with ext4 in a guest, without and with die hints (`kernel/die-hints`): the speed at
//! which the model of the device reads them.
//!
//! The guest only decides where data is placed. Times are the model's, so that the guest's speed does
//! not matter.

use anyhow::{Result, ensure};
use clap::Args;
use die_hints::{Case, Comparison, FileSystem, Lab, Outcome, age::Aged};
use guest::Guest;
use units::Bytes;

use super::{
    common::Common,
    measure,
    report::{Report, Verdict},
};

/// How often all else on a full device is overwritten before a file is read again.
const AGE: u64 = 2;

/// The part of the comparison.
#[derive(Args)]
pub struct DieHintsArgs {
    #[command(flatten)]
    pub(super) common: Common,
    /// Only cases whose name contains this
    #[arg(long, value_name = "TEXT")]
    case: Option<String>,
}

/// Cases on one device: a table of docs/fast24.md.
struct Group {
    name: String,
    system: FileSystem,
    cases: Vec<Case>,
    device: Bytes,
    /// Whether all of it is in use: then it collects garbage.
    full: bool,
}

impl Group {
    fn on(system: FileSystem, figure: &str, cases: Vec<Case>) -> Self {
        Self {
            name: format!("{figure}, {system}"),
            system,
            cases,
            device: Bytes::gib(4),
            full: false,
        }
    }

    fn all() -> Vec<Self> {
        use FileSystem::{Ext4, Ext4JournalApart, F2fs};
        let pieces = || Case::pieces("fdatasync");
        let published = [pieces(), Case::pieces("direct"), Case::programs()].concat();
        vec![
            Self::on(Ext4JournalApart, "figure 12", published),
            Self::on(Ext4JournalApart, "figure 3", Case::fragments()),
            Self::on(Ext4JournalApart, "figure 7", Case::units()),
            Self::on(Ext4, "figure 12", [pieces(), Case::programs()].concat()),
            Self::on(F2fs, "figure 12", pieces()),
            // As much to spare as the profile says.
            Self {
                name: "full device".into(),
                device: Bytes::gib(8),
                full: true,
                ..Self::on(Ext4, "", pieces())
            },
        ]
    }
}

/// Measure.
pub(super) fn measure(args: &DieHintsArgs, report: &mut Report) -> Result<()> {
    // No time of the guest is told, so what runs there need not be built for release.
    let program = source_tree::debug_binary("die-hints")?;
    let mut groups = Group::all();
    for group in &mut groups {
        let name = group.name.clone();
        let is_wanted = |case: &Case| {
            let text = args.case.as_ref();
            text.is_none_or(|text| format!("{name}, {case}").contains(text.as_str()))
        };
        group.cases.retain(is_wanted);
    }
    groups.retain(|group| !group.cases.is_empty());
    ensure!(!groups.is_empty(), "no case has this name");
    for group in groups {
        let mut lab = Lab::start(
            Guest::with_die_hints()?,
            &program,
            group.device,
            measure::stop(),
        )?;
        if group.full {
            lab.fill(AGE)?;
        }
        for case in &group.cases {
            let runs = (0..args.common.runs)
                .map(|_| lab.compare(group.system, case, group.full.then_some(AGE)))
                .collect::<Result<Vec<_>>>()?;
            match group.full {
                true => add_collecting(report, &group.name, case, &runs),
                false => add_readings(report, &group.name, case, &runs),
            }
        }
        lab.end()?;
    }
    Ok(())
}

fn add_readings(report: &mut Report, group: &str, case: &Case, runs: &[Comparison]) {
    for (number, (reading, _)) in case.readings.iter().enumerate() {
        // The one reading of a case needs no name.
        let name = match case.readings.len() {
            1 => case.to_string(),
            _ => format!("{case}, {reading}"),
        };
        add(report, group, &name, (number, case.wanted), runs);
        let of = ["published_without", "published_with"].into_iter();
        for (quantity, share) in of.zip(case.published.into_iter().flatten()) {
            report.figure(group, &name, quantity, &[share]);
        }
    }
}

/// Result of a reading, of which this share is wanted with hints, in one row.
fn add(
    report: &mut Report,
    group: &str,
    name: &str,
    (reading, wanted): (usize, f64),
    runs: &[Comparison],
) {
    let mut figure = |quantity: &str, value: &dyn Fn(&Comparison) -> f64| {
        let samples: Vec<f64> = runs.iter().map(value).collect();
        report.figure(group, name, quantity, &samples);
    };
    figure("contiguous_mib_per_s", &|run| {
        run.contiguous.speeds[reading]
    });
    figure("pages_per_granule_contiguous", &|run| {
        run.contiguous.place.pages_per_granule
    });
    figure("busiest_die_contiguous", &|run| {
        run.contiguous.place.busiest_die
    });
    for (of, way) in ["without", "with"].into_iter().enumerate() {
        figure(way, &|run| run.share(&run.written[of], reading));
        figure(&format!("times_{way}"), &|run| {
            1.0 / run.share(&run.written[of], reading)
        });
        figure(&format!("{way}_mib_per_s"), &|run| {
            run.written[of].speeds[reading]
        });
        figure(&format!("extents_{way}"), &|run| {
            run.written[of].extents as f64
        });
        figure(&format!("pages_per_granule_{way}"), &|run| {
            run.written[of].place.pages_per_granule
        });
        figure(&format!("busiest_die_{way}"), &|run| {
            run.written[of].place.busiest_die
        });
    }
    figure("hints", &|run| run.written[1].hints.given as f64);
    figure("refused_hints", &|run| {
        run.written[1].hints.refused() as f64
    });
    let [without, with] = [0, 1].map(|of: usize| {
        let shares = runs.iter().map(|run| run.share(&run.written[of], reading));
        shares.fold(f64::INFINITY, f64::min)
    });
    println!("{group}, {name}: share {without:.3} without, {with:.3} with hints");
    report.verdicts.push(Verdict::at_least(
        format!("{group}, {name}: share of the contiguous speed, with hints"),
        with,
        wanted,
        "",
    ));
}

/// The aged files and their device, in a row for each way to write them.
fn add_collecting(report: &mut Report, group: &str, case: &Case, runs: &[Comparison]) {
    type Written = fn(&Comparison) -> &Outcome;
    type Figure = fn(&Aged) -> f64;
    let ways: [(&str, Written); 3] = [
        ("contiguous", |run| &run.contiguous),
        ("without", |run| &run.written[0]),
        ("with hints", |run| &run.written[1]),
    ];
    let figures: [(&str, Figure); 6] = [
        ("moved_pct", |aged| aged.moved * 100.0),
        ("write_amplification", |aged| aged.write_amplification),
        ("erases_least", |aged| f64::from(aged.wear.least)),
        ("erases_most", |aged| f64::from(aged.wear.most)),
        ("least_mean_of_a_die", |aged| aged.wear.least_die_mean),
        ("most_mean_of_a_die", |aged| aged.wear.most_die_mean),
    ];
    for (way, outcome) in ways {
        let name = format!("{case}, {way}");
        let share = |run: &Comparison| run.share(outcome(run), 0);
        let new: Vec<f64> = runs.iter().map(share).collect();
        report.figure(group, &name, "new", &new);
        let aged = |run: &Comparison| run.aged_share(outcome(run));
        let aged: Vec<f64> = runs.iter().filter_map(aged).collect();
        report.figure(group, &name, "aged", &aged);
        let counts = runs.iter().map(|run| outcome(run).hints);
        let (given, refused): (Vec<f64>, Vec<f64>) = counts
            .map(|hints| (hints.given as f64, hints.refused() as f64))
            .unzip();
        report.figure(group, &name, "hints", &given);
        report.figure(group, &name, "refused_hints", &refused);
        for (quantity, figure) in figures {
            let value = |run: &Comparison| outcome(run).aged.map(|(_, aged)| figure(&aged));
            let samples: Vec<f64> = runs.iter().filter_map(value).collect();
            report.figure(group, &name, quantity, &samples);
        }
        let least = aged.into_iter().fold(f64::INFINITY, f64::min);
        println!("{group}, {name}: share {:.3} new, {least:.3} aged", new[0]);
        if way == "with hints" {
            report.verdicts.push(Verdict::at_least(
                format!("{group}, {name}: share of the contiguous speed, aged"),
                least,
                0.9,
                "",
            ));
        }
    }
}
