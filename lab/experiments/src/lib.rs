//! The papers' figures of a whole system, in a guest with F2FS on flashd.
//!
//! An experiment is a file in `experiments/`: the kind of ageing, the amount of data, the options,
//! and the published results. `headline` runs it, and has [`inside`] run in the guest.

#![forbid(unsafe_code)]

mod headline;
pub mod inside;
mod text;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use guest::Release;
use serde::{Deserialize, Serialize};
use units::Bytes;
use workloads::Numbers;

pub use self::headline::Method;

/// The way in which files become fragmented, after filebench's personalities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ageing {
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

    /// Number of files that grow at the same time (InDeF §IV: 50 threads), as far as there are so
    /// many.
    fn threads(self) -> usize {
        50
    }

    /// The percentage of a file that is written at once.
    fn whole_percent(self) -> u64 {
        match self {
            Self::Fileserver => 50,
            Self::Varmail => 0,
        }
    }

    /// The length of the next append: whole blocks, exponentially distributed around 16 KiB.
    fn piece(self, numbers: &mut Numbers) -> u64 {
        let bytes = -(1.0 - numbers.fraction()).ln() * f64::from(16 << 10);
        ((bytes / 4096.0).round() as u64).clamp(1, 64) * 4096
    }
}

/// An experiment, in the form of its file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Experiment {
    /// Its subject, and the paper.
    title: String,
    ageing: Ageing,
    /// Total amount of data, like `64MiB`.
    data: String,
    /// indef's `--truncate`.
    truncate: f64,
    /// indef's `--io-size`, and the length of the kernel's read-ahead.
    io_size: String,
    /// flashd's profile.
    profile: String,
    /// The factor by which flashd is slower than its model.
    time_scale: f64,
    /// Published results, and those expected here; printed with the result.
    expected: Vec<String>,
}

/// How to run one.
#[derive(Args)]
pub struct Options {
    /// Name of the experiment; without it, list all
    name: Option<String>,
    /// 6.1, 6.12 or newest
    #[arg(long, default_value_t = Release::Linux6_12)]
    kernel: Release,
    /// Processors of the guest
    #[arg(long, default_value_t = 2)]
    cpus: u32,
    /// The indef to measure
    #[arg(long, value_name = "FILE", default_value = "target/release/indef")]
    indef: PathBuf,
    /// Data, instead of what the experiment's file says
    #[arg(long, value_name = "SIZE")]
    data: Option<Bytes>,
    /// flashd's profile, likewise
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// How many times slower than its model flashd goes, likewise
    #[arg(long, value_name = "K")]
    time_scale: Option<f64>,
    /// Percent of the ranges that indef leaves, likewise
    #[arg(long, value_name = "PERCENT")]
    truncate: Option<f64>,
    /// Measure this method only
    #[arg(long, value_name = "METHOD")]
    only: Option<Method>,
    /// A load beside the migration, too
    #[arg(long)]
    beside: bool,
}

fn folder() -> PathBuf {
    source_tree::root().join("experiments")
}

/// The names of all experiments.
fn names() -> Result<Vec<String>> {
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

/// Run one, print the result, store it as JSON.
///
/// # Errors
///
/// There is no such experiment, or it came to no result.
pub fn run(options: &Options) -> Result<()> {
    let Some(name) = &options.name else {
        println!("{}", names()?.join("\n"));
        return Ok(());
    };
    let path = folder().join(name).with_extension("toml");
    if !path.exists() {
        bail!(
            "there is no experiment {name}; there are {}",
            names()?.join(", ")
        );
    }
    let text = std::fs::read_to_string(&path)?;
    let mut experiment: Experiment =
        toml::from_str(&text).with_context(|| path.display().to_string())?;
    if let Some(profile) = &options.profile {
        experiment.profile.clone_from(profile);
    }
    experiment.time_scale = options.time_scale.unwrap_or(experiment.time_scale);
    experiment.truncate = options.truncate.unwrap_or(experiment.truncate);
    let result = headline::run(&experiment, options)?;
    let kept = guest::Cache::of_project().folder().join("experiments");
    std::fs::create_dir_all(&kept)?;
    // One result for each device, side by side.
    let kept = match &options.profile {
        Some(profile) => kept.join(format!("{name}-{profile}.json")),
        None => kept.join(format!("{name}.json")),
    };
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
