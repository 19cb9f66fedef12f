//! `scripts/system-packages` for a user who may not install packages.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output},
};

/// A compiler that finds every header.
const COMPILER: &str = "while read -r line; do :; done";
/// No package is installed.
const NO_PACKAGE: &str = "exit 1";
const USER: &str = "echo 1000";

/// Run the script where these programs, and no others, are found.
fn run(goal: &str, programs: &[(&str, &str)]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    for (name, what) in programs {
        let path = folder.path().join(name);
        fs::write(&path, format!("#!/bin/bash\n{what}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/system-packages");
    Command::new(script)
        .arg(goal)
        .env_clear()
        .env("PATH", folder.path())
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn it_stops_where_the_build_lacks_something_and_names_it() {
    let programs = [
        ("cargo", ""),
        ("id", USER),
        ("dpkg-query", NO_PACKAGE),
        ("make", ""),
        ("pkg-config", ""),
    ];
    for goal in ["build", "demo", "test"] {
        let output = run(goal, &programs);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(1), "{goal}: {said}");
        let last = said.lines().last().unwrap_or_default();
        assert!(last.ends_with(": gcc clang"), "{goal}: {said}");
        assert!(!said.contains("going on"), "{goal}: {said}");
    }
}

#[test]
fn a_missing_header_is_missing_for_the_build() {
    let programs = [
        ("cargo", ""),
        ("id", USER),
        ("dpkg-query", NO_PACKAGE),
        ("cc", "read -r line; [[ $line != *libelf* ]]"),
        ("clang", ""),
        ("make", ""),
        ("pkg-config", ""),
    ];
    let output = run("demo", &programs);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.lines().last().unwrap().ends_with(": libelf-dev"),
        "{said}"
    );
}

#[test]
fn it_goes_on_without_what_only_tests_need() {
    let mut programs = vec![
        ("cargo", ""),
        ("id", USER),
        ("dpkg-query", NO_PACKAGE),
        ("cc", COMPILER),
        ("clang", ""),
        ("make", ""),
        ("pkg-config", ""),
    ];
    let output = run("test", &programs);
    let debian = said(&output);
    assert!(output.status.success(), "{debian}");
    assert!(debian.contains(" fio ") && debian.contains("going on without"));

    assert!(run("build", &programs).status.success());

    programs.retain(|(name, _)| *name != "dpkg-query");
    let output = run("test", &programs);
    let elsewhere = said(&output);
    assert!(output.status.success(), "{elsewhere}");
    assert!(elsewhere.contains("not a Debian system"), "{elsewhere}");
}

#[test]
fn without_cargo_it_stops() {
    let output = run("demo", &[("id", USER)]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("cargo is missing"));
}
