//! How the flows write.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// How the flows write: filebench's attribute `directio`, or without it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Writes {
    /// Into the page cache, from which the kernel's one thread for a file system writes file by file.
    #[default]
    Cached,
    /// `O_DIRECT`. On zones, F2FS has each flow write its pages to the log by itself and wait for them.
    Direct,
}

impl Writes {
    /// Its name, as in options.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Cached => "cached",
            Self::Direct => "direct",
        }
    }
}
