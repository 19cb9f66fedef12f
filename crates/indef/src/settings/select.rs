//! `[select]`: which files, and what of them.

use std::path::PathBuf;

use indef_core::plan::{PlanOptions, Policy};
use indef_engine::collect::Glob;
use units::Bytes;

use super::{
    key::{Key, Shown},
    values::{self, absolute, list, parsed, parsed_or},
};
use crate::args::values::{io_size, percent, policy, size};

/// Which files, and what of them.
#[derive(Clone, Debug)]
pub(crate) struct Select {
    pub(crate) exclude: Vec<Glob>,
    pub(crate) min_size: Option<Bytes>,
    pub(crate) profile: Option<PathBuf>,
    /// None: by whether there is a profile.
    pub(crate) policy: Option<Policy>,
    /// None: by whether there is a target.
    pub(crate) truncate: Option<f64>,
    pub(crate) hot: f64,
    pub(crate) target_gain: Option<f64>,
    pub(crate) io_size: Bytes,
}

impl Default for Select {
    fn default() -> Self {
        let plan = PlanOptions::default();
        Self {
            exclude: Vec::new(),
            min_size: None,
            profile: None,
            policy: None,
            truncate: None,
            hot: plan.hot_pct,
            target_gain: plan.target_gain_pct,
            io_size: plan.io_size,
        }
    }
}

pub(super) const KEYS: [Key<Select>; 8] = [
    Key {
        name: "exclude",
        about: None,
        also: Some("As a list, like [\"*.iso\", \"/srv/tmp\"]."),
        set: |select, value| {
            select.exclude = list(value, |text| {
                text.parse::<Glob>().map_err(|e| e.to_string())
            })?;
            Ok(())
        },
        show: |select| Shown::List(select.exclude.iter().map(Glob::to_string).collect()),
    },
    Key {
        name: "min-size",
        about: None,
        also: Some("Or \"none\"."),
        set: |select, value| {
            select.min_size = parsed_or(value, "none", size)?;
            Ok(())
        },
        show: |select| Shown::or(select.min_size.map(values::exact), "none"),
    },
    Key {
        name: "profile",
        about: None,
        also: Some("A whole path, or \"none\"."),
        set: |select, value| {
            select.profile = parsed_or(value, "none", absolute)?;
            Ok(())
        },
        show: |select| Shown::or(select.profile.as_deref().map(values::path), "none"),
    },
    Key {
        name: "policy",
        about: None,
        also: Some("\"auto\", \"indef\", \"fragpicker\", \"whole\" or \"sequential\"."),
        set: |select, value| {
            select.policy = parsed_or(value, "auto", policy)?;
            Ok(())
        },
        show: |select| Shown::or(select.policy, "auto"),
    },
    Key {
        name: "truncate",
        about: None,
        also: Some("Or \"auto\"."),
        set: |select, value| {
            select.truncate = parsed_or(value, "auto", percent)?;
            Ok(())
        },
        show: |select| select.truncate.map_or(Shown::text("auto"), values::number),
    },
    Key {
        name: "hot",
        about: None,
        also: None,
        set: |select, value| {
            select.hot = parsed(value, percent)?;
            Ok(())
        },
        show: |select| values::number(select.hot),
    },
    Key {
        name: "target-gain",
        about: None,
        also: Some("Or \"none\"."),
        set: |select, value| {
            select.target_gain = parsed_or(value, "none", percent)?;
            Ok(())
        },
        show: |select| {
            select
                .target_gain
                .map_or(Shown::text("none"), values::number)
        },
    },
    Key {
        name: "io-size",
        about: None,
        also: None,
        set: |select, value| {
            select.io_size = parsed(value, io_size)?;
            Ok(())
        },
        show: |select| Shown::text(values::exact(select.io_size)),
    },
];
