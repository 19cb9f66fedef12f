//! The options of a run, with those of the configuration where the command line says nothing.

use anyhow::Result;
use sha2::{Digest, Sha256};
use units::Bytes;

use crate::{
    args::{EngineChoice, Limit, PolicyName, RunArgs},
    config::required,
    output::Console,
    settings::{FILE, Paths, Settings},
};

/// The options of the command line, completed by the configuration if that is asked for.
pub(super) fn configured(args: &RunArgs, console: &Console) -> Result<RunArgs> {
    let Some(file) = &args.config else {
        return Ok(args.clone());
    };
    let loaded = required(file.as_deref(), has_paths(args), console)?;
    if loaded.files.is_empty() {
        console.note(format_args!(
            "{FILE}: there is none, the defaults hold (indef config show)"
        ));
    }
    Ok(complete(args.clone(), loaded.settings))
}

/// Whether the command line says where to look.
fn has_paths(args: &RunArgs) -> bool {
    let files = &args.files;
    !args.paths.is_empty() || files.files_from.is_some() || files.choose.all_mounts
}

/// What tells a run by the configuration from all others: its options, by which a stopped one is known again. A list of
/// names may be another one each time.
pub(super) fn purpose(args: &RunArgs) -> Option<String> {
    if args.config.is_none() || args.files.files_from.is_some() {
        return None;
    }
    let mut args = args.clone();
    args.how.dry_run = false;
    let digest = Sha256::digest(format!("{} {args:?}", env!("INDEF_VERSION")));
    let digits = digest.iter().take(16).map(|byte| format!("{byte:02x}"));
    Some(digits.collect())
}

fn complete(mut args: RunArgs, settings: Settings) -> RunArgs {
    let Settings {
        paths,
        select,
        limits,
        run,
        watch: _,
        metrics: _,
    } = settings;
    if !has_paths(&args) {
        match paths {
            Paths::Auto => args.files.choose.all_mounts = true,
            Paths::Given(paths) => args.paths = paths,
        }
    }
    args.files.choose.add(select.exclude, select.min_size);

    let plan = &mut args.plan;
    if !plan.reclaim {
        plan.profile = plan.profile.take().or(select.profile);
        plan.policy = plan.policy.or(select.policy.map(PolicyName::from));
        plan.hot.get_or_insert(select.hot);
        plan.io_size.get_or_insert(select.io_size);
        // A target that was asked for now turns the truncation of the configuration off, as it does the usual one.
        if plan.target_gain.is_none() {
            plan.truncate = plan.truncate.or(select.truncate);
        }
        plan.target_gain = plan.target_gain.or(select.target_gain);
    }

    let limit = |of: Option<Bytes>| Some(of.map_or(Limit::Off, Limit::At));
    args.bounds.budget = args.bounds.budget.or(limit(limits.budget));
    args.bounds.min_free.get_or_insert(limits.min_free);
    let chosen = args.plan.reclaim || args.plan.shared_among_paths;
    args.bounds.allow_unshare |= run.allow_unshare && !chosen;
    let chosen = args.plan.reclaim || args.bounds.allow_unshare;
    args.plan.shared_among_paths |= run.shared_among_paths && !chosen;

    let how = &mut args.how;
    how.rate = how.rate.or(limit(limits.rate));
    let time_limit = limits.time_limit.map_or(Limit::Off, Limit::At);
    how.time_limit.get_or_insert(time_limit);
    how.max_stall.get_or_insert(limits.max_stall);
    how.queue_depth.get_or_insert(run.queue_depth);
    how.engine = how.engine.or(run.engine.map(EngineChoice::Named));
    how.strict |= run.strict;
    args.workers.jobs = args.workers.jobs.or(run.jobs);
    args
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser;
    use indef_engine::run::RunOptions;

    use super::*;
    use crate::args::{Cli, Command};

    fn parsed(options: &[&str]) -> RunArgs {
        let words = ["indef", "run"].iter().chain(options);
        match Cli::try_parse_from(words).unwrap().command {
            Command::Run(args) => args,
            other => panic!("{other:?}"),
        }
    }

    fn options(args: &RunArgs) -> RunOptions {
        super::super::run_options(&args.how, &args.bounds, args.workers)
    }

    #[test]
    fn without_the_limits_of_the_service_the_defaults_are_those_of_the_command_line() {
        let mut settings = Settings::default();
        settings.limits.budget = None;
        settings.limits.rate = None;
        settings.limits.time_limit = None;
        settings.limits.min_free = RunOptions::default().min_free_pct;
        settings.paths = Paths::Given(vec!["/srv".into()]);
        let configured = complete(parsed(&["--config"]), settings);
        let typed = parsed(&["/srv"]);
        assert_eq!(
            format!("{:?}", options(&configured)),
            format!("{:?}", options(&typed))
        );
        let planner = |args: &RunArgs| args.plan.planner(&args.bounds, 4);
        assert_eq!(
            format!("{:?}", planner(&configured)),
            format!("{:?}", planner(&typed))
        );
        assert_eq!(configured.paths, typed.paths);
    }

    #[test]
    fn the_command_line_wins() {
        let mut settings = Settings {
            paths: Paths::Given(vec!["/srv".into()]),
            ..Settings::default()
        };
        settings.select.exclude = vec!["*.iso".parse().unwrap()];
        settings.run.strict = true;
        let configured = |options: &[&str]| complete(parsed(options), settings.clone());
        let args = configured(&["--config", "/home", "--exclude", "x", "--rate", "1MiB"]);
        assert_eq!(args.paths, [Path::new("/home")]);
        assert_eq!(args.files.choose.exclude.exclude.len(), 2);
        let of = options(&args);
        assert_eq!(of.rate, Some(Bytes::mib(1)));
        assert_eq!((of.budget, of.strict), (settings.limits.budget, true));
        let of = options(&configured(&[
            "--config",
            "--budget=none",
            "--time-limit=none",
        ]));
        assert_eq!((of.budget, of.time_limit), (None, None));
        assert_eq!(of.rate, settings.limits.rate);
        let everywhere = configured(&["--config", "--all-mounts"]);
        assert!(everywhere.files.choose.all_mounts && everywhere.paths.is_empty());
        // A stopped run is known again by the same options alone.
        let of = |options: &[&str]| purpose(&configured(options));
        assert!(of(&["/srv"]).is_none() && of(&["--config", "--files-from", "x"]).is_none());
        assert!(of(&["--config"]).is_some());
        assert_eq!(of(&["--config"]), of(&["--config", "--dry-run"]));
        assert_ne!(of(&["--config"]), of(&["--config", "--rate=1MiB"]));
        // Of two that exclude each other, what was asked for now wins.
        settings.run.allow_unshare = true;
        settings.run.shared_among_paths = true;
        for (options, expected) in [
            (&["--config"][..], (true, false)),
            (&["--config", "--shared-among-paths"][..], (false, true)),
            (&["--config", "--allow-unshare"][..], (true, false)),
            (&["--config", "--reclaim"][..], (false, false)),
        ] {
            let args = complete(parsed(options), settings.clone());
            let found = (args.bounds.allow_unshare, args.plan.shared_among_paths);
            assert_eq!(found, expected, "{options:?}");
        }
        settings.run.allow_unshare = false;
        let args = complete(parsed(&["--config"]), settings.clone());
        assert!(args.plan.shared_among_paths);
        // A profile has no say in giving space back.
        settings.select.profile = Some("/p".into());
        let args = complete(parsed(&["--config", "--reclaim"]), settings);
        assert!(args.plan.profile.is_none());
    }
}
