//! `cargo xtask lab experiment`: the papers' figures of a whole system, in a guest with F2FS on flashd.
//!
//! An experiment is a file in `experiments/`: how files are aged, how much, with which options, and what
//! was published. [`headline`] runs it.

mod headline;
pub(crate) mod inside;
mod text;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use guest::Release;
use serde::{Deserialize, Serialize};
use units::Bytes;

pub(crate) use self::headline::Method;
use self::inside::Numbers;

/// How files come to be fragmented, after filebench's personalities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Ageing {
    /// Files that begin with a whole write and then grow by appends of 16 KiB in the mean.
    Fileserver,
    /// Files that only grow, by appends of 16 KiB in the mean that are made durable.
    Varmail,
}

impl Ageing {
    /// Bytes of a file: half of the paper's, whose device is eight times as large.
    fn file_bytes(self) -> u64 {
        match self {
            Self::Fileserver => 2 << 20,
            Self::Varmail => 1 << 20,
        }
    }

    /// Files that grow at the same time (InDeF §IV: 50 threads), as far as there are so many.
    fn threads(self) -> usize {
        50
    }

    /// How much of a file is written in one go.
    fn whole_percent(self) -> u64 {
        match self {
            Self::Fileserver => 50,
            Self::Varmail => 0,
        }
    }

    /// The length of the next append.
    fn piece(self, numbers: &mut Numbers) -> u64 {
        numbers.blocks(16 << 10)
    }
}

/// An experiment, as its file has it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Experiment {
    /// What it shows, and of which paper.
    title: String,
    ageing: Ageing,
    /// Data in all, like `64MiB`.
    data: String,
    /// indef's `--truncate`.
    truncate: f64,
    /// indef's `--io-size`, and how far the kernel reads ahead.
    io_size: String,
    /// flashd's profile.
    profile: String,
    /// How many times slower than its model flashd goes.
    time_scale: f64,
    /// What was published, and what it should show here; for the result.
    expected: Vec<String>,
}

/// How to run one.
pub(crate) struct Options {
    pub(crate) name: String,
    pub(crate) release: Release,
    pub(crate) cpus: u32,
    /// indef's binary.
    pub(crate) indef: PathBuf,
    /// Instead of the file's.
    pub(crate) data: Option<Bytes>,
    pub(crate) time_scale: Option<f64>,
    pub(crate) truncate: Option<f64>,
    /// One of the methods, without the comparison.
    pub(crate) only: Option<Method>,
    /// A load beside the migration, too.
    pub(crate) beside: bool,
}

fn folder() -> PathBuf {
    crate::root().join("experiments")
}

/// The names of all.
pub(crate) fn names() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder())? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "toml")
            && let Some(name) = path.file_stem()
        {
            names.push(name.to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Run one, print what came of it, keep it as JSON.
pub(crate) fn run(options: &Options) -> Result<()> {
    let path = folder().join(&options.name).with_extension("toml");
    if !path.exists() {
        bail!(
            "there is no experiment {}; there are {}",
            options.name,
            names()?.join(", ")
        );
    }
    let text = std::fs::read_to_string(&path)?;
    let mut experiment: Experiment =
        toml::from_str(&text).with_context(|| path.display().to_string())?;
    experiment.time_scale = options.time_scale.unwrap_or(experiment.time_scale);
    experiment.truncate = options.truncate.unwrap_or(experiment.truncate);
    let result = headline::run(&experiment, options)?;
    let kept = guest::Cache::of_project().folder().join("experiments");
    std::fs::create_dir_all(&kept)?;
    let kept = kept.join(&options.name).with_extension("json");
    std::fs::write(&kept, serde_json::to_vec_pretty(&result)?)?;
    println!("{}", text::table(&experiment, &result));
    println!("all of it: {}", kept.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_can_be_read() {
        let names = names().unwrap();
        assert!(!names.is_empty());
        for name in names {
            let text =
                std::fs::read_to_string(folder().join(&name).with_extension("toml")).unwrap();
            let experiment: Experiment = toml::from_str(&text).unwrap();
            experiment.data.parse::<Bytes>().unwrap();
            experiment.io_size.parse::<Bytes>().unwrap();
            assert!(!experiment.expected.is_empty(), "{name}");
        }
    }
}
