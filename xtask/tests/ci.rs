//! The last line of `.ci/run` is true, whatever fails.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

/// Run it with a `make` whose goals end in this way. Returns its last line and
/// whether it succeeded.
fn run(test: &str, fresh: &str) -> (String, bool) {
    let folder = tempfile::tempdir().unwrap();
    let make = folder.path().join("make");
    let script =
        format!("#!/bin/bash\necho noise\ncase $* in\n*test) {test} ;;\nfresh) {fresh} ;;\nesac\n");
    fs::write(&make, script).unwrap();
    fs::set_permissions(&make, fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    let output = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.ci/run"))
        .env("PATH", format!("{}:{path}", folder.path().display()))
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let last = said.lines().last().unwrap_or_default();
    (last.to_owned(), output.status.success())
}

fn tests(summary: &str, status: u8) -> String {
    format!("echo '{summary}' >\"$INDEF_SUMMARY\"; exit {status}")
}

#[test]
fn the_last_line_counts_what_failed() {
    let good = tests("5 passed, 0 failed, 1 skipped", 0);
    let bad = tests("5 passed, 2 failed, 1 skipped", 2);
    // All tests passed, but not another check.
    let check = tests("5 passed, 0 failed, 1 skipped", 2);
    for (test, fresh, line) in [
        (&*good, "exit 0", "5 passed, 0 failed, 1 skipped"),
        (&*good, "exit 1", "5 passed, 1 failed, 1 skipped"),
        (&*bad, "exit 0", "5 passed, 2 failed, 1 skipped"),
        (&*bad, "exit 1", "5 passed, 3 failed, 1 skipped"),
        (&*check, "exit 0", "5 passed, 1 failed, 1 skipped"),
        (&*check, "exit 1", "5 passed, 2 failed, 1 skipped"),
        ("exit 2", "exit 0", "0 passed, 1 failed, 0 skipped"),
        ("exit 2", "exit 1", "0 passed, 2 failed, 0 skipped"),
        ("exit 0", "exit 0", "0 passed, 1 failed, 0 skipped"),
    ] {
        let whole = line.contains(" 0 failed");
        assert_eq!(
            run(test, fresh),
            (line.to_owned(), whole),
            "{test}; {fresh}"
        );
    }
}
