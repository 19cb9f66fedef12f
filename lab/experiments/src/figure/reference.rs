//! The committed result of a figure: `experiments/reference/PAPER-FIGURE.json`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use figures::Machine;
use serde::{Deserialize, Serialize};

use super::{error::FigureError, measured::Measured};

/// The version of the format.
const SCHEMA: u32 = 1;

/// A committed result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    schema: u32,
    /// `PAPER/FIGURE`.
    pub figure: String,
    /// How it was measured; `None` in virtual time, which is the same on every machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Conditions>,
    /// Our side of it.
    pub measured: Measured,
}

/// The conditions of a measurement on a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conditions {
    /// The command to measure it again.
    pub command: String,
    /// The machine.
    pub machine: Machine,
    /// The day, as 2026-11-24.
    pub date: String,
    /// The commit of the programs; `None` without git.
    pub version: Option<String>,
    /// Processes that wanted a processor, in the mean of the last minute before it began (`/proc/loadavg`).
    /// `None`: not known.
    pub load: Option<f64>,
    /// Whether these were more than a quarter of the processors: then times are not those of a quiet machine.
    pub loaded: bool,
    /// A result agrees if its median is within so much of this one.
    pub tolerance_pct: f64,
}

impl Conditions {
    /// Those of now.
    #[must_use]
    pub fn now(command: String, tolerance_pct: f64) -> Self {
        let root = source_tree::root();
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split_whitespace().next();
        let load: Option<f64> = load.and_then(|word| word.parse().ok());
        let machine = Machine::here(root);
        let processors = machine.processors.unwrap_or(1) as f64;
        Self {
            command,
            date: figures::today(),
            version: figures::version(root),
            load,
            // Not known is not quiet.
            loaded: load.is_none_or(|load| load > processors / 4.0),
            machine,
            tolerance_pct,
        }
    }
}

impl Reference {
    /// The result of a figure.
    #[must_use]
    pub fn new(figure: &str, measured: Measured, conditions: Option<Conditions>) -> Self {
        Self {
            schema: SCHEMA,
            figure: figure.to_owned(),
            conditions,
            measured,
        }
    }
}

fn file(root: &Path, figure: &str) -> PathBuf {
    let name = figure.replace('/', "-");
    root.join("experiments/reference")
        .join(name)
        .with_extension("json")
}

/// The committed result of `figure`; `None` if there is none.
///
/// # Errors
///
/// The file cannot be read.
pub fn reference(root: &Path, figure: &str) -> Result<Option<Reference>, FigureError> {
    let file = file(root, figure);
    if !file.exists() {
        return Ok(None);
    }
    let text = fs::read(&file).map_err(|source| FigureError::File {
        file: file.clone(),
        source,
    })?;
    let read = serde_json::from_slice(&text);
    read.map(Some)
        .map_err(|source| FigureError::Reference { file, source })
}

/// Commit a result.
///
/// # Errors
///
/// The file cannot be written.
pub fn keep(root: &Path, reference: &Reference) -> Result<PathBuf, FigureError> {
    let file = file(root, &reference.figure);
    let failed = |source| FigureError::File {
        file: file.clone(),
        source,
    };
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let mut text = serde_json::to_vec_pretty(reference).map_err(|source| failed(source.into()))?;
    text.push(b'\n');
    fs::write(&file, text).map_err(failed)?;
    Ok(file)
}
