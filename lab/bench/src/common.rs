//! The options that all measurements have.

use std::{fs, path::PathBuf, sync::OnceLock};

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

    /// This program, which is started for what needs a process of its own; a release build where this is none, unless
    /// what is measured was given. It is built once: all runs are of the same code, whatever is edited meanwhile.
    pub(super) fn own_program(&self) -> Result<PathBuf> {
        static BUILT: OnceLock<PathBuf> = OnceLock::new();
        if self.indef.is_some() || !cfg!(debug_assertions) {
            return Ok(std::env::current_exe()?);
        }
        if let Some(program) = BUILT.get() {
            return Ok(program.clone());
        }
        let program = source_tree::release_binary("indef-lab")?;
        Ok(BUILT.get_or_init(|| program).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_given_program_is_not_built_anew() {
        let given = PathBuf::from("/proc/self/exe");
        let common = Common {
            runs: 1,
            json: None,
            keep: false,
            images: None,
            indef: Some(given),
        };
        let running = std::env::current_exe().unwrap();
        assert_eq!(common.indef().unwrap(), running);
        assert_eq!(common.own_program().unwrap(), running);
    }
}
