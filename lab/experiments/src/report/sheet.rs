//! A figure in texts, as both reports show it.

use figures::significant;

use super::outcome::Outcome;
use crate::figure::{Class, Conditions, Figure, Paper, Row, Tier, Unit, Verdict, X};

/// Significant digits of a value.
const DIGITS: i32 = 3;

/// A figure in texts.
pub(super) struct Sheet {
    pub(super) paper: Paper,
    pub(super) name: String,
    pub(super) title: String,
    pub(super) place: String,
    pub(super) class: Class,
    /// Of the class: how many values are near.
    pub(super) summary: String,
    /// Why there is no result.
    pub(super) reason: Option<String>,
    /// How it was measured, if on a machine.
    pub(super) conditions: Option<String>,
    pub(super) command: Option<String>,
    pub(super) values: Vec<Value>,
    /// What was measured on a machine and the paper does not have.
    pub(super) alone: Vec<Value>,
    pub(super) parameters: Vec<Parameter>,
    pub(super) sensitivity: Vec<Setting>,
    pub(super) contradictions: Vec<String>,
    pub(super) notes: Vec<String>,
}

/// A published value beside ours.
pub(super) struct Value {
    pub(super) series: String,
    pub(super) x: String,
    pub(super) ours: String,
    pub(super) theirs: String,
    pub(super) ratio: String,
    pub(super) verdict: String,
    /// Why ours is missing.
    pub(super) reason: String,
    pub(super) source: String,
}

/// A parameter.
pub(super) struct Parameter {
    pub(super) name: String,
    pub(super) value: String,
    pub(super) kind: String,
    pub(super) source: String,
}

/// The values under another setting of a parameter.
pub(super) struct Setting {
    pub(super) parameter: String,
    pub(super) setting: String,
    pub(super) values: String,
}

impl Sheet {
    pub(super) fn of(outcome: &Outcome) -> Self {
        let (figure, comparison) = (&outcome.figure, &outcome.comparison);
        let reason = match comparison.class {
            Class::NotReproducible => figure.why_not.clone(),
            Class::NotBuilt => Some(not_built(outcome)),
            _ => None,
        };
        let is_built = outcome.measured.is_some();
        let values = comparison.values.iter().map(|value| {
            let published = &value.published;
            let unit = published.unit;
            let mut verdict = match value.verdict {
                Verdict::Within => "near".to_owned(),
                Verdict::Off => "off".to_owned(),
                Verdict::Taken => "input".to_owned(),
                Verdict::NotMeasured => "not measured".to_owned(),
            };
            if published.bound.is_some() && is_built && published.is_compared() {
                verdict = match value.verdict {
                    Verdict::Within => "kept".to_owned(),
                    _ => "not kept".to_owned(),
                };
            }
            let limit = match published.bound {
                Some(crate::figure::Bound::Most) => "≤ ",
                Some(crate::figure::Bound::Least) => "≥ ",
                None => "",
            };
            let of_ratio = |ratio: f64| {
                if ratio.is_finite() {
                    significant(ratio, DIGITS)
                } else {
                    "–".to_owned()
                }
            };
            Value {
                series: published.series.clone(),
                x: published.x.to_string(),
                ours: ours(outcome, &published.series, &published.x),
                theirs: format!("{limit}{}", with_unit(published.value, unit)),
                ratio: value.ratio.map_or("–".to_owned(), of_ratio),
                verdict,
                reason: published.not_measured.clone().unwrap_or_default(),
                source: published.source.clone(),
            }
        });
        let parameters = figure.parameters.iter().map(|(name, parameter)| Parameter {
            name: name.to_owned(),
            value: parameter.with_unit(&parameter.value),
            kind: format!("{:?}", parameter.kind).to_lowercase(),
            source: parameter.source.clone(),
        });
        Self {
            paper: figure.paper,
            name: figure.name.clone(),
            title: figure.title.clone(),
            place: figure.place.clone(),
            class: comparison.class,
            summary: if is_built {
                comparison.summary(figure.tolerance_pct)
            } else {
                String::new()
            },
            reason,
            conditions: outcome.conditions.as_ref().map(conditions_text),
            command: is_built.then(|| command(figure)),
            values: values.collect(),
            alone: alone(outcome),
            parameters: parameters.collect(),
            sensitivity: sensitivity(outcome),
            contradictions: figure.contradictions.clone(),
            notes: figure.notes.clone(),
        }
    }

    /// Of its table: what is published, and what is ours alone.
    pub(super) fn rows(&self) -> impl Iterator<Item = &Value> {
        self.values.iter().chain(&self.alone)
    }

    /// The name as a file or an anchor.
    pub(super) fn slug(&self) -> String {
        self.name.replace('/', "-")
    }
}

/// The command that measures it again.
fn command(figure: &Figure) -> String {
    match figure.tier {
        Tier::M => format!("sudo cargo lab experiments --tier M --only {}", figure.name),
        Tier::G => format!("cargo lab experiments --tier G --only {}", figure.name),
        Tier::V | Tier::None => format!("cargo lab experiments --only {}", figure.name),
    }
}

/// Our value, and the spread of it.
fn ours(outcome: &Outcome, series: &str, x: &X) -> String {
    let measured = outcome.measured.as_ref();
    let row = measured.and_then(|measured| measured.at(series, x));
    row.map_or("–".to_owned(), of_row)
}

fn of_row(row: &Row) -> String {
    let value = with_unit(row.ours, row.unit);
    match row.spread {
        Some([least, most]) if least < most => {
            let [least, most] = [least, most].map(|it| with_unit(it, row.unit));
            format!("{value} ({least} to {most})")
        }
        _ => value,
    }
}

/// Rows of a machine without a published value. Those of virtual time are many, and stand in the plot.
fn alone(outcome: &Outcome) -> Vec<Value> {
    let rows = outcome.measured.iter().flat_map(|measured| &measured.rows);
    let is_published = |row: &&Row| {
        let mut published = outcome.figure.published.iter();
        published.any(|value| value.series == row.series && value.x == row.x)
    };
    rows.filter(|row| row.spread.is_some() && !is_published(row))
        .map(|row| Value {
            series: row.series.clone(),
            x: row.x.to_string(),
            ours: of_row(row),
            theirs: "–".to_owned(),
            ratio: "–".to_owned(),
            verdict: "ours alone".to_owned(),
            reason: String::new(),
            source: String::new(),
        })
        .collect()
}

fn conditions_text(conditions: &Conditions) -> String {
    let loaded = if conditions.loaded {
        "; the machine was LOADED with other work, so that times are not those of a quiet one"
    } else {
        ""
    };
    let version = conditions.version.as_deref();
    let commit = version.map_or(String::new(), |commit| format!(" (commit {commit})"));
    format!(
        "Measured {}{commit} on {}, load {}{loaded}. Medians with the least and the most; another run agrees within {} %, \
         or if the spreads meet.",
        conditions.date,
        conditions.machine,
        conditions
            .load
            .map_or("not known".to_owned(), |load| load.to_string()),
        conditions.tolerance_pct
    )
}

fn not_built(outcome: &Outcome) -> String {
    let figure = &outcome.figure;
    let mut text = format!("tier {}", figure.tier);
    if let Some(needs) = &figure.needs {
        text += &format!("; needs {needs}");
    }
    if let Some(command) = &figure.elsewhere {
        text += &format!("; measured outside of this frame, with no kept result, by `{command}`");
    }
    text
}

/// The compared values under other settings, one line for each.
fn sensitivity(outcome: &Outcome) -> Vec<Setting> {
    let mut settings = Vec::<Setting>::new();
    let measured = outcome.measured.iter().flat_map(|it| &it.sensitivity);
    for other in measured {
        let mut published = outcome.figure.published.iter();
        let is_compared =
            published.any(|value| value.series == other.row.series && value.x == other.row.x);
        if !is_compared {
            continue;
        }
        let value = format!(
            "{}, {}: {}",
            other.row.series,
            other.row.x,
            with_unit(other.row.ours, other.row.unit)
        );
        match settings.last_mut() {
            Some(last)
                if (&last.parameter, &last.setting) == (&other.parameter, &other.setting) =>
            {
                last.values += "; ";
                last.values += &value;
            }
            _ => settings.push(Setting {
                parameter: other.parameter.clone(),
                setting: other.setting.clone(),
                values: value,
            }),
        }
    }
    settings
}

/// A value with its unit, changes with their sign.
pub(super) fn with_unit(value: f64, unit: Unit) -> String {
    let number = significant(value, DIGITS);
    match unit {
        Unit::ChangePct if value > 0.0 => format!("+{number} %"),
        Unit::ChangePct => format!("{number} %"),
        Unit::Count | Unit::Coefficient => number,
        Unit::Times => format!("× {number}"),
        unit => format!("{number} {unit}"),
    }
}
