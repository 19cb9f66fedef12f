use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown, symlink},
    path::{Path, PathBuf},
};

use clap::CommandFactory;
use units::Bytes;

use super::{load::apply, *};
use crate::args::Cli;

fn read(text: &str) -> (Loaded, Vec<String>) {
    let mut loaded = Loaded::default();
    let mut errors = Vec::new();
    apply(text, Path::new("f"), &mut loaded, &mut errors);
    (loaded, errors.iter().map(ToString::to_string).collect())
}

fn shown(loaded: &Loaded) -> Vec<String> {
    let line = |key: &keys::AnyKey| {
        let value = key.show(&loaded.settings).toml();
        format!("{} = {value}", key.full_name())
    };
    KEYS.iter().map(line).collect()
}

#[test]
fn the_example_says_what_holds_without_it() {
    let example = example();
    let (as_it_is, errors) = read(&example);
    assert_eq!(errors, [""; 0]);
    assert!(as_it_is.origins.is_empty(), "all of it is commented out");
    // A line of text begins with a blank, a value does not.
    let lines = example.lines().map(|line| match line.strip_prefix('#') {
        Some(value) if !value.starts_with(' ') => value,
        _ => line,
    });
    let uncommented: Vec<&str> = lines.collect();
    let (uncommented, errors) = read(&uncommented.join("\n"));
    assert_eq!(errors, [""; 0]);
    assert_eq!(uncommented.origins.len(), KEYS.len());
    assert_eq!(shown(&uncommented), shown(&Loaded::default()));
    for line in example.lines() {
        assert!(line.chars().count() <= 120, "{line}");
        assert!(!line.contains("[default") && line != "# .", "{line}");
    }
}

#[test]
fn the_packaged_file_is_the_example() {
    let packaged = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/indef.toml");
    let packaged = fs::read_to_string(packaged).unwrap();
    assert!(
        packaged == example(),
        "packaging/indef.toml is not what `indef config example` prints"
    );
}

#[test]
fn values_are_those_of_the_command_line() {
    let (loaded, errors) = read(
        "paths = [\"/srv\", \"/home\"]\n\
         [select]\nexclude = [\"*.iso\", \"/tmp\"]\nmin-size = \"1MiB\"\npolicy = \"whole\"\ntruncate = 12.5\n\
         [limits]\nbudget = \"none\"\nrate = \"50MiB/s\"\ntime-limit = \"90m\"\nmax-stall = 20\nmin-free = \"7%\"\n\
         [run]\njobs = 3\nengine = \"ext4-move-extent\"\nstrict = true\n\
         [watch]\nlearn = \"0s\"\npayback = \"100s\"\nmax-overhead = 0.29\nwindow = [\"sat,sun\", \"22:00-06:00\"]\n\
         yearly-budget = \"none\"\n\
         [metrics]\nmetrics-listen = \"unix:/run/x\"\n",
    );
    assert_eq!(errors, [""; 0]);
    let Settings {
        paths,
        select,
        limits,
        run,
        watch,
        metrics,
    } = &loaded.settings;
    assert_eq!(*paths, Paths::Given(vec!["/srv".into(), "/home".into()]));
    assert_eq!(select.exclude.len(), 2);
    assert_eq!(
        (select.min_size, select.truncate),
        (Some(Bytes::mib(1)), Some(12.5))
    );
    assert_eq!((limits.budget, limits.rate), (None, Some(Bytes::mib(50))));
    assert_eq!(limits.time_limit.unwrap().as_secs(), 5400);
    assert_eq!((limits.max_stall.as_millis(), limits.min_free), (20, 7.0));
    assert_eq!((run.jobs, run.strict), (Some(3), true));
    assert!(watch.learn.is_zero() && watch.budgets.year.is_none());
    assert_eq!(
        (watch.windows.len(), watch.terms.within_days * 864.0),
        (2, 1.0)
    );
    assert_eq!(
        metrics.listen,
        Some(metrics_server::Address::Unix("/run/x".into()))
    );
    // What is shown says the same again.
    let text: String = shown(&loaded)
        .iter()
        .map(|line| format!("{line}\n"))
        .collect();
    let (again, errors) = read(&text);
    assert_eq!((shown(&again), errors.len()), (shown(&loaded), 0));
    assert_eq!(loaded.origins["limits.rate"].line, 9);
}

/// An option of `indef watch` has one key: in its sections, or where `indef run` has it, too.
#[test]
fn each_option_of_watch_has_a_key() {
    let cli = Cli::command();
    let watch = cli.find_subcommand("watch").unwrap();
    let options = watch.get_arguments().filter_map(clap::Arg::get_long);
    // What is meant for this one call.
    let of_a_call = ["once", "dry-run", "config", "all-mounts", "help"];
    let options: Vec<&str> = options.filter(|name| !of_a_call.contains(name)).collect();
    assert!(options.len() > 25, "{options:?}");
    for option in options {
        let keys = KEYS.iter().filter(|key| key.name == option);
        assert_eq!(keys.count(), 1, "{option}");
    }
    let names: Vec<&str> = watch
        .get_arguments()
        .filter_map(clap::Arg::get_long)
        .collect();
    for key in KEYS.iter().filter(|key| key.command() == "watch") {
        assert!(names.contains(&key.name), "{}", key.full_name());
    }
    let alone = KEYS.iter().filter(|key| key.is_of_runs_alone()).count();
    assert_eq!(alone, keys::OF_RUNS_ALONE.len());
}

#[test]
fn mistakes_name_line_and_key_and_what_is_allowed() {
    for (text, told) in [
        (
            "\n[limits]\nrat = \"1MiB\"",
            "f:3: limits.rat: there is no such key; did you mean limits.rate?",
        ),
        (
            "[limits]\nmax_stall = 5",
            "f:2: limits.max_stall: there is no such key; did you mean limits.max-stall?",
        ),
        (
            "rate = \"1MiB\"",
            "f:1: rate: there is no such key; did you mean limits.rate?",
        ),
        (
            "[limts]\nrate = 5",
            "f:1: limts: there is no such section; did you mean [limits]?",
        ),
        (
            "[colours]",
            "f:1: colours: there is no such section (indef config example shows all)",
        ),
        (
            "[run]\ncolour = \"red\"",
            "f:2: run.colour: there is no such key (indef config example shows all)",
        ),
        (
            "limits = 5",
            "f:1: limits: is a section: begin it with a line [limits]",
        ),
        (
            "[run]\nstrict = \"yes\"",
            "f:2: run.strict: must be true or false, without quotes",
        ),
        (
            "[run]\njobs = 0",
            "f:2: run.jobs: must be a whole number from 1 to 1024; or \"auto\"",
        ),
        (
            "[watch]\nrate = 5",
            "f:2: watch.rate: there is no such key; did you mean limits.rate?",
        ),
        (
            "[watch]\nmetrics-file = 5",
            "f:2: watch.metrics-file: there is no such key; did you mean metrics.metrics-file?",
        ),
        (
            "[watch]\nwindow = [\"nights\"]",
            "f:2: watch.window: \"nights\": write a window like 22:00-06:00, 'sat,sun' or 'mon-fri 01:00-05:00'",
        ),
        (
            "[run]\njobs = 0x10",
            "f:2: run.jobs: must be a text in quotes or a decimal number",
        ),
        (
            "[limits]\nmin-free = 101",
            "f:2: limits.min-free: a percentage lies between 0 and 100",
        ),
        (
            "[limits]\nrate = true",
            "f:2: limits.rate: must be a text in quotes or a decimal number",
        ),
        (
            "[select]\nexclude = \"x\"",
            "f:2: select.exclude: must be a list, like [\"one\", \"two\"]",
        ),
        (
            "paths = \"srv\"",
            "f:1: paths: must be \"auto\", or a list of whole paths, like [\"/srv\", \"/home\"]",
        ),
        (
            "paths = []",
            "f:1: paths: must be \"auto\", or a list of whole paths, like [\"/srv\", \"/home\"]",
        ),
        (
            "paths = [\"srv\"]",
            "f:1: paths: \"srv\": must be a whole path, from / on",
        ),
    ] {
        assert_eq!(read(text).1, [told], "{text}");
    }
    for (text, told) in [
        (
            "[limits]\ntime-limit = \"5\"",
            "like 90s, 15m or 1h30m; or \"none\"",
        ),
        ("[run]\nengine = \"warp\"", "ext4-move-extent, "),
        (
            "[select]\npolicy = \"best\"",
            "choose indef, fragpicker, whole or sequential; or \"auto\"",
        ),
        ("[select]\nexclude = [\"[a\"]", "\"[a\": "),
    ] {
        let errors = read(text).1;
        assert!(errors.len() == 1 && errors[0].contains(told), "{errors:?}");
    }
    // All of them, in the order of the lines; and none of a file that is no TOML, but the first.
    let (_, errors) = read("x = 1\n[run]\ny = 2\njobs = 0\n[limits]\nz = 3");
    let lines: Vec<&str> = errors.iter().map(|error| &error[..3]).collect();
    assert_eq!(lines, ["f:1", "f:3", "f:4", "f:6"]);
    let (_, errors) = read("\n\n[limits\nrate = 5");
    assert!(
        errors.len() == 1 && errors[0].starts_with("f:3: "),
        "{errors:?}"
    );
    let (_, errors) = read("[run]\njobs = 1\njobs = 2");
    assert!(
        errors.len() == 1 && errors[0].starts_with("f:3: "),
        "{errors:?}"
    );
}

/// A folder with a configuration and drop-ins.
fn folder(files: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("indef.toml.d")).unwrap();
    for (name, text) in files {
        fs::write(dir.path().join(name), text).unwrap();
    }
    let file = dir.path().join("indef.toml");
    (dir, file)
}

#[test]
fn later_values_take_the_place_of_earlier_ones() {
    let (dir, file) = folder(&[
        (
            "indef.toml",
            "[select]\nexclude = [\"a\", \"b\"]\nhot = 1\n[run]\njobs = 1\n",
        ),
        ("indef.toml.d/20.toml", "run.jobs = 20"),
        ("indef.toml.d/9.toml", "run.jobs = 9"),
        (
            "indef.toml.d/10.toml",
            "run.jobs = 10\nselect.exclude = [\"c\"]",
        ),
        ("indef.toml.d/.hidden.toml", "run.jobs = 98"),
        ("indef.toml.d/99.conf", "run.jobs = 99"),
    ]);
    let loaded = load(Some(&file)).unwrap();
    let Settings { select, run, .. } = &loaded.settings;
    // By their names as texts, as systemd's.
    assert_eq!(run.jobs, Some(9));
    let globs: Vec<&str> = select.exclude.iter().map(|glob| glob.as_str()).collect();
    assert_eq!((globs, select.hot), (vec!["c"], 1.0));
    assert_eq!(loaded.files.len(), 4);
    let origin = &loaded.origins["select.exclude"];
    assert_eq!(origin.file, dir.path().join("indef.toml.d/10.toml"));
    assert_eq!((origin.line, loaded.origins["select.hot"].line), (2, 3));
    // Without the file itself drop-ins hold; but one that was named has to be there.
    fs::remove_file(&file).unwrap();
    let (loaded, errors) = check(Some(&file));
    assert_eq!(loaded.settings.run.jobs, Some(9));
    assert!(
        errors.len() == 1 && errors[0].message.contains("no such file"),
        "{errors:?}"
    );
}

#[test]
fn root_takes_a_configuration_from_root_alone() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (dir, file) = folder(&[
        ("indef.toml", "[run]\njobs = 1\n"),
        ("indef.toml.d/1.toml", "[run]\njobs = 2\n"),
    ]);
    let drop_ins = dir.path().join("indef.toml.d");
    let drop_in = drop_ins.join("1.toml");
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let refused = |what: &str| {
        let errors = load(Some(&file)).unwrap_err();
        assert_eq!(errors.len(), 1, "{errors:?}");
        let told = errors[0].to_string();
        assert!(told.contains(what) && told.contains("root alone"), "{told}");
    };
    load(Some(&file)).unwrap();
    for path in [&file, &drop_in] {
        mode(path, 0o664);
        refused("can be written by others");
        mode(path, 0o644);
        chown(path, Some(1000), None).unwrap();
        refused("belongs to user 1000");
        chown(path, Some(0), None).unwrap();
    }
    for path in [&drop_ins, dir.path()] {
        for bits in [0o775, 0o1777] {
            mode(path, bits);
            if path == dir.path() && bits == 0o1777 {
                // Nobody takes root's entries away there.
                load(Some(&file)).unwrap();
                continue;
            }
            let errors = load(Some(&file)).unwrap_err();
            assert!(
                errors[0].message.contains("can be written by others"),
                "{errors:?}"
            );
        }
        mode(path, 0o755);
        chown(path, Some(1000), None).unwrap();
        let errors = load(Some(&file)).unwrap_err();
        assert!(
            errors[0].message.contains("belongs to user 1000"),
            "{errors:?}"
        );
        chown(path, Some(0), None).unwrap();
    }
    load(Some(&file)).unwrap();

    // A link is as safe as the place that it leads to.
    let elsewhere = tempfile::tempdir().unwrap();
    let target = elsewhere.path().join("target.toml");
    fs::write(&target, "[run]\njobs = 7\n").unwrap();
    fs::remove_file(&file).unwrap();
    symlink(&target, &file).unwrap();
    mode(&drop_ins, 0o755);
    fs::remove_file(&drop_in).unwrap();
    assert_eq!(load(Some(&file)).unwrap().settings.run.jobs, Some(7));
    chown(elsewhere.path(), Some(1000), None).unwrap();
    refused("belongs to user 1000");
    // Nor is a FIFO waited for.
    fs::remove_file(&file).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &file,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let errors = load(Some(&file)).unwrap_err();
    assert!(errors[0].message.contains("no regular file"), "{errors:?}");
}
