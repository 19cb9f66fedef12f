//! `[watch]`: what `indef watch` learns, decides and considers, where it differs from a run. What both have is in the
//! other sections.

use std::time::Duration;

use humantime::format_duration;
use indef_pipeline::tend::{Settings, Window};
use indef_trace::collect::Sampling;

use super::{
    key::{Key, Shown},
    values::{exact, list, number, parsed, parsed_or, truth},
};
use crate::args::{
    overhead,
    values::{days, duration, duration_or_zero, percent, size, weight},
};

/// Said by a heading on the command line.
const PAUSES: &str = "Work pauses from this value on.";

/// The keys set the service's own settings, whose defaults are theirs.
pub(super) const KEYS: [Key<Settings>; 21] = [
    Key {
        name: "learn",
        about: None,
        also: None,
        set: |s, value| {
            s.learn = parsed(value, duration_or_zero)?;
            Ok(())
        },
        show: |s| Shown::text(format_duration(s.learn)),
    },
    Key {
        name: "learn-every",
        about: None,
        also: None,
        set: |s, value| {
            s.learn_every = parsed(value, duration)?;
            Ok(())
        },
        show: |s| Shown::text(format_duration(s.learn_every)),
    },
    Key {
        name: "max-overhead",
        about: None,
        also: Some("\"off\" for no bound."),
        set: |s, value| {
            s.sampling = parsed(value, overhead)?;
            Ok(())
        },
        show: |s| percent_of(s.sampling),
    },
    Key {
        name: "without-profile",
        about: None,
        also: None,
        set: |s, value| {
            s.without_profile = truth(value)?;
            Ok(())
        },
        show: |s| Shown::Truth(s.without_profile),
    },
    Key {
        name: "payback",
        about: None,
        also: None,
        set: |s, value| {
            s.terms.within_days = parsed(value, days)?;
            Ok(())
        },
        show: |s| time_of_days(s.terms.within_days),
    },
    Key {
        name: "wear-price",
        about: None,
        also: None,
        set: |s, value| {
            s.terms.wear_s_per_gib = parsed(value, weight)?;
            Ok(())
        },
        show: |s| number(s.terms.wear_s_per_gib),
    },
    Key {
        name: "requests-price",
        about: None,
        also: None,
        set: |s, value| {
            s.terms.requests_per_gib = parsed(value, weight)?;
            Ok(())
        },
        show: |s| number(s.terms.requests_per_gib),
    },
    Key {
        name: "every",
        about: None,
        also: None,
        set: |s, value| {
            s.every = parsed(value, duration)?;
            Ok(())
        },
        show: |s| Shown::text(format_duration(s.every)),
    },
    Key {
        name: "max-io-pressure",
        about: None,
        also: Some(PAUSES),
        set: |s, value| {
            s.limits.io_pressure = parsed(value, percent)?;
            Ok(())
        },
        show: |s| number(s.limits.io_pressure),
    },
    Key {
        name: "max-cpu-pressure",
        about: None,
        also: Some(PAUSES),
        set: |s, value| {
            s.limits.cpu_pressure = parsed(value, percent)?;
            Ok(())
        },
        show: |s| number(s.limits.cpu_pressure),
    },
    Key {
        name: "max-disk-busy",
        about: None,
        also: Some(PAUSES),
        set: |s, value| {
            s.limits.disk_busy = parsed(value, percent)?;
            Ok(())
        },
        show: |s| number(s.limits.disk_busy),
    },
    Key {
        name: "max-latency",
        about: None,
        also: Some(PAUSES),
        set: |s, value| {
            s.limits.disk_latency_ms = parsed(value, weight)?;
            Ok(())
        },
        show: |s| number(s.limits.disk_latency_ms),
    },
    Key {
        name: "max-temperature",
        about: None,
        also: Some(PAUSES),
        set: |s, value| {
            s.limits.temperature = parsed(value, weight)?;
            Ok(())
        },
        show: |s| number(s.limits.temperature),
    },
    Key {
        name: "max-wear",
        about: None,
        also: Some(PAUSES),
        set: |s, value| {
            s.limits.wear = parsed(value, percent)?;
            Ok(())
        },
        show: |s| number(s.limits.wear),
    },
    Key {
        name: "on-battery",
        about: None,
        also: None,
        set: |s, value| {
            s.limits.on_battery = truth(value)?;
            Ok(())
        },
        show: |s| Shown::Truth(s.limits.on_battery),
    },
    Key {
        name: "cautious",
        about: None,
        also: None,
        set: |s, value| {
            s.limits.cautious = truth(value)?;
            Ok(())
        },
        show: |s| Shown::Truth(s.limits.cautious),
    },
    Key {
        name: "calm",
        about: None,
        also: None,
        set: |s, value| {
            s.limits.calm = parsed(value, duration)?;
            Ok(())
        },
        show: |s| Shown::text(format_duration(s.limits.calm)),
    },
    Key {
        name: "window",
        about: None,
        also: Some("As a list, like [\"22:00-06:00\"]; [] for always."),
        set: |s, value| {
            s.windows = list(value, window)?;
            Ok(())
        },
        show: |s| Shown::List(s.windows.iter().map(Window::to_string).collect()),
    },
    Key {
        name: "yearly-budget",
        about: None,
        also: None,
        set: |s, value| {
            s.budgets.year = parsed_or(value, "none", size)?;
            Ok(())
        },
        show: |s| Shown::or(s.budgets.year.map(exact), "none"),
    },
    Key {
        name: "portion",
        about: None,
        also: None,
        set: |s, value| {
            s.portion = parsed(value, size)?;
            Ok(())
        },
        show: |s| Shown::text(exact(s.portion)),
    },
    Key {
        name: "portion-time",
        about: None,
        also: None,
        set: |s, value| {
            s.portion_time = parsed(value, duration)?;
            Ok(())
        },
        show: |s| Shown::text(format_duration(s.portion_time)),
    },
];

fn window(text: &str) -> Result<Window, String> {
    text.parse::<Window>().map_err(|error| error.to_string())
}

fn percent_of(sampling: Sampling) -> Shown {
    // It is kept in millionths.
    let rounded = |percent: f64| (percent * 1e4).round() / 1e4;
    match sampling.bound_percent() {
        Some(percent) => number(rounded(percent)),
        None => Shown::text("off"),
    }
}

fn time_of_days(days: f64) -> Shown {
    let seconds = (days * 24.0 * 3600.0 * 1e3).round() / 1e3;
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) => Shown::text(format_duration(time)),
        Err(_) => Shown::text(format_args!("{days}days")),
    }
}
