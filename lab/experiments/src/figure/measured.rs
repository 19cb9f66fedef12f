//! Our side of a figure, as its module measures it.

use std::fmt;

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

/// The change from one value to another, in percent.
pub(super) fn change(now: f64, before: f64) -> f64 {
    100.0 * (now / before - 1.0)
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
