//! All sections together.

use std::sync::LazyLock;

use indef_pipeline::tend;
use toml::de::DeValue;

use super::{
    key::{Key, Shown},
    limits::{self, Limits},
    metrics::{self, Metrics},
    paths::{self, Paths},
    run::{self, Run},
    select::{self, Select},
    watch,
};

/// What has no meaning for `indef watch`: it has no end and a profile of its own, decides by payback, and never gives
/// sharing up, nor is it sure to have met all files that share.
pub(super) const OF_RUNS_ALONE: [&str; 9] = [
    "select.profile",
    "select.policy",
    "select.truncate",
    "select.hot",
    "select.target-gain",
    "select.io-size",
    "limits.time-limit",
    "run.allow-unshare",
    "run.shared-among-paths",
];

/// All settings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) paths: Paths,
    pub(crate) select: Select,
    pub(crate) limits: Limits,
    pub(crate) run: Run,
    pub(crate) watch: tend::Settings,
    pub(crate) metrics: Metrics,
}

/// A key of any section.
pub(crate) struct AnyKey {
    /// Empty for those before all sections.
    pub(crate) section: &'static str,
    pub(crate) name: &'static str,
    pub(super) about: Option<&'static str>,
    pub(super) also: Option<&'static str>,
    set: SetAny,
    show: ShowAny,
}

type SetAny = Box<dyn Fn(&mut Settings, &DeValue<'_>) -> Result<(), String> + Send + Sync>;
type ShowAny = Box<dyn Fn(&Settings) -> Shown + Send + Sync>;

impl AnyKey {
    /// `limits.rate`.
    pub(crate) fn full_name(&self) -> String {
        match self.section {
            "" => self.name.to_owned(),
            section => format!("{section}.{}", self.name),
        }
    }

    /// The command whose option it stands for.
    pub(super) fn command(&self) -> &'static str {
        match self.section {
            "watch" | "metrics" => "watch",
            _ => "run",
        }
    }

    /// Whether `indef watch` does not follow it.
    pub(crate) fn is_of_runs_alone(&self) -> bool {
        OF_RUNS_ALONE.contains(&self.full_name().as_str())
    }

    pub(super) fn set(&self, settings: &mut Settings, value: &DeValue<'_>) -> Result<(), String> {
        (self.set)(settings, value)
    }

    /// Its value.
    pub(crate) fn show(&self, settings: &Settings) -> Shown {
        (self.show)(settings)
    }
}

/// All keys, section by section.
pub(crate) static KEYS: LazyLock<Vec<AnyKey>> = LazyLock::new(|| {
    let mut keys = Vec::new();
    add(&mut keys, "", paths::KEYS, |s| &s.paths, |s| &mut s.paths);
    add(
        &mut keys,
        "select",
        select::KEYS,
        |s| &s.select,
        |s| &mut s.select,
    );
    add(
        &mut keys,
        "limits",
        limits::KEYS,
        |s| &s.limits,
        |s| &mut s.limits,
    );
    add(&mut keys, "run", run::KEYS, |s| &s.run, |s| &mut s.run);
    add(
        &mut keys,
        "watch",
        watch::KEYS,
        |s| &s.watch,
        |s| &mut s.watch,
    );
    add(
        &mut keys,
        "metrics",
        metrics::KEYS,
        |s| &s.metrics,
        |s| &mut s.metrics,
    );
    keys
});

/// Add the keys of a section, which is this part of all settings.
fn add<S: 'static>(
    keys: &mut Vec<AnyKey>,
    section: &'static str,
    of_it: impl IntoIterator<Item = Key<S>>,
    part: fn(&Settings) -> &S,
    part_mut: fn(&mut Settings) -> &mut S,
) {
    keys.extend(of_it.into_iter().map(|key| {
        let Key {
            name,
            about,
            also,
            set,
            show,
        } = key;
        AnyKey {
            section,
            name,
            about,
            also,
            set: Box::new(move |settings, value| set(part_mut(settings), value)),
            show: Box::new(move |settings| show(part(settings))),
        }
    }));
}
