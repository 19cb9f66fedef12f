//! The command line itself: usage, exit statuses, help, what packages ship.

use std::{fs, io::Read};

use crate::common::{Ran, ended, indef, run, spawn};

#[test]
fn wrong_usage_is_status_2_and_touches_nothing() {
    for arguments in [
        &[][..],
        &["scan"],
        &["fly", "/tmp"],
        &["run"],
        &["run", "/tmp", "--jobs", "0"],
        &["run", "/tmp", "--jobs", "-1"],
        &["run", "/tmp", "--queue-depth", "0"],
        &["run", "/tmp", "--queue-depth", "many"],
        &["run", "/tmp", "--engine", "warp"],
        &["run", "/tmp", "--truncate", "101"],
        &["run", "/tmp", "--truncate=-1"],
        &["run", "/tmp", "--policy", "best"],
        &["run", "/tmp", "--rate", "fast"],
        &["run", "/tmp", "--rate", "0"],
        &["run", "/tmp", "--max-stall", "0"],
        &["run", "/tmp", "--time-limit", "5"],
        &["run", "/tmp", "--time-limit", "0s"],
        &["run", "/tmp", "--min-free", "200"],
        &["run", "/tmp", "--budget", "1 bushel"],
        &["run", "/tmp", "--alpha", "nan"],
        &["run", "/tmp", "--beta=-2"],
        &["run", "/tmp", "--geometry", "round"],
        &["run", "/tmp", "--resume"],
        &["run", "--plan", "a", "--policy", "whole"],
        &["plan", "/tmp", "--io-size", "1000"],
        &["plan", "/tmp", "--target-gain", "150%"],
        &["scan", "/tmp", "--color", "sometimes"],
        &["scan", "/tmp", "-q", "-v"],
        &["demo", "--fs", "fat"],
        &["demo", "--size", "1"],
        &["top", "--profile", "a", "--watch", "1s"],
        &["top", "--interval", "1ms"],
        &["report"],
        &["profile"],
        &["profile", "show"],
        &["profile", "bury", "a"],
        &["profile", "export", "a", "--format", "xml"],
        &["profile", "import", "a"],
        &["profile", "import", "a", "b", "--format", "dtrace"],
        &["profile", "import", "a", "b", "--layer", "disk"],
        &["profile", "import", "a", "b", "--half-life", "5"],
        &["profile", "import", "a", "b", "--max-size", "1KiB"],
        &["profile", "merge", "a"],
        &["compact"],
        &["compact", "/tmp", "/tmp"],
        &["compact", "/tmp", "--want", "0"],
    ] {
        let ran = run(arguments);
        assert_eq!(ran.status, 2, "{arguments:?}: {ran:?}");
        assert!(ran.out.is_empty(), "{arguments:?}: {ran:?}");
        assert!(
            !ran.err.is_empty() && !ran.err.contains("panicked"),
            "{arguments:?}: {ran:?}"
        );
    }
}

#[test]
fn bad_values_are_named_with_an_example_of_a_good_one() {
    for (option, value, hint) in [
        ("--rate", "fast", "128KiB"),
        ("--truncate", "101", "between 0 and 100"),
        ("--time-limit", "5", "1h30m"),
        ("--io-size", "1000", "power of two"),
    ] {
        let ran = run(["run", "/tmp", option, value]);
        assert!(
            ran.err.contains(option) && ran.err.contains(hint),
            "{ran:?}"
        );
    }
}

#[test]
fn every_command_has_help_with_examples() {
    for command in [
        "scan", "plan", "run", "compact", "top", "report", "demo", "profile",
    ] {
        let ran = run([command, "--help"]);
        assert_eq!(ran.status, 0);
        assert!(
            ran.out.contains("Examples:") && ran.out.contains("--json"),
            "{command}: {ran:?}"
        );
        assert!(
            ran.out.lines().all(|line| line.chars().count() <= 100),
            "{command}: {}",
            ran.out
        );
    }
    for command in ["show", "export", "import", "merge"] {
        let ran = run(["profile", command, "--help"]);
        assert_eq!(ran.status, 0);
        assert!(
            ran.out.contains("Examples:") && ran.out.contains("--json"),
            "{command}: {ran:?}"
        );
        assert!(
            ran.out.lines().all(|line| line.chars().count() <= 100),
            "{command}: {}",
            ran.out
        );
    }
    let ran = run(["--help"]);
    assert!(
        ran.out.contains("Exit status") && !ran.out.contains("generate"),
        "{ran:?}"
    );
    assert!(run(["--version"]).out.starts_with("indef "));
}

#[test]
fn man_pages_and_completions_are_generated() {
    let dir = tempfile::tempdir().unwrap();
    let man = dir.path().join("deep/man");
    assert_eq!(run([&"generate".into(), &"man".into(), &man]).status, 0);
    for page in [
        "indef.1",
        "indef-scan.1",
        "indef-plan.1",
        "indef-run.1",
        "indef-top.1",
        "indef-report.1",
        "indef-demo.1",
    ] {
        let text = fs::read_to_string(man.join(page)).unwrap_or_else(|e| panic!("{page}: {e}"));
        assert!(text.contains(".TH") && text.contains("indef"), "{page}");
    }
    let completions = dir.path().join("completions");
    assert_eq!(
        run([&"generate".into(), &"completions".into(), &completions]).status,
        0
    );
    for file in ["indef.bash", "_indef", "indef.fish"] {
        assert!(
            fs::read_to_string(completions.join(file))
                .unwrap()
                .contains("max-stall"),
            "{file}"
        );
    }
    let ran = run(["generate", "man", "/proc/nowhere"]);
    assert_eq!(ran.status, 1);
    ran.error_line("/proc/nowhere");
}

#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    let dir = tempfile::tempdir().unwrap();
    for n in 0..5000 {
        fs::write(
            dir.path()
                .join(format!("a-file-with-quite-a-long-name-{n}")),
            "x",
        )
        .unwrap();
    }
    let mut child = spawn(indef().args(["scan", "--json"]).arg(dir.path()));
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut [0; 16]).unwrap();
    drop(out);
    let ran = ended(child);
    assert!(matches!(ran.status, 0 | 3), "{ran:?}");
    assert!(ran.err.is_empty(), "{ran:?}");
}

#[test]
fn colours_only_where_they_are_wanted() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "x").unwrap();
    let dir = dir.path().to_str().unwrap();
    assert!(!run(["scan", dir]).out.contains('\x1b'));
    assert!(run(["scan", dir, "--color", "always"]).out.contains('\x1b'));
    assert!(!run(["scan", dir, "--color", "never"]).out.contains('\x1b'));
    let ran = run(["scan", dir, "--quiet"]);
    assert!(
        ran.status == 0 && ran.out.is_empty() && ran.err.is_empty(),
        "{ran:?}"
    );
}

#[test]
fn a_full_disk_behind_stdout_is_a_failure_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "x").unwrap();
    for arguments in [
        &["scan"][..],
        &["scan", "--json"],
        &["plan"],
        &["run"],
        &["run", "--json"],
    ] {
        let full = fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let output = indef()
            .args(arguments)
            .arg(dir.path())
            .stdout(full)
            .output()
            .unwrap();
        let ran = Ran::from(output);
        assert_eq!(ran.status, 1, "{arguments:?}: {ran:?}");
        ran.error_line("cannot be printed");
    }
}
