//! The options that `plan` and `run` share: the selection of ranges.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use indef_core::{
    layout::{DeviceTimes, Geometry},
    plan::{PlanOptions, Policy, RECLAIM_RATIO, Weight},
};
use indef_engine::run::RunOptions;
use indef_pipeline::{
    geometry::GeometryChoice,
    plan::{Planner, default_policy},
};
use units::{Bytes, Nanos};

use super::values::{self, Limit};

/// Which ranges to choose, by which measure, and how many of them.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Selection")]
#[group(id = "selection", multiple = true)]
pub(crate) struct PlanArgs {
    /// Recorded accesses, which decide what is worth moving
    #[arg(long, value_name = "PROFILE", value_hint = ValueHint::FilePath)]
    pub(crate) profile: Option<PathBuf>,

    /// How ranges are chosen [default: indef with a profile, sequential without]
    #[arg(long)]
    pub(crate) policy: Option<PolicyName>,

    /// Weight of fragments: the paper's alpha and beta, weights measured from the profile's times, or
    /// the time that the device takes by a model (needs its geometry; best after indef probe)
    #[arg(long, default_value = "paper", requires_if("measured", "profile"))]
    weight: WeightName,

    /// The device of --weight device: page=SIZE, sense=TIME of a page, transfer=TIME of a page,
    /// command=TIME [default: what indef probe found of it, or
    /// page=16KiB,sense=80us,transfer=24us,command=10us]
    #[arg(long, value_name = "SPEC", value_parser = device_times)]
    device_times: Option<DeviceTimes>,

    /// Plan even if the times in the profile do not show that fragments cost anything here
    #[arg(long, requires = "profile")]
    ignore_times: bool,

    /// Leave out this percentage of each file's lowest-priority ranges (policy indef)
    /// [default: 20; 0 with --target-gain]
    #[arg(long, value_name = "PCT", value_parser = values::percent)]
    pub(crate) truncate: Option<f64>,

    /// Keep this percentage of each file's hottest ranges (policy fragpicker) [default: 100]
    #[arg(long, value_name = "PCT", value_parser = values::percent)]
    pub(crate) hot: Option<f64>,

    /// Weight of logical fragments (DoLF) in the priority [default: 4]
    #[arg(long, value_name = "WEIGHT", value_parser = values::weight, allow_negative_numbers = true)]
    alpha: Option<f64>,

    /// Weight of uneven chips or dies (DoPF) in the priority [default: 1]
    #[arg(long, value_name = "WEIGHT", value_parser = values::weight, allow_negative_numbers = true)]
    beta: Option<f64>,

    /// Size of one read: ranges are judged in pieces of this size [default: 128KiB]
    #[arg(long, value_name = "SIZE", value_parser = values::io_size)]
    pub(crate) io_size: Option<Bytes>,

    /// How far the kernel reads ahead of a sequential reader; 0 for no read-ahead (with a profile)
    /// [default: what the device of each file says, its read_ahead_kb]
    #[arg(long, value_name = "SIZE")]
    pub(crate) readahead: Option<Bytes>,

    /// Geometry of the device: auto (ask it), unknown, striped:granule=SIZE,dies=N or
    /// zoned:chips=N[,block=4KiB][,segment=2MiB][,segment-chips=N][,offset=0] [default: auto]
    #[arg(long, value_name = "SPEC", value_parser = geometry)]
    pub(crate) geometry: Option<GeometryChoice>,

    /// Move the fewest bytes that are predicted to give this percentage of the possible gain
    #[arg(long, value_name = "PCT", value_parser = values::percent)]
    pub(crate) target_gain: Option<f64>,

    /// Give space back instead of joining fragments (Btrfs, root): write anew what files still reach
    /// of extents, so that the parts come free that nobody reaches
    ///
    /// A file that was cut off, punched or overwritten holds them: Btrfs frees an extent only when
    /// nothing refers to any of it. Extents that a snapshot or reflink holds, too, stay as they are.
    #[arg(long, conflicts_with_all = [
        "profile", "policy", "truncate", "hot", "alpha", "beta", "io_size", "geometry",
        "allow_unshare", "shared_among_paths", "weight", "device_times",
    ])]
    pub(crate) reclaim: bool,

    /// Let go of extents that free at least this many bytes for each byte written [default: 0.25]
    #[arg(long, value_name = "RATIO", value_parser = values::weight, requires = "reclaim")]
    reclaim_ratio: Option<f64>,

    /// On XFS without rmapbt, move shared ranges together with the files below PATH that share them: name all
    /// that do (root)
    ///
    /// Such an XFS does not tell which files share a block. These stay shared: where it turns out that
    /// a file elsewhere has the blocks, too, all get the old ones back, after at most 2 MiB. On Btrfs, and on XFS
    /// with rmapbt, such ranges move together without this.
    #[arg(long, conflicts_with = "allow_unshare")]
    pub(crate) shared_among_paths: bool,
}

/// Bounds that hold for plans and runs alike.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Bounds")]
pub(crate) struct BoundArgs {
    /// Move at most this much in all, the best gain for each byte first; none for no limit
    #[arg(long, value_name = "BYTES", value_parser = values::size_or_none)]
    pub(crate) budget: Option<Limit<Bytes>>,

    /// Keep at least this percentage of the file system free [default: 5]
    #[arg(long, value_name = "PCT", value_parser = values::percent)]
    pub(crate) min_free: Option<f64>,

    /// Also move ranges that are shared with reflinks or snapshots; this gives their sharing up
    ///
    /// On XFS this needs the exchange feature (xfs-commit-range), and on Btrfs copy-on-write: else a
    /// power cut soon afterwards could leave one file's data in the other.
    #[arg(long)]
    pub(crate) allow_unshare: bool,
}

/// The policies by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PolicyName {
    /// Ranges of the profile by priority (IODP), with truncation
    Indef,
    /// The hottest ranges of the profile, where fragmented
    Fragpicker,
    /// Every fragmented file as a whole
    Whole,
    /// Fragmented ranges as sequential reads would meet them
    Sequential,
}

impl PolicyName {
    fn policy(self) -> Policy {
        match self {
            Self::Indef => Policy::Indef,
            Self::Fragpicker => Policy::Fragpicker,
            Self::Whole => Policy::Whole,
            Self::Sequential => Policy::Sequential,
        }
    }
}

impl From<Policy> for PolicyName {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Indef => Self::Indef,
            Policy::Fragpicker => Self::Fragpicker,
            Policy::Whole => Self::Whole,
            Policy::Sequential => Self::Sequential,
        }
    }
}

/// Where the weights come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WeightName {
    /// --alpha and --beta
    Paper,
    /// The times of reads in the profile
    Measured,
    /// Page senses, transfers and commands, modelled from the geometry
    Device,
}

impl PlanArgs {
    /// A planner without paths yet; options that are not given keep the planner's defaults.
    pub(crate) fn planner(&self, bounds: &BoundArgs, jobs: usize) -> Planner {
        Planner {
            profile: self.profile.clone(),
            readahead: self.readahead,
            // Without a geometry the model knows commands alone, so devices are asked, and a person
            // learns the reason where they do not answer.
            geometry: match self.weight {
                WeightName::Device => self.geometry.or(Some(GeometryChoice::Auto)),
                WeightName::Paper | WeightName::Measured => self.geometry,
            },
            options: self.options(bounds),
            measured: self.weight == WeightName::Measured,
            times_given: self.device_times.is_some(),
            ignore_times: self.ignore_times,
            shared_among_paths: self.shared_among_paths,
            jobs,
            ..Planner::new(Vec::<PathBuf>::new())
        }
    }

    fn options(&self, bounds: &BoundArgs) -> PlanOptions {
        let default = PlanOptions::default();
        let by_input = default_policy(self.profile.is_some());
        PlanOptions {
            policy: self.policy.map_or(by_input, PolicyName::policy),
            // A target by itself leaves out ranges that are not worth moving; it could need the
            // ranges that truncation takes away.
            truncate_pct: match (self.truncate, self.target_gain) {
                (Some(pct), _) => pct,
                (None, Some(_)) => 0.0,
                (None, None) => default.truncate_pct,
            },
            weight: match self.weight {
                WeightName::Device => Weight::Device(self.device_times.unwrap_or_default()),
                // Measured ones are found later, or the paper's serve.
                WeightName::Paper | WeightName::Measured => Weight::Paper,
            },
            alpha: self.alpha.unwrap_or(default.alpha),
            beta: self.beta.unwrap_or(default.beta),
            io_size: self.io_size.unwrap_or(default.io_size),
            hot_pct: self.hot.unwrap_or(default.hot_pct),
            budget: bounds.budget.and_then(Limit::value),
            target_gain_pct: self.target_gain,
            reclaim_ratio: self
                .reclaim
                .then(|| self.reclaim_ratio.unwrap_or(RECLAIM_RATIO)),
            allow_unshare: bounds.allow_unshare,
            ..default
        }
    }
}

impl BoundArgs {
    /// The given bounds, falling back to those of `base`.
    pub(crate) fn over(&self, base: RunOptions) -> RunOptions {
        RunOptions {
            budget: self.budget.map_or(base.budget, Limit::value),
            min_free_pct: self.min_free.unwrap_or(base.min_free_pct),
            allow_unshare: self.allow_unshare || base.allow_unshare,
            ..base
        }
    }
}

/// `--geometry`.
pub(super) fn geometry(text: &str) -> Result<GeometryChoice, String> {
    match text.trim() {
        "auto" => Ok(GeometryChoice::Auto),
        text => match text.parse::<Geometry>() {
            Ok(given) => Ok(GeometryChoice::Given(given)),
            Err(error) => Err(format!("{error}; or auto, to ask the device")),
        },
    }
}

/// `--device-times`.
fn device_times(text: &str) -> Result<DeviceTimes, String> {
    let mut times = DeviceTimes::default();
    for field in text.split(',') {
        let wrong = || format!("'{field}' is not page=SIZE, sense=, transfer= or command=TIME");
        let (name, value) = field.split_once('=').ok_or_else(wrong)?;
        let ns = || {
            let time = humantime::parse_duration(value).map_err(|_| wrong())?;
            Ok::<_, String>(Nanos::from(time).0)
        };
        match name.trim() {
            "page" => times.page_bytes = values::size(value)?,
            "sense" => times.sense_ns = ns()?,
            "transfer" => times.transfer_ns = ns()?,
            "command" => times.command_ns = ns()?,
            _ => return Err(wrong()),
        }
    }
    match times.are_sound() {
        true => Ok(times),
        false => Err("a page has 512 B to 1 GiB, and no time is above an hour".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_of_a_device_are_given_one_by_one() {
        let times = device_times("page=4KiB,sense=50us").unwrap();
        assert_eq!(times.page_bytes, Bytes::kib(4));
        assert_eq!((times.sense_ns, times.transfer_ns), (50_000, 24_000));
        for wrong in [
            "",
            "page",
            "page=1",
            "sense=fast",
            "page=4KiB,x=1us",
            "command=2h",
        ] {
            assert!(device_times(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_choice_is_auto_or_a_geometry() {
        assert_eq!(geometry("auto"), Ok(GeometryChoice::Auto));
        assert_eq!(
            geometry("unknown"),
            Ok(GeometryChoice::Given(Geometry::Unknown))
        );
        let error = geometry("flat").unwrap_err();
        assert!(error.contains("auto"), "{error}");
    }
}
