//! All figures by one command: measured side by side, compared with the papers and with the references.
//!
//! A result goes to `target/experiments/unfinished` as soon as it is there. So a run that was stopped goes on
//! where it was, if programs and figures are still the same ([`measure`]).

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
    figure::{self, Figure, Reference, Tier, compare, reference, registry},
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
    /// Figures that are measured at the same time [default: one for each processor]
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

/// Whether its module is known to come to a result.
fn is_built(figure: &Figure) -> bool {
    registry::module(&figure.name).is_some() && figure.needs.is_none()
}

/// Whether it has a module, and is asked for by its whole name.
fn is_named(options: &Options, figure: &Figure) -> bool {
    registry::module(&figure.name).is_some() && options.only.contains(&figure.name)
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
/// A figure came to no result, or `stop` was set.
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
        .partition(|figure| is_built(figure) || is_named(options, figure));
    let jobs = options
        .jobs
        .or_else(|| thread::available_parallelism().ok());
    let folder = source_tree::target().join("experiments");
    let unfinished = folder.join("unfinished");
    let done = measure::all(built, jobs.map_or(1, NonZero::get), &unfinished, stop)?;
    let mut outcomes = Vec::new();
    for (figure, measured, seconds) in done {
        let comparison = compare(&figure, Some(&measured))?;
        let committed = reference(root, &figure.name)?;
        outcomes.push(Outcome {
            as_committed: committed.map(|reference| reference.measured == measured),
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
            let reference = Reference::new(&outcome.figure.name, measured.clone());
            figure::keep(root, &reference)?;
        }
    }
    report::write_pages(root)?;
    Ok(())
}
