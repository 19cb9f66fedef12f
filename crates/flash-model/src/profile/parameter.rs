//! One number of a profile, with its source.

use serde::Serialize;

/// How well a number is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// From the maker's data sheet.
    Datasheet,
    /// From a publication.
    Paper,
    /// From a measurement.
    Measured,
    /// It follows from numbers of the other kinds.
    Derived,
    /// Unknown; the value is plausible, and the source says why.
    Assumed,
}

impl Kind {
    pub(super) const NAMES: &str = "datasheet, paper, measured, derived, assumed";

    pub(super) fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "datasheet" => Self::Datasheet,
            "paper" => Self::Paper,
            "measured" => Self::Measured,
            "derived" => Self::Derived,
            "assumed" => Self::Assumed,
            _ => return None,
        })
    }
}

/// A number as the profile states it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// Yes or no.
    Flag(bool),
    /// A number in the parameter's unit.
    Number(f64),
}

/// One number of a profile, as it stands there.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Parameter {
    /// `table.name`.
    pub key: String,
    /// In its unit.
    pub value: Value,
    /// `us`, `KiB`, `MB/s`, `count` …
    pub unit: String,
    /// The source of the value.
    pub source: String,
    /// How well it is known.
    pub kind: Kind,
    /// Line in the profile, from 1.
    #[serde(skip)]
    pub line: usize,
}
