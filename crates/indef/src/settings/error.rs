//! A mistake in the configuration, with its place.

use std::{fmt, path::PathBuf};

use crate::output::Name;

/// A mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SettingsError {
    pub(crate) file: PathBuf,
    /// From 1; none where the file cannot be read, or may not be.
    pub(crate) line: Option<usize>,
    /// The key, as far as there is one.
    pub(crate) key: Option<String>,
    /// What is wrong, and what is allowed.
    pub(crate) message: String,
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Name(&self.file))?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if let Some(key) = &self.key {
            write!(f, ": {key}")?;
        }
        write!(f, ": {}", self.message)
    }
}
