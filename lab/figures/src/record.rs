//! The committed result of one benchmark.

use std::{collections::BTreeMap, fmt, fs, path::Path};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::Machine;

/// The version of the format.
const SCHEMA: u32 = 1;

/// A result file: the sessions in which its rows were measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    schema: u32,
    /// In the order in which they were measured; no row is in two of them.
    pub sessions: Vec<Session>,
}

/// The rows that one command measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Session {
    /// The command to measure them again.
    pub command: String,
    /// `None` for virtual time, which is the same on every machine.
    pub machine: Option<Machine>,
    /// The day of the measurement, as 2026-11-24; `None` for virtual time.
    pub date: Option<String>,
    /// The commit of the programs that were measured; `None` for virtual time.
    pub version: Option<String>,
    /// Runs of each row; `None` where that was not kept, and for virtual time.
    pub runs: Option<u32>,
    /// A circumstance that a reader has to know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The results.
    pub rows: Vec<Row>,
}

/// The values of one contender in one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// The state or load that was measured.
    pub case: String,
    /// The program or variant that was measured.
    pub contender: String,
    /// By quantity. Its name ends with the unit: `_ns`, `_bytes`, `_pct`, `_per_s`, `_mib_per_s`,
    /// or is a plain number.
    pub values: BTreeMap<String, Value>,
}

/// One quantity.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Value {
    /// A value without spread: a count, a peak, virtual time.
    Exact(f64),
    /// The median of all runs.
    Measured {
        /// The median.
        median: f64,
        /// The least and the most.
        spread: Option<[f64; 2]>,
    },
}

impl Value {
    /// The median and spread of all `samples`.
    ///
    /// # Panics
    ///
    /// If there are none.
    #[must_use]
    pub fn of(samples: &[f64]) -> Self {
        let mut sorted = samples.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let [least, .., most] = sorted[..] else {
            return Self::Measured {
                median: sorted[0],
                spread: Some([sorted[0]; 2]),
            };
        };
        Self::Measured {
            // Of an even number the lower middle one: a value that was really measured.
            median: sorted[(sorted.len() - 1) / 2],
            spread: Some([least, most]),
        }
    }

    /// A value in virtual time, with the digits that a page may show.
    #[must_use]
    pub fn rounded(value: f64) -> Self {
        Self::Exact((value * 1e4).round() / 1e4)
    }

    /// The median.
    #[must_use]
    pub const fn median(self) -> f64 {
        match self {
            Self::Exact(value) | Self::Measured { median: value, .. } => value,
        }
    }
}

impl Row {
    /// A row without values.
    #[must_use]
    pub fn new(case: impl Into<String>, contender: impl Into<String>) -> Self {
        Self {
            case: case.into(),
            contender: contender.into(),
            values: BTreeMap::new(),
        }
    }

    /// The row with one more value.
    #[must_use]
    pub fn with(mut self, quantity: &str, value: Value) -> Self {
        self.values.insert(quantity.to_owned(), value);
        self
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} / {}:", self.case, self.contender)?;
        let mut values = self.values.iter();
        values.try_for_each(|(quantity, value)| write!(f, " {quantity} {}", value.median()))
    }
}

impl Session {
    /// A session of a model in virtual time.
    #[must_use]
    pub fn in_virtual_time(command: &str, rows: Vec<Row>) -> Self {
        Self {
            command: command.to_owned(),
            machine: None,
            date: None,
            version: None,
            runs: None,
            note: None,
            rows,
        }
    }
}

impl Record {
    /// A record of one session.
    #[must_use]
    pub fn of(session: Session) -> Self {
        Self {
            schema: SCHEMA,
            sessions: vec![session],
        }
    }

    /// The record in `file`.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is no record, or has a row twice.
    pub fn read(file: &Path) -> Result<Self> {
        let text = fs::read(file).with_context(|| file.display().to_string())?;
        let record: Self =
            serde_json::from_slice(&text).with_context(|| file.display().to_string())?;
        ensure!(
            record.schema == SCHEMA,
            "{}: schema {} is not {SCHEMA}",
            file.display(),
            record.schema
        );
        let mut rows: Vec<_> = record
            .rows()
            .map(|row| (&row.case, &row.contender))
            .collect();
        rows.sort_unstable();
        for (case, contender) in &rows {
            ensure!(
                ![" / ", " ÷ ", " : ", "}"]
                    .iter()
                    .any(|it| case.contains(it) || contender.contains(it)),
                "{}: {case} / {contender}: placeholders cannot name it",
                file.display()
            );
        }
        for two in rows.windows(2) {
            ensure!(
                two[0] != two[1],
                "{}: {} / {} is there twice",
                file.display(),
                two[0].0,
                two[0].1
            );
        }
        Ok(record)
    }

    /// Write the record to `file`.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn write(&self, file: &Path) -> Result<()> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
    }

    /// Add a session: its rows take the place of the same rows of earlier sessions.
    pub fn add(&mut self, session: Session) {
        let is_new = |row: &Row| {
            let mut rows = session.rows.iter();
            rows.any(|new| (&new.case, &new.contender) == (&row.case, &row.contender))
        };
        for earlier in &mut self.sessions {
            earlier.rows.retain(|row| !is_new(row));
        }
        self.sessions.retain(|earlier| !earlier.rows.is_empty());
        self.sessions.push(session);
    }

    /// All rows.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.sessions.iter().flat_map(|session| &session.rows)
    }

    /// The row of a case and contender, with the index of its session.
    pub(crate) fn find(&self, case: &str, contender: &str) -> Option<(usize, &Row)> {
        self.sessions.iter().enumerate().find_map(|(at, session)| {
            let mut rows = session.rows.iter();
            let row = rows.find(|row| row.case == case && row.contender == contender)?;
            Some((at, row))
        })
    }
}
