//! A figure in texts, as both reports show it.

use figures::significant;

use super::outcome::Outcome;
use crate::figure::{Class, Paper, Unit, Verdict};

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
    pub(super) command: Option<String>,
    pub(super) values: Vec<Value>,
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
                ours: value
                    .ours
                    .map_or("–".to_owned(), |ours| with_unit(ours, unit)),
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
            command: is_built.then(|| format!("cargo lab experiments --only {}", figure.name)),
            values: values.collect(),
            parameters: parameters.collect(),
            sensitivity: sensitivity(outcome),
            contradictions: figure.contradictions.clone(),
            notes: figure.notes.clone(),
        }
    }

    /// The name as a file or an anchor.
    pub(super) fn slug(&self) -> String {
        self.name.replace('/', "-")
    }
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
