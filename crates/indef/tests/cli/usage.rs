//! The command line itself: usage, exit statuses, help, what packages ship.

use std::{fs, io::Read, path::Path, process::Command};

use crate::common::{Ran, Run, ended, indef, run, spawn};

/// Verbs that indef and its packagers call, and no person.
const INTERNAL: [&str; 4] = ["generate", "held", "demo-step", "tracer"];

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
        &["trace", "-o", "/proc/a", "--max-size", "1KiB"],
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

#[track_caller]
fn helps(command: &[&str]) {
    let ran = run([command, &["--help"]].concat());
    assert_eq!(ran.status, 0);
    assert!(
        ran.out.contains("Examples:") && ran.out.contains("--json"),
        "{command:?}: {ran:?}"
    );
    assert!(
        ran.out.lines().all(|line| line.chars().count() <= 100),
        "{command:?}: {}",
        ran.out
    );
}

#[test]
fn every_command_has_help_with_examples() {
    for command in [
        "scan", "plan", "run", "compact", "watch", "top", "report", "demo", "profile", "history",
        "config",
    ] {
        helps(&[command]);
    }
    let below = [
        ("profile", &["show", "export", "import", "merge"][..]),
        ("config", &["show", "check", "example"]),
    ];
    let below = below
        .into_iter()
        .flat_map(|(above, all)| all.iter().map(move |one| (above, *one)));
    for (above, command) in below {
        helps(&[above, command]);
    }
    let ran = run(["--help"]);
    assert!(
        ran.out.contains("Exit status") && !ran.out.contains("generate"),
        "{ran:?}"
    );
    assert!(run(["--version"]).out.starts_with("indef "));
}

#[test]
fn help_is_a_command_and_nothing_names_internal_verbs() {
    let ran = run(["help"]);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{ran:?}");
    assert!(ran.out.contains("Usage:") && ran.out.contains("scan"));
    let ran = run(["help", "profile", "show"]);
    assert!(ran.status == 0 && ran.out.contains("--top"), "{ran:?}");
    let mut texts = vec![run(["--help"]), run(["help"])];
    // What resembles them; a suggestion may name another command.
    for typo in ["hel", "heldd", "generat", "demo-ste", "demo_step"] {
        let ran = run([typo]);
        assert_eq!(ran.status, 2, "{ran:?}");
        texts.push(ran);
    }
    for ran in texts {
        for verb in INTERNAL {
            assert!(!ran.out.contains(verb), "{verb}: {ran:?}");
            assert!(!ran.err.contains(&format!("'{verb}'")), "{verb}: {ran:?}");
        }
    }
}

#[test]
fn the_version_names_the_commit_of_a_checkout() {
    let ran = run(["--version"]);
    let version = ran.out.trim();
    let package = format!("indef {}", env!("CARGO_PKG_VERSION"));
    assert!(version.starts_with(&package), "{version}");
    assert_eq!(
        run(["scan", "--version"]).out.trim(),
        version.replace("indef", "indef-scan")
    );
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    if !project.join(".git").exists() {
        return scratch_fs::skip("no checkout");
    }
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        git.arg("-C").arg(&project).args(arguments);
        git.output().is_ok_and(|output| output.status.success())
    };
    if !git(&["rev-parse", "--verify", "HEAD"]) {
        return scratch_fs::skip("git does not tell the commit");
    }
    let commit = version.strip_prefix(&format!("{package} ("));
    let commit = commit.and_then(|rest| rest.strip_suffix(')'));
    let commit = commit.unwrap_or_else(|| panic!("{version}"));
    assert!(
        commit.len() == 12 && commit.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "{version}"
    );
    // Not another project's; somebody may have committed since it was built.
    assert!(
        git(&["merge-base", "--is-ancestor", commit, "HEAD"]),
        "{version}"
    );
}

#[test]
fn man_pages_are_complete_and_render_without_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let man = dir.path().join("deep/man");
    assert_eq!(run([&"generate".into(), &"man".into(), &man]).status, 0);
    let mut pages = Vec::new();
    for command in [
        "",
        "-scan",
        "-plan",
        "-run",
        "-compact",
        "-top",
        "-probe",
        "-report",
        "-demo",
        "-trace",
        "-profile",
        "-profile-show",
    ] {
        let page = format!("indef{command}.1");
        let text = fs::read_to_string(man.join(&page)).unwrap_or_else(|e| panic!("{page}: {e}"));
        for section in [
            ".TH",
            "NAME",
            "SYNOPSIS",
            "DESCRIPTION",
            "OPTIONS",
            "EXAMPLES",
            "EXIT STATUS",
            "ENVIRONMENT",
            "FILES",
            "SEE ALSO",
            "VERSION",
        ] {
            assert!(text.contains(section), "{page}: {section}");
        }
        pages.push((page, text));
    }
    // What its own exit status means is told beside what all share.
    let watch = fs::read_to_string(man.join("indef-watch.1")).unwrap();
    assert!(watch.contains("Exit status 3 with"), "{watch}");
    let files = fs::read_dir(&man).unwrap();
    for file in files {
        let name = file.unwrap().file_name().into_string().unwrap();
        assert!(
            !INTERNAL.iter().any(|verb| name.contains(verb)) && !name.contains("help"),
            "{name}"
        );
    }
    // Not among the packages that tests are given: small systems have none.
    if Command::new("man").arg("--version").output().is_err() {
        return scratch_fs::skip("man is not installed");
    }
    for (page, _) in &pages {
        let ran = Command::new("man")
            .args(["--warnings", "--encoding=UTF-8", "--local-file"])
            .arg(man.join(page))
            .env("LC_ALL", "C.UTF-8")
            .env("MANWIDTH", "80")
            .env_remove("MANROFFOPT")
            .ran();
        assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{page}: {ran:?}");
        let widest = ran.out.lines().map(|line| line.chars().count()).max();
        assert!(
            widest.is_some_and(|width| width <= 100),
            "{page}: {}",
            ran.out
        );
    }
    let ran = run(["generate", "man", "/proc/nowhere"]);
    assert_eq!(ran.status, 1);
    ran.error_line("/proc/nowhere");
}

#[test]
fn shells_complete_values_and_files() {
    let dir = tempfile::tempdir().unwrap();
    let ran = run([
        "generate".as_ref(),
        "completions".as_ref(),
        dir.path().as_os_str(),
    ]);
    assert_eq!(ran.status, 0);
    for file in ["indef.bash", "_indef", "indef.fish"] {
        let text = fs::read_to_string(dir.path().join(file)).unwrap();
        for word in ["max-stall", "ext4-move-extent", "fragpicker"] {
            assert!(text.contains(word), "{file}: {word}");
        }
        for verb in ["held", "demo-step", "'generate'", "indef__subcmd__generate"] {
            assert!(!text.contains(verb), "{file}: {verb}");
        }
    }
    if !scratch_fs::require_program("bash") {
        return;
    }
    fs::write(dir.path().join("a.plan"), "").unwrap();
    let complete = |words: &[&str]| {
        let script = format!(
            "cd {dir}; source ./indef.bash; COMP_WORDS=({words}); COMP_CWORD={last}; \
             _indef indef {word:?} {before:?}; echo \"${{COMPREPLY[@]}}\"",
            dir = dir.path().display(),
            words = words
                .iter()
                .map(|word| format!("{word:?} "))
                .collect::<String>(),
            last = words.len() - 1,
            word = words[words.len() - 1],
            before = words[words.len() - 2],
        );
        let ran = Command::new("bash").args(["--norc", "-c", &script]).ran();
        // Outside of a completion bash says that compopt has no effect.
        assert_eq!(ran.status, 0, "{ran:?}");
        ran.out.trim().to_owned()
    };
    assert_eq!(
        complete(&["indef", "run", "--engine", "ext4"]),
        "ext4-move-extent"
    );
    assert_eq!(
        complete(&["indef", "plan", "--policy", "frag"]),
        "fragpicker"
    );
    assert_eq!(complete(&["indef", "run", "--plan", "a"]), "a.plan");
    assert_eq!(complete(&["indef", "run", "--rate", "a"]), "a");
    let commands = complete(&["indef", ""]);
    assert!(
        commands.contains("compact") && commands.contains("help"),
        "{commands}"
    );
    assert!(
        !INTERNAL.iter().any(|verb| commands.contains(verb)),
        "{commands}"
    );
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
fn a_reader_that_leaves_makes_up_for_no_failure() {
    let dir = tempfile::tempdir().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let ran = indef()
        .args(["scan", "/no/such/path"])
        .arg(dir.path())
        .stdout(writer)
        .ran();
    assert_eq!(ran.status, 1, "{ran:?}");
    ran.error_line("/no/such/path");
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
