//! The options that all measurements have.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use stage::{Fs, Stage};
use units::Bytes;

/// How to measure.
#[derive(Args, Clone)]
pub struct Common {
    /// Runs of each contender; the median counts
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(super) runs: usize,
    /// Write all samples as JSON to this file
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Keep the result in figures/, for the pages (`make figures`); measure on an idle machine
    #[arg(long, conflicts_with = "indef")]
    pub(super) keep: bool,
    /// Where prepared images are kept; some GiB [default: target/bench]
    #[arg(long, value_name = "DIR")]
    pub(super) images: Option<PathBuf>,
    /// Measure this program instead of a fresh release build
    #[arg(long, value_name = "PROGRAM")]
    pub(super) indef: Option<PathBuf>,
}

impl Common {
    pub(super) fn images(&self) -> Result<PathBuf> {
        let folder = self
            .images
            .clone()
            .unwrap_or_else(|| source_tree::target().join("bench"));
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(folder)
    }

    /// A new ext4 on this device, which is slower by `time_scale` ([`Stage::new`]).
    pub(super) fn ext4(&self, device: &str, size: Bytes, time_scale: f64) -> Result<Stage> {
        Ok(Stage::new(
            Fs::Ext4,
            device,
            size,
            &self.images()?,
            time_scale,
        )?)
    }

    pub(super) fn indef(&self) -> Result<PathBuf> {
        match &self.indef {
            Some(program) => Ok(fs::canonicalize(program)?),
            None => Ok(source_tree::release_binary("indef")?),
        }
    }
}
