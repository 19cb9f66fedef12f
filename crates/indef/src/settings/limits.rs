//! `[limits]`: how much, how fast, how long.

use std::time::Duration;

use indef_pipeline::tend::Settings;
use units::Bytes;

use super::{
    key::{Key, Shown},
    values::{exact, number, parsed, parsed_or},
};
use crate::args::values::{duration, percent, rate, size, stall};

/// How much, how fast, how long.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) budget: Option<Bytes>,
    pub(crate) rate: Option<Bytes>,
    pub(crate) time_limit: Option<Duration>,
    pub(crate) max_stall: Duration,
    pub(crate) min_free: f64,
}

/// Those of `indef watch`, also for a run that nobody looks at: limits that a run typed by hand does not have.
impl Default for Limits {
    fn default() -> Self {
        let tend = Settings::default();
        Self {
            budget: tend.budgets.day,
            rate: tend.run.rate,
            time_limit: Some(Duration::from_secs(2 * 3600)),
            max_stall: tend.run.max_stall,
            min_free: tend.run.min_free_pct,
        }
    }
}

pub(super) const KEYS: [Key<Limits>; 5] = [
    Key {
        name: "budget",
        about: None,
        also: Some("For indef watch: in a day (UTC), over all that it looks after."),
        set: |limits, value| {
            limits.budget = parsed_or(value, "none", size)?;
            Ok(())
        },
        show: |limits| Shown::or(limits.budget.map(exact), "none"),
    },
    Key {
        name: "rate",
        about: None,
        also: None,
        set: |limits, value| {
            limits.rate = parsed_or(value, "none", rate)?;
            Ok(())
        },
        show: |limits| Shown::or(limits.rate.map(exact), "none"),
    },
    Key {
        name: "time-limit",
        about: None,
        also: None,
        set: |limits, value| {
            limits.time_limit = parsed_or(value, "none", duration)?;
            Ok(())
        },
        show: |limits| Shown::or(limits.time_limit.map(humantime::format_duration), "none"),
    },
    Key {
        name: "max-stall",
        about: None,
        also: None,
        set: |limits, value| {
            limits.max_stall = parsed(value, stall)?;
            Ok(())
        },
        show: |limits| number(limits.max_stall.as_secs_f64() * 1000.0),
    },
    Key {
        name: "min-free",
        about: None,
        also: None,
        set: |limits, value| {
            limits.min_free = parsed(value, percent)?;
            Ok(())
        },
        show: |limits| number(limits.min_free),
    },
];
