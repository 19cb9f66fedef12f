//! The configuration as JSON documents (docs/json.md).

use std::path::PathBuf;

use indef_core::plan::PathJson;
use serde::Serialize;

use crate::{
    document::SCHEMA,
    settings::{KEYS, Loaded, SettingsError, Shown},
};

#[derive(Serialize)]
pub(super) struct ShownJson {
    schema: u64,
    settings: Vec<SettingJson>,
    files: Vec<PathJson>,
    errors: Vec<ErrorJson>,
}

#[derive(Serialize)]
struct SettingJson {
    key: String,
    /// As it is written in the file.
    value: serde_json::Value,
    /// Null for a default.
    file: Option<PathJson>,
    line: Option<usize>,
}

#[derive(Serialize)]
struct ErrorJson {
    file: PathJson,
    line: Option<usize>,
    key: Option<String>,
    message: String,
}

#[derive(Serialize)]
pub(super) struct CheckedJson {
    schema: u64,
    files: Vec<PathJson>,
    errors: Vec<ErrorJson>,
}

#[derive(Serialize)]
pub(super) struct ExampleJson<'a> {
    schema: u64,
    text: &'a str,
}

/// `indef config show`.
pub(super) fn shown(loaded: &Loaded, errors: &[SettingsError]) -> ShownJson {
    let settings = KEYS.iter().map(|key| {
        let name = key.full_name();
        let origin = loaded.origins.get(&name);
        SettingJson {
            value: value(key.show(&loaded.settings)),
            file: origin.map(|origin| PathJson::from(origin.file.as_path())),
            line: origin.map(|origin| origin.line),
            key: name,
        }
    });
    ShownJson {
        schema: SCHEMA,
        settings: settings.collect(),
        files: paths(&loaded.files),
        errors: errors.iter().map(ErrorJson::from).collect(),
    }
}

/// `indef config check`.
pub(super) fn checked(files: &[PathBuf], errors: &[SettingsError]) -> CheckedJson {
    CheckedJson {
        schema: SCHEMA,
        files: paths(files),
        errors: errors.iter().map(ErrorJson::from).collect(),
    }
}

/// `indef config example`.
pub(super) fn example(text: &str) -> ExampleJson<'_> {
    ExampleJson {
        schema: SCHEMA,
        text,
    }
}

fn paths(files: &[PathBuf]) -> Vec<PathJson> {
    let paths = files.iter().map(|file| PathJson::from(file.as_path()));
    paths.collect()
}

fn value(shown: Shown) -> serde_json::Value {
    match shown {
        Shown::Text(text) => text.into(),
        // Whole numbers stay whole.
        Shown::Number(number) if number.fract() == 0.0 => (number as i64).into(),
        Shown::Number(number) => number.into(),
        Shown::Truth(truth) => truth.into(),
        Shown::List(list) => list.into(),
    }
}

impl From<&SettingsError> for ErrorJson {
    fn from(error: &SettingsError) -> Self {
        Self {
            file: PathJson::from(error.file.as_path()),
            line: error.line,
            key: error.key.clone(),
            message: error.message.clone(),
        }
    }
}
