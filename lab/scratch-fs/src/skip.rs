//! Tests that cannot run here say so, and are counted.
//!
//! `cargo test` has no way to report a test as skipped, and hides what a passing test prints. So a
//! skip is a line on stderr, `skipped: …`, and, where the environment names a file in
//! `INDEF_SKIP_LOG`, a line in it: test name, tab, reason. `cargo xtask test` counts those.

use std::{fs::OpenOptions, io::Write, path::Path};

use crate::ScratchError;

/// The value, or `None` with `skipped: why` on stderr where this machine cannot.
///
/// # Panics
///
/// Where something failed that is no lack of the machine; and, with `CI=true` in the environment,
/// where the machine should have been able to: a test must not go missing unnoticed.
#[must_use]
#[track_caller]
pub fn require<T>(made: Result<T, ScratchError>) -> Option<T> {
    match made {
        Ok(value) => Some(value),
        Err(error @ ScratchError::Unavailable { .. }) => {
            assert!(
                !(in_ci() && error.should_have_worked()),
                "CI must not skip this: {error}"
            );
            skip(&error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Whether a program of the system, like `fio`, is there. If not, the skip is reported: return.
///
/// # Panics
///
/// With `CI=true`, where every program that tests use is installed beforehand.
#[must_use]
#[track_caller]
pub fn require_program(name: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    let found = path
        .split(':')
        .chain(["/usr/sbin", "/sbin", "/usr/local/sbin"])
        .any(|dir| Path::new(dir).join(name).is_file());
    if !found {
        assert!(!in_ci(), "CI must not skip this: {name} is not installed");
        skip(&format!("{name} is not installed"));
    }
    found
}

/// Report the current test as skipped, for the lack of something that CI is not expected to have,
/// either.
///
/// # Panics
///
/// Where the skip cannot be noted: it must not go unnoticed.
pub fn skip(why: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("unnamed");
    eprintln!("skipped: {test}: {why}");
    if let Some(log) = std::env::var_os("INDEF_SKIP_LOG") {
        let line = format!("{test}\t{}\n", why.replace(['\n', '\t'], " "));
        // One write of a short line in append mode does not mix with those of other tests.
        let written = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)
            .and_then(|mut file| file.write_all(line.as_bytes()));
        if let Err(error) = written {
            panic!("cannot note a skip in {}: {error}", log.display());
        }
    }
}

fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| value == "true")
}
