//! Our side of a figure, as its module measures it.

use std::fmt;

use figures::Value;
use serde::{Deserialize, Serialize};

/// The unit of a value. It decides how two values compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// 10⁶ bytes a second.
    #[serde(rename = "MB/s")]
    MbPerS,
    /// 2²⁰ bytes a second.
    #[serde(rename = "MiB/s")]
    MibPerS,
    /// Seconds.
    #[serde(rename = "s")]
    Seconds,
    /// Milliseconds.
    #[serde(rename = "ms")]
    Millis,
    /// Microseconds.
    #[serde(rename = "us")]
    Micros,
    /// Seconds for 10⁹ bytes.
    #[serde(rename = "s/GB")]
    SecondsPerGb,
    /// 2¹⁰ bytes.
    #[serde(rename = "KiB")]
    Kib,
    /// 2²⁰ bytes.
    #[serde(rename = "MiB")]
    Mib,
    /// 10⁶ bytes.
    #[serde(rename = "MB")]
    Mb,
    /// A number of things.
    #[serde(rename = "count")]
    Count,
    /// Of a correlation, from −1 to 1, or of a regression.
    #[serde(rename = "coefficient")]
    Coefficient,
    /// A part of a whole, in percent.
    #[serde(rename = "%")]
    SharePct,
    /// A multiple of the baseline that the series names; 1 is no change.
    #[serde(rename = "times")]
    Times,
    /// The change from the baseline that the series names, in percent; 0 is no change.
    #[serde(rename = "% change")]
    ChangePct,
}

impl Unit {
    /// The value that means "as the baseline", if the unit is relative to one.
    #[must_use]
    pub fn neutral(self) -> Option<f64> {
        match self {
            Self::Times => Some(1.0),
            Self::ChangePct | Self::Coefficient => Some(0.0),
            _ => None,
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MbPerS => "MB/s",
            Self::MibPerS => "MiB/s",
            Self::Seconds => "s",
            Self::Millis => "ms",
            Self::Micros => "µs",
            Self::SecondsPerGb => "s/GB",
            Self::Kib => "KiB",
            Self::Mib => "MiB",
            Self::Mb => "MB",
            Self::Count | Self::Coefficient => "",
            Self::SharePct => "%",
            Self::Times => "×",
            Self::ChangePct => "% change",
        })
    }
}

/// The place of a value on the figure's x-axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum X {
    /// On an axis of numbers.
    Number(f64),
    /// One of several bars.
    Label(String),
}

impl From<f64> for X {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for X {
    fn from(label: &str) -> Self {
        Self::Label(label.to_owned())
    }
}

impl fmt::Display for X {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Label(label) => f.write_str(label),
        }
    }
}

/// One value of ours. `series` and `x` name it; a published value with the same names stands beside it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// The curve, or the colour of the bar.
    pub series: String,
    /// The place on the x-axis.
    pub x: X,
    /// Our value, with seven significant digits.
    pub ours: f64,
    /// Its unit.
    pub unit: Unit,
    /// The least and the most of all runs, of which `ours` is the median; `None` in virtual time, which has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<[f64; 2]>,
}

impl Row {
    /// A value of ours.
    #[must_use]
    pub fn new(series: &str, x: impl Into<X>, ours: f64, unit: Unit) -> Self {
        Self {
            series: series.to_owned(),
            x: x.into(),
            ours: rounded(ours),
            unit,
            spread: None,
        }
    }

    /// The median and spread of a value of each run; of none, not a number.
    #[must_use]
    pub fn of_runs(series: &str, x: impl Into<X>, runs: &[f64], unit: Unit) -> Self {
        if runs.is_empty() {
            return Self::new(series, x, f64::NAN, unit);
        }
        let value = Value::of(runs);
        let spread = match value {
            Value::Exact(value) => [value; 2],
            Value::Measured { median, spread } => spread.unwrap_or([median; 2]),
        };
        Self {
            spread: Some(spread.map(rounded)),
            ..Self::new(series, x, value.median(), unit)
        }
    }
}

/// A row under another setting of one parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sensitivity {
    /// The parameter that was changed.
    pub parameter: String,
    /// Its other value.
    pub setting: String,
    /// The row that comes out then.
    pub row: Row,
}

/// All that a module measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// The figure. Rows beyond the published values are shown, and not compared.
    pub rows: Vec<Row>,
    /// The same with other values of what is free.
    #[serde(default)]
    pub sensitivity: Vec<Sensitivity>,
}

impl Measured {
    /// Add a row.
    pub fn push(&mut self, series: &str, x: impl Into<X>, ours: f64, unit: Unit) {
        self.rows.push(Row::new(series, x, ours, unit));
    }

    /// Add a row with the median and spread of all runs.
    pub(super) fn push_runs(&mut self, series: &str, x: impl Into<X>, runs: &[f64], unit: Unit) {
        self.rows.push(Row::of_runs(series, x, runs, unit));
    }

    /// Add all rows of `other`, which was measured with `parameter` set to `setting`, as sensitivity.
    pub fn add_sensitivity(&mut self, parameter: &str, setting: &str, other: Self) {
        let rows = other.rows.into_iter().map(|row| Sensitivity {
            parameter: parameter.to_owned(),
            setting: setting.to_owned(),
            row,
        });
        self.sensitivity.extend(rows);
    }

    /// The value of `series` at `x`.
    #[must_use]
    pub fn at(&self, series: &str, x: &X) -> Option<&Row> {
        let mut rows = self.rows.iter();
        rows.find(|row| row.series == series && row.x == *x)
    }
}

/// A value as a multiple of its baseline, where its unit is a change.
pub(super) fn linear(value: f64, unit: Unit) -> f64 {
    if unit == Unit::ChangePct {
        1.0 + value / 100.0
    } else {
        value
    }
}

/// The change from one value to another, in percent.
pub(super) fn change(now: f64, before: f64) -> f64 {
    100.0 * (now / before - 1.0)
}

/// Of each run, the change from another value of the same run, in percent.
pub(super) fn changes(now: &[f64], then: &[f64]) -> Vec<f64> {
    let pairs = now.iter().zip(then);
    pairs.map(|(now, then)| change(*now, *then)).collect()
}

/// Of each run, the multiple of another value of the same run.
pub(super) fn multiples(now: &[f64], then: &[f64]) -> Vec<f64> {
    now.iter().zip(then).map(|(now, then)| now / then).collect()
}

/// Seven significant digits: more than a reader needs, and what JSON keeps without loss.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let digits = 6 - value.abs().log10().floor() as i32;
    format!("{value:.*}", digits.max(0) as usize)
        .parse()
        .unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_runs_the_middle_one_counts() {
        let row = Row::of_runs("s", "x", &[30.0, 10.0, 20.0], Unit::ChangePct);
        assert_eq!((row.ours, row.spread), (20.0, Some([10.0, 30.0])));
        let row = Row::of_runs("s", "x", &[1.0 / 3.0], Unit::Seconds);
        assert_eq!(
            (row.ours, row.spread),
            (0.333_333_3, Some([0.333_333_3; 2]))
        );
        // Where there is one value only, the file has no spread.
        let text = serde_json::to_string(&Row::new("s", "x", 1.0, Unit::Count)).unwrap();
        assert!(!text.contains("spread"), "{text}");
    }
}
