//! The result on stdout.

use std::{collections::BTreeMap, fmt::Write as _};

use anyhow::Result;
use serde::Serialize;

use crate::{
    figure::{Class, Compared, Measured, Tier},
    report::Outcome,
};

/// The version of the JSON document.
const SCHEMA: u32 = 1;

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    figures: Vec<Entry<'a>>,
}

#[derive(Serialize)]
struct Entry<'a> {
    figure: &'a str,
    title: &'a str,
    place: &'a str,
    tier: Tier,
    class: Class,
    tolerance_pct: f64,
    values: &'a [Compared],
    measured: Option<&'a Measured>,
    equals_reference: Option<bool>,
    seconds: Option<f64>,
    why_not: Option<&'a str>,
    needs: Option<&'a str>,
}

/// One JSON document with everything.
pub(super) fn json(outcomes: &[Outcome]) -> Result<String> {
    let figures = outcomes.iter().map(|outcome| {
        let figure = &outcome.figure;
        let not_built = outcome.comparison.class == Class::NotBuilt;
        Entry {
            figure: &figure.name,
            title: &figure.title,
            place: &figure.place,
            tier: figure.tier,
            class: outcome.comparison.class,
            tolerance_pct: figure.tolerance_pct,
            values: &outcome.comparison.values,
            measured: outcome.measured.as_ref(),
            equals_reference: outcome.as_committed,
            seconds: outcome.seconds,
            why_not: figure.why_not.as_deref(),
            needs: figure.needs.as_deref().filter(|_| not_built),
        }
    });
    let document = Document {
        schema: SCHEMA,
        figures: figures.collect(),
    };
    Ok(serde_json::to_string_pretty(&document)?)
}

/// A line for each figure, and the number of each class.
pub(super) fn table(outcomes: &[Outcome]) -> String {
    let width = |of: fn(&Outcome) -> usize| outcomes.iter().map(of).max().unwrap_or(0);
    let names = width(|it| it.figure.name.len());
    let classes = width(|it| it.comparison.class.as_str().len());
    let mut text = String::new();
    let mut counts = BTreeMap::<Class, usize>::new();
    for outcome in outcomes {
        let class = outcome.comparison.class;
        *counts.entry(class).or_default() += 1;
        let more = match class {
            Class::NotBuilt => outcome.figure.needs.clone().unwrap_or_default(),
            Class::NotReproducible => outcome.figure.why_not.clone().unwrap_or_default(),
            _ => outcome.comparison.summary(outcome.figure.tolerance_pct),
        };
        let stale = match outcome.as_committed {
            Some(false) => "; NOT as committed (--keep writes it anew)",
            None if outcome.measured.is_some() => "; no reference yet (--keep writes it)",
            _ => "",
        };
        let _ = writeln!(
            text,
            "{:names$}  {:classes$}  {more}{stale}",
            outcome.figure.name,
            class.as_str(),
        );
    }
    let counts: Vec<String> = counts
        .iter()
        .map(|(class, count)| format!("{count} {}", class.as_str()))
        .collect();
    let _ = writeln!(text, "\n{}", counts.join(", "));
    text
}
