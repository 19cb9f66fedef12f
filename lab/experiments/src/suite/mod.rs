//! All figures by one command: measured side by side, compared with the papers and with the references.
//!
//! A result goes to `target/experiments/unfinished` as soon as it is there. So a run that was stopped goes on
//! where it was, if programs and figures are still the same ([`measure`]), and a second one beside it is refused
//! ([`lock`]). Figures of tier V are measured side by side, those of tiers M and G one after the other.

mod lock;
mod measure;
mod text;

use std::{
    num::NonZero,
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
    thread,
};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::{
    figure::{
        self, Conditions, Figure, Reference, Tier,
        agree::{TOLERANCE_PCT, deviations},
        compare, reference, registry,
    },
    report::{self, Outcome},
};

/// Which figures, and how.
#[derive(Args, Debug)]
pub struct Options {
    /// V (virtual time), M (file systems of this machine) or G (guests)
    #[arg(long, value_name = "TIER", default_value = "V", value_parser = tier)]
    pub tier: Tier,
    /// Only the figures whose name begins so: fast24, indef/fig12 … (may be given several times)
    #[arg(long, value_name = "NAME")]
    pub only: Vec<String>,
    /// Figures that are measured at the same time [default: one for each processor; of tiers M and G always one]
    #[arg(long, value_name = "N")]
    pub jobs: Option<NonZero<usize>>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// Keep the results as references (experiments/reference/), and write docs/experiments.md anew
    #[arg(long)]
    pub keep: bool,
    /// Measure nothing: write docs/experiments.md anew from the references
    #[arg(long, conflicts_with_all = ["keep", "only", "json"])]
    pub pages: bool,
    /// Write the report to this file
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

/// Whether it is measured: it has a module that is known to come to a result (on a machine or in a guest a figure lacks
/// nothing but its reference), or is asked for by its whole name.
fn is_due(options: &Options, figure: &Figure) -> bool {
    let is_known = figure.needs.is_none() || figure.tier.is_measured();
    let is_named = options.only.contains(&figure.name);
    registry::module(&figure.name).is_some() && (is_known || is_named)
}

fn tier(text: &str) -> Result<Tier, String> {
    match text {
        "V" => Ok(Tier::V),
        "M" => Ok(Tier::M),
        "G" => Ok(Tier::G),
        _ => Err("it must be V, M or G".to_owned()),
    }
}

/// Measure the figures, compare them, and report; whether all came out as committed.
///
/// # Errors
///
/// A figure came to no result, `stop` was set, or another run goes on in this tree.
pub fn run(options: &Options, stop: &Arc<AtomicBool>) -> Result<bool> {
    let root = source_tree::root();
    if options.pages {
        for page in report::write_pages(root)? {
            println!("{}", page.display());
        }
        return Ok(true);
    }
    let figures = selected(options, registry::figures(root)?)?;
    let (built, others): (Vec<Figure>, Vec<Figure>) = figures
        .into_iter()
        .partition(|figure| is_due(options, figure));
    let folder = source_tree::target().join("experiments");
    let _one_at_a_time = lock::take(&folder)?;
    let unfinished = folder.join("unfinished");
    let is_here = options.tier.is_measured();
    // Before the load is this program's own.
    let conditions = is_here.then(|| conditions(options));
    if options.keep {
        conditions.as_ref().map_or(Ok(()), ensure_quiet)?;
    }
    let done = if is_here {
        if options.tier == Tier::M {
            ensure_root(&built)?;
        }
        measure::in_turn(built, &unfinished, stop)?
    } else {
        let jobs = options
            .jobs
            .or_else(|| thread::available_parallelism().ok());
        measure::all(built, jobs.map_or(1, NonZero::get), &unfinished, stop)?
    };
    let mut outcomes = Vec::new();
    for (figure, measured, seconds) in done {
        let comparison = compare(&figure, Some(&measured))?;
        let committed = reference(root, &figure.name)?;
        let differs = committed.map(|committed| deviations(&committed, &measured));
        for line in differs.iter().flatten() {
            eprintln!("{}: {line}", figure.name);
        }
        outcomes.push(Outcome {
            as_committed: differs.map(|lines| lines.is_empty()),
            conditions: conditions.clone(),
            measured: Some(measured),
            comparison,
            figure,
            seconds: Some(seconds),
        });
    }
    for figure in others {
        outcomes.push(Outcome {
            comparison: compare(&figure, None)?,
            measured: None,
            as_committed: None,
            conditions: None,
            seconds: None,
            figure,
        });
    }
    outcomes.sort_by(|a, b| {
        let key = |it: &Outcome| (it.figure.paper, it.figure.name.clone());
        key(a).cmp(&key(b))
    });
    if options.keep {
        keep(&outcomes)?;
    }
    let file = match &options.report {
        Some(file) => file.clone(),
        None => folder.join("report.html"),
    };
    std::fs::write(&file, report::html(&outcomes)?)
        .with_context(|| format!("cannot write {}", file.display()))?;
    if options.json {
        println!("{}", text::json(&outcomes)?);
    } else {
        print!("{}", text::table(&outcomes));
        println!("report: {}", file.display());
    }
    measure::forget(&unfinished);
    Ok(options.keep || !outcomes.iter().any(|it| it.as_committed == Some(false)))
}

/// Those of a measurement on this machine that begins now.
fn conditions(options: &Options) -> Conditions {
    let as_root = if options.tier == Tier::M { "sudo " } else { "" };
    let mut command = format!("{as_root}cargo lab experiments --tier {}", options.tier);
    for name in &options.only {
        command = format!("{command} --only {name}");
    }
    Conditions::now(command, TOLERANCE_PCT)
}

/// Times of a loaded machine are nobody's reference.
fn ensure_quiet(conditions: &Conditions) -> Result<()> {
    ensure!(
        !conditions.loaded,
        "the machine is busy (load {}), and a reference is of an idle one: wait until the load of the last minute is below a \
         quarter of the processors, or measure without --keep",
        conditions
            .load
            .map_or("not known".to_owned(), |load| load.to_string())
    );
    Ok(())
}

fn ensure_root(figures: &[Figure]) -> Result<()> {
    ensure!(
        figures.is_empty() || rustix::process::geteuid().is_root(),
        "tier M mounts file systems, which needs root: sudo make experiments TIER=M"
    );
    Ok(())
}

fn selected(options: &Options, mut figures: Vec<Figure>) -> Result<Vec<Figure>> {
    let is_meant = |figure: &Figure| {
        options.only.is_empty()
            || options
                .only
                .iter()
                .any(|name| figure.name.starts_with(name.as_str()))
    };
    for name in &options.only {
        ensure!(
            figures
                .iter()
                .any(|figure| figure.name.starts_with(name.as_str())),
            "no figure begins with '{name}'; there are {}",
            figures
                .iter()
                .map(|figure| figure.name.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        );
    }
    figures.retain(|figure| figure.tier == options.tier && is_meant(figure));
    if figures.is_empty() {
        bail!("of tier {}, no figure has such a name", options.tier);
    }
    Ok(figures)
}

fn keep(outcomes: &[Outcome]) -> Result<()> {
    let root = source_tree::root();
    for outcome in outcomes {
        if let Some(measured) = &outcome.measured {
            let conditions = outcome.conditions.clone();
            let reference = Reference::new(&outcome.figure.name, measured.clone(), conditions);
            figure::keep(root, &reference)?;
        }
    }
    report::write_pages(root)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(only: &[&str]) -> Options {
        Options {
            tier: Tier::M,
            only: only.iter().map(|name| (*name).to_owned()).collect(),
            jobs: None,
            json: false,
            keep: false,
            pages: false,
            report: None,
        }
    }

    #[test]
    fn a_figure_of_a_machine_needs_no_reference_to_be_measured_but_a_module() {
        let figure = |name| Figure::load(source_tree::root(), name).unwrap();
        for name in ["fragpicker/fig08-mounted", "indef/fig16"] {
            assert!(is_due(&options(&[]), &figure(name)), "{name}");
        }
        let in_virtual_time = Figure {
            needs: Some("a part of the model".to_owned()),
            ..figure("fast24/fig07")
        };
        assert!(!is_due(&options(&["fast24"]), &in_virtual_time));
        assert!(is_due(&options(&["fast24/fig07"]), &in_virtual_time));
        let without_module = Figure {
            name: "fast24/fig99".to_owned(),
            ..figure("fast24/fig07")
        };
        assert!(!is_due(&options(&["fast24/fig99"]), &without_module));
    }

    #[test]
    fn nothing_of_a_loaded_machine_is_kept() {
        let mut conditions = Conditions::now("a command".to_owned(), TOLERANCE_PCT);
        conditions.loaded = false;
        ensure_quiet(&conditions).unwrap();
        conditions.loaded = true;
        conditions.load = Some(1.5);
        let error = ensure_quiet(&conditions).unwrap_err().to_string();
        assert!(error.contains("load 1.5"), "{error}");
    }
}
