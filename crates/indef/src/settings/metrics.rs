//! `[metrics]`: where the numbers of `indef watch` go.

use std::path::PathBuf;

use metrics_server::Address;

use super::{
    key::{Key, Shown},
    values::{absolute, parsed_or, path},
};

/// Where the numbers go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Metrics {
    pub(crate) file: Option<PathBuf>,
    pub(crate) listen: Option<Address>,
}

pub(super) const KEYS: [Key<Metrics>; 2] = [
    Key {
        name: "metrics-file",
        about: None,
        also: Some("A whole path, or \"none\"."),
        set: |metrics, value| {
            metrics.file = parsed_or(value, "none", absolute)?;
            Ok(())
        },
        show: |metrics| Shown::or(metrics.file.as_deref().map(path), "none"),
    },
    Key {
        name: "metrics-listen",
        about: None,
        also: Some("Or \"none\"."),
        set: |metrics, value| {
            metrics.listen = parsed_or(value, "none", str::parse)?;
            Ok(())
        },
        show: |metrics| Shown::or(metrics.listen.as_ref(), "none"),
    },
];
