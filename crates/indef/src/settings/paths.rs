//! `paths`: what is looked at.

use std::path::PathBuf;

use toml::de::DeValue;

use super::{
    key::{Key, Shown},
    values,
};

/// What is looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Paths {
    /// All mounted file systems that a run can work on.
    #[default]
    Auto,
    /// These files and folders.
    Given(Vec<PathBuf>),
}

const AUTO: &str = "auto";
const ALLOWED: &str = "must be \"auto\", or a list of whole paths, like [\"/srv\", \"/home\"]";

pub(super) const KEYS: [Key<Paths>; 1] = [Key {
    name: "paths",
    about: Some(
        "Where to look: \"auto\" for all mounted file systems that a run can work on (as --all-mounts), \
         or a list of files and folders, like [\"/srv\", \"/home\"].",
    ),
    also: None,
    set: |paths, value| {
        *paths = match value {
            DeValue::String(text) if text == AUTO => Paths::Auto,
            DeValue::Array(entries) if !entries.is_empty() => {
                Paths::Given(values::list(value, values::absolute)?)
            }
            _ => return Err(ALLOWED.to_owned()),
        };
        Ok(())
    },
    show: |paths| match paths {
        Paths::Auto => Shown::text(AUTO),
        Paths::Given(paths) => Shown::List(paths.iter().map(|path| values::path(path)).collect()),
    },
}];
