//! The file of an experiment, and what the options change.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use guest::Release;
use serde::{Deserialize, Deserializer};
use workloads::filebench::Personality;

use super::ageing::{Plan, Writes};

/// An experiment, in the form of its file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Experiment {
    /// Its subject, and the paper.
    pub(super) title: String,
    #[serde(deserialize_with = "personality")]
    pub(super) personality: Personality,
    /// How its flows write.
    #[serde(default)]
    pub(super) writes: Writes,
    /// The paper's device, zones and number of files are divided by this.
    pub(super) factor: u64,
    /// The ageing ends when this many times the data has been written.
    pub(super) rounds: f64,
    /// Percentage of the whole-file reads that the ageing does.
    pub(super) reads: u32,
    /// indef's `--truncate` where the paper measures everything.
    pub(super) truncate: u32,
    /// All of its values (Fig 13).
    pub(super) sweep: Vec<u32>,
    /// indef's `--io-size`, and the length of the kernel's read-ahead.
    pub(super) io_size: String,
    /// flashd's profile.
    pub(super) profile: String,
    /// The factor by which flashd is slower than its model while commands are recorded.
    pub(super) time_scale: f64,
    /// Seed of the flows' choices.
    #[serde(default = "first_seed")]
    pub(super) seed: u64,
}

const fn first_seed() -> u64 {
    1
}

fn personality<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Personality, D::Error> {
    let name = String::deserialize(deserializer)?;
    name.parse().map_err(serde::de::Error::custom)
}

impl Experiment {
    pub(super) fn plan(&self, is_trial: bool) -> Plan {
        Plan {
            personality: self.personality,
            writes: self.writes,
            factor: self.factor,
            rounds: self.rounds,
            reads_percent: self.reads,
            seed: self.seed,
            is_trial,
        }
    }
}

/// How to run one.
#[derive(Args, Debug)]
pub struct Options {
    /// Name of the experiment; without it, list all
    pub name: Option<String>,
    /// 6.1 or 6.12
    #[arg(long, default_value_t = Release::Linux6_12)]
    pub kernel: Release,
    /// Processors of a guest
    #[arg(long, default_value_t = 2)]
    pub cpus: u32,
    /// Memory of a guest in MiB; its programs are part of it
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    pub memory: u32,
    /// The indef to measure
    #[arg(long, value_name = "FILE", default_value = "target/release/indef")]
    pub indef: PathBuf,
    /// Fraction of the paper's device, instead of what the experiment's file says (a power of 2, 16 at most:
    /// a zone has then the 2 MiB of a segment of F2FS)
    #[arg(long, value_name = "N")]
    pub factor: Option<u64>,
    /// How many times the data is written while ageing, likewise
    #[arg(long, value_name = "N")]
    pub rounds: Option<f64>,
    /// How the flows of the ageing write, likewise
    #[arg(long, value_enum)]
    pub(super) writes: Option<Writes>,
    /// flashd's profile, likewise
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// How many times slower than its model flashd goes while commands are recorded, likewise
    #[arg(long, value_name = "K")]
    pub time_scale: Option<f64>,
    /// Seed of the ageing, likewise
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Only age, and say how the files lie
    #[arg(long, conflicts_with = "only")]
    pub age_only: bool,
    /// Keep the aged SSD in this folder, or begin with the one that is there
    #[arg(long, value_name = "FOLDER")]
    pub aged: Option<PathBuf>,
    /// Leave out all other percentages of truncation
    #[arg(long)]
    pub no_sweep: bool,
    /// Only these ways (may be given several times): conventional, fragpicker, indef, copy
    #[arg(long, value_name = "WAY")]
    pub only: Vec<String>,
    /// Only see that it works: a quarter of the zones, and few files
    #[arg(long, conflicts_with = "keep")]
    pub trial: bool,
    /// Keep the result as the committed one (figures/experiments.json)
    #[arg(long)]
    pub keep: bool,
}

fn folder() -> PathBuf {
    source_tree::root().join("experiments")
}

/// The names of all experiments.
pub(super) fn names() -> Result<Vec<String>> {
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

/// The experiment with this name, with what the options change.
pub(super) fn load(name: &str, options: &Options) -> Result<Experiment> {
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
    experiment.factor = options.factor.unwrap_or(experiment.factor);
    experiment.writes = options.writes.unwrap_or(experiment.writes);
    experiment.rounds = options.rounds.unwrap_or(experiment.rounds);
    experiment.seed = options.seed.unwrap_or(experiment.seed);
    experiment.time_scale = options.time_scale.unwrap_or(experiment.time_scale);
    if options.no_sweep {
        experiment.sweep.clear();
    }
    if !(1..=16).contains(&experiment.factor) || !experiment.factor.is_power_of_two() {
        bail!(
            "the device can be divided by 1, 2, 4, 8 or 16, not by {}: a zone has at least the 2 MiB of a \
             segment of F2FS",
            experiment.factor
        );
    }
    Ok(experiment)
}

#[cfg(test)]
mod tests {
    use units::Bytes;

    use super::{super::image, *};

    #[test]
    fn every_experiment_can_be_read() {
        let names = names().unwrap();
        assert!(!names.is_empty());
        for name in names {
            let text =
                std::fs::read_to_string(folder().join(&name).with_extension("toml")).unwrap();
            let experiment: Experiment = toml::from_str(&text).unwrap();
            experiment.io_size.parse::<Bytes>().unwrap();
            let plan = experiment.plan(false);
            image::Ssd::new(&experiment.profile, plan.factor, plan.zones()).unwrap();
            assert!(experiment.sweep.contains(&experiment.truncate), "{name}");
        }
    }
}
