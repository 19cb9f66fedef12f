//! The options of a plan.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use units::Bytes;

use crate::{
    access::READAHEAD,
    calibrate::{Calibration, CannotCalibrate, Weights},
    layout::{DeviceTimes, Geometry, Row},
    probe::ReadModel,
};

/// The choice of ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// IODP with truncation (InDeF).
    Indef,
    /// The hottest share, then a fragmentation check (FragPicker).
    Fragpicker,
    /// Every fragmented file as a whole (the conventional tools).
    Whole,
    /// Read-ahead sized ranges from offset 0, without a profile (FragPicker's bypass).
    Sequential,
}

impl Policy {
    /// All policies.
    pub const ALL: [Self; 4] = [Self::Indef, Self::Fragpicker, Self::Whole, Self::Sequential];

    /// The name in options and files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Indef => "indef",
            Self::Fragpicker => "fragpicker",
            Self::Whole => "whole",
            Self::Sequential => "sequential",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// An unknown policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a policy; choose indef, fragpicker, whole or sequential")]
pub struct ParsePolicyError(String);

impl FromStr for Policy {
    type Err = ParsePolicyError;

    fn from_str(text: &str) -> Result<Self, ParsePolicyError> {
        Self::ALL
            .into_iter()
            .find(|policy| policy.as_str() == text)
            .ok_or_else(|| ParsePolicyError(text.to_owned()))
    }
}

/// The weights of the degrees of fragmentation of a range, and so the unit of priority and gain.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Weight {
    /// α and β of [`PlanOptions`]: a number without a unit (InDeF eq. 2).
    #[default]
    Paper,
    /// Calibrated from the times of a profile: nanoseconds lost.
    Measured(Weights),
    /// The time that a device with these times takes, modelled from its geometry: nanoseconds. Where
    /// the geometry is unknown, only commands count.
    Device(DeviceTimes),
    /// The time that a read takes on the device by the model of a probe of it: nanoseconds.
    Probed(ReadModel),
}

impl Weight {
    /// The name in options and files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Paper => "paper",
            Self::Measured(_) => "measured",
            Self::Device(_) | Self::Probed(_) => "device",
        }
    }
}

/// Everything on which a plan depends beside the files. The defaults are the papers' values.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanOptions {
    /// The choice of ranges.
    pub policy: Policy,
    /// `indef`: the percentage of each file's lowest-IODP entries that is left alone, by number, with
    /// the remainder of one file carried to the next (InDeF §III-C; §IV-B uses 20 to 30, no loss of read speed below about 30).
    pub truncate_pct: f64,
    /// The source of the weights: α and β, or measured times.
    pub weight: Weight,
    /// Weight of DoLF (InDeF eq. 2; §IV: 4).
    pub alpha: f64,
    /// Weight of DoPF (InDeF eq. 2; §IV: 1).
    pub beta: f64,
    /// The range of one sequential read, used where there is no profile ([`READAHEAD`]).
    pub io_size: Bytes,
    /// `fragpicker`: the percentage of each file's hottest ranges that is kept (FragPicker §4.1.3).
    pub hot_pct: f64,
    /// The way in which the device spreads addresses over its flash.
    pub geometry: Geometry,
    /// Whether the engine places moved data in the device's rows as it lies in those of the file
    /// ([`Row`]), which takes one geometry for the whole plan: the weight `device` reckons with that, else with a place off the rows.
    pub on_rows: bool,
    /// The longest request that the device takes in one piece (InDeF §IV: 256 KiB).
    pub max_request: Bytes,
    /// At most this many bytes may be written.
    pub budget: Option<Bytes>,
    /// The percentage of the gain of everything that the policy would move at which to stop.
    pub target_gain_pct: Option<f64>,
    /// Give space back instead of joining fragments: let extents go that free at least this many
    /// bytes for each byte written. The policy and its parameters then have no effect.
    pub reclaim_ratio: Option<f64>,
    /// Whether sharing with reflinks and snapshots may be given up.
    pub allow_unshare: bool,
    /// Whether the engine moves shared ranges together with all files that share them.
    pub keeps_sharing: bool,
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self {
            policy: Policy::Sequential,
            truncate_pct: 20.0,
            weight: Weight::Paper,
            alpha: 4.0,
            beta: 1.0,
            io_size: READAHEAD,
            hot_pct: 100.0,
            geometry: Geometry::Unknown,
            on_rows: false,
            max_request: Bytes::kib(256),
            budget: None,
            target_gain_pct: None,
            reclaim_ratio: None,
            allow_unshare: false,
            keeps_sharing: false,
        }
    }
}

/// The reason for which nothing is to be moved, if the times of a profile show that fragments cost nothing.
#[must_use]
pub fn nothing_to_gain(
    calibration: &Result<Calibration, CannotCalibrate>,
) -> Option<CannotCalibrate> {
    match calibration {
        Err(why @ CannotCalibrate::NoDifference { .. }) => Some(*why),
        _ => None,
    }
}

/// An option out of its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} is {value}, but must be {allowed}")]
pub struct OptionError {
    name: &'static str,
    value: String,
    allowed: &'static str,
}

impl PlanOptions {
    /// Weigh by the times of a profile, where weights were found.
    pub fn weigh_by(&mut self, calibration: &Result<Calibration, CannotCalibrate>) {
        if let Ok(found) = calibration {
            self.weight = Weight::Measured(found.weights);
        }
    }

    /// The rows of the device, where its geometry tells. Pages are as large as the weight `device`
    /// says, else as in InDeF's (§IV, Table I).
    #[must_use]
    pub fn row(&self) -> Option<Row> {
        let page = match &self.weight {
            Weight::Device(times) => times.page_bytes,
            Weight::Probed(model) => model.times().page_bytes,
            Weight::Paper | Weight::Measured(_) => DeviceTimes::default().page_bytes,
        };
        Row::of(&self.geometry, page)
    }

    /// The rows that moved data is placed on.
    #[must_use]
    pub fn placed_on(&self) -> Option<Row> {
        self.on_rows.then(|| self.row()).flatten()
    }

    /// Check every value.
    ///
    /// # Errors
    ///
    /// The first option that is out of range, with the permitted values.
    pub fn check(&self) -> Result<(), OptionError> {
        let percent = 0.0..=100.0;
        let weight = 0.0..=1e6;
        let numbers = [
            ("truncate", self.truncate_pct, &percent, "0 to 100"),
            ("hot", self.hot_pct, &percent, "0 to 100"),
            (
                "target gain",
                self.target_gain_pct.unwrap_or_default(),
                &percent,
                "0 to 100",
            ),
            ("alpha", self.alpha, &weight, "0 to 1000000"),
            ("beta", self.beta, &weight, "0 to 1000000"),
            (
                "reclaim ratio",
                self.reclaim_ratio.unwrap_or_default(),
                &weight,
                "0 to 1000000",
            ),
        ];
        for (name, value, range, allowed) in numbers {
            if !range.contains(&value) {
                return Err(OptionError {
                    name,
                    value: value.to_string(),
                    allowed,
                });
            }
        }
        if let Weight::Measured(weights) = &self.weight
            && !weights.are_sound()
        {
            return Err(OptionError {
                name: "a measured weight",
                value: "negative, infinite or not a number".to_owned(),
                allowed: "a number of nanoseconds",
            });
        }
        if let Weight::Probed(model) = &self.weight
            && !model.is_sound()
        {
            return Err(OptionError {
                name: "a time of the drive that was probed, or its geometry",
                value: format!("{model:?}"),
                allowed: "a possible geometry and times up to an hour",
            });
        }
        if let Weight::Device(times) = &self.weight
            && !times.are_sound()
        {
            return Err(OptionError {
                name: "the device's page or one of its times",
                value: format!("{times:?}"),
                allowed: "a page of 512 B to 1 GiB and times up to an hour",
            });
        }
        for (name, size) in [
            ("I/O size", self.io_size),
            ("largest request", self.max_request),
        ] {
            if !(512..=1 << 40).contains(&size.0) {
                return Err(OptionError {
                    name,
                    value: size.to_string(),
                    allowed: "512 B to 1 TiB",
                });
            }
        }
        Ok(())
    }
}
