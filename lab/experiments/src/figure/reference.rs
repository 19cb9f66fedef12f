//! The committed result of a figure: `experiments/reference/PAPER-FIGURE.json`.

use std::{
    fs,
    path::{Path, PathBuf},
};

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
    /// Our side of it.
    pub measured: Measured,
}

impl Reference {
    /// The result of a figure.
    #[must_use]
    pub fn new(figure: &str, measured: Measured) -> Self {
        Self {
            schema: SCHEMA,
            figure: figure.to_owned(),
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
