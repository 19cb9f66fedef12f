//! The settings of the service: those of the command line, then those of the configuration, then the defaults.

use std::path::Path;

use indef_engine::run::RunOptions;
use indef_pipeline::tend;

use crate::{
    args::WatchArgs,
    settings::{KEYS, Loaded, Metrics, Paths, Settings, SettingsError},
};

/// What it does.
#[derive(Debug)]
pub(super) struct Configured {
    pub(super) settings: tend::Settings,
    pub(super) metrics: Metrics,
    /// What the configuration says in vain.
    pub(super) in_vain: Option<String>,
}

impl Configured {
    /// By the configuration, if there is one.
    ///
    /// # Errors
    ///
    /// The globs are too many to be compiled together.
    pub(super) fn new(args: &WatchArgs, loaded: Option<Loaded>) -> Result<Self, String> {
        let in_vain = loaded.as_ref().and_then(in_vain);
        let mut args = args.clone();
        let (base, metrics) = match loaded {
            Some(loaded) => complete(&mut args, loaded.settings),
            None => Default::default(),
        };
        let settings = args.over(base).map_err(|error| error.to_string())?;
        // The places in a configuration are those of the service: a dry run beside it leaves its numbers alone.
        let metrics = match settings.dry_run {
            true => Metrics::default(),
            false => metrics,
        };
        let given = args.metrics;
        Ok(Self {
            settings,
            metrics: Metrics {
                file: given.metrics_file.or(metrics.file),
                listen: given.metrics_listen.or(metrics.listen),
            },
            in_vain,
        })
    }
}

/// Take paths and what to leave out from the configuration; all else that it says is returned.
fn complete(args: &mut WatchArgs, settings: Settings) -> (tend::Settings, Metrics) {
    let Settings {
        paths,
        select,
        limits,
        run,
        watch,
        metrics,
    } = settings;
    if let Paths::Given(paths) = paths
        && args.paths.is_empty()
        && !args.choose.all_mounts
    {
        args.paths = paths;
    }
    args.choose.add(select.exclude, select.min_size);
    let base = tend::Settings {
        budgets: tend::Budgets {
            day: limits.budget,
            ..watch.budgets
        },
        run: RunOptions {
            rate: limits.rate,
            max_stall: limits.max_stall,
            min_free_pct: limits.min_free,
            jobs: run.jobs.map_or(watch.run.jobs, usize::from),
            queue_depth: run.queue_depth,
            engine: run.engine,
            strict: run.strict,
            ..watch.run
        },
        ..watch
    };
    (base, metrics)
}

/// Nothing that an administrator has written is passed over in silence.
fn in_vain(loaded: &Loaded) -> Option<String> {
    let written = (KEYS.iter())
        .filter(|key| key.is_of_runs_alone())
        .map(|key| key.full_name())
        .filter(|name| loaded.origins.contains_key(name));
    let written: Vec<String> = written.collect();
    (!written.is_empty()).then(|| {
        let names = written.join(", ");
        format!("the configuration sets {names}: for indef run alone, not for indef watch")
    })
}

/// Mistakes that keep settings from being read again, in one line.
pub(super) fn kept(file: Option<&Path>, errors: &[SettingsError]) -> String {
    let first = errors.first().map(ToString::to_string).unwrap_or_default();
    let more = match errors.len() {
        0 | 1 => String::new(),
        many => format!(", and {} more", many - 1),
    };
    let named = crate::config::named(file);
    format!(
        "the configuration has mistakes, the settings stay as they were: {first}{more} \
         (indef config check{named})"
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::{
        args::{Cli, Command},
        settings::load,
    };

    /// By the options and a configuration with this text.
    fn configured(options: &[&str], text: &str) -> Configured {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("indef.toml");
        std::fs::write(&file, text).unwrap();
        let loaded = load(Some(&file)).unwrap();
        let words = ["indef", "watch"].iter().chain(options);
        match Cli::try_parse_from(words).unwrap().command {
            Command::Watch(args) => Configured::new(&args, Some(loaded)).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn shown(configured: &Configured) -> String {
        format!("{:?} {:?}", configured.settings, configured.metrics)
    }

    #[test]
    fn an_empty_configuration_changes_nothing() {
        let defaults = Configured {
            settings: tend::Settings::default(),
            metrics: Metrics::default(),
            in_vain: None,
        };
        let empty = configured(&[], "");
        assert_eq!(shown(&empty), shown(&defaults));
        assert_eq!(empty.in_vain, None);
    }

    /// Each key is followed, or said to be in vain.
    #[test]
    fn no_key_is_passed_over_in_silence() {
        let unusual = |key: &str| match key {
            "paths" => "[\"/srv\"]",
            "exclude" => "[\"*.iso\"]",
            "profile" | "metrics-file" => "\"/x\"",
            "metrics-listen" => "\"unix:/x\"",
            "policy" => "\"whole\"",
            "engine" => "\"ext4-move-extent\"",
            "window" => "[\"sat\"]",
            "strict" | "allow-unshare" | "shared-among-paths" | "without-profile"
            | "on-battery" | "cautious" => "true",
            "time-limit" | "learn" | "learn-every" | "payback" | "every" | "calm"
            | "portion-time" => "\"7m\"",
            "io-size" => "\"64KiB\"",
            "min-size" | "budget" | "rate" | "yearly-budget" | "portion" => "\"7MiB\"",
            _ => "7",
        };
        let empty = shown(&configured(&[], ""));
        for key in KEYS.iter() {
            let text = format!("{} = {}", key.full_name(), unusual(key.name));
            let configured = configured(&[], &text);
            let is_followed = shown(&configured) != empty;
            let told = configured.in_vain.unwrap_or_default();
            let is_told = told.contains(&key.full_name());
            assert_eq!(
                (is_followed, is_told),
                (!key.is_of_runs_alone(), !is_followed),
                "{text}"
            );
        }
    }

    #[test]
    fn the_command_line_wins() {
        let text = "paths = [\"/srv\"]\n\
                    [select]\nexclude = [\"*.iso\"]\n\
                    [limits]\nrate = \"none\"\nbudget = \"1GiB\"\nmin-free = 20\n\
                    [run]\njobs = 3\n\
                    [watch]\nlearn = \"0s\"\nwindow = [\"sat\"]\ncautious = true\n\
                    [metrics]\nmetrics-file = \"/a\"\n";
        let all = configured(&[], text).settings;
        assert_eq!((all.paths, all.run.jobs), (vec!["/srv".into()], 3));
        assert_eq!(
            (all.run.rate, all.budgets.day.unwrap().get()),
            (None, 1 << 30)
        );
        // Without a limit a move is reckoned with the usual speed.
        assert_eq!(all.terms, tend::Settings::default().terms);
        let options = [
            "/home",
            "--exclude=x",
            "--rate=1MiB",
            "--budget=none",
            "--window=sun",
            "--learn=5m",
            "--metrics-file=/b",
        ];
        let given = configured(&options, text);
        assert_eq!(given.metrics.file, Some("/b".into()));
        let given = given.settings;
        assert_eq!(given.paths, [Path::new("/home")]);
        assert_eq!(given.select.globs().count(), 2);
        assert_eq!(
            (given.run.rate.unwrap().get(), given.budgets.day),
            (1 << 20, None)
        );
        assert_eq!((given.run.min_free_pct, given.run.jobs), (20.0, 3));
        assert_eq!(given.terms.move_bytes_per_s, 1_048_576.0);
        assert_eq!(given.windows, ["sun".parse().unwrap()]);
        assert!(given.limits.cautious && given.learn.as_secs() == 300);
        assert!(
            configured(&["--all-mounts"], text)
                .settings
                .paths
                .is_empty()
        );
    }
}
