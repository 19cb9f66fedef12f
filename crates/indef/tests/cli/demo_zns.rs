//! `indef demo --zns` and the program that it runs, indef-lab: found, missing, failing, or of
//! another version. The real one is tested in the laboratory.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::common::{ForAnybody, Ran, Run, install_script};

/// Make an indef-lab in `folder` that runs this script.
fn lab(folder: &Path, script: &str) {
    fs::create_dir_all(folder).unwrap();
    install_script(&folder.join("indef-lab"), script);
}

/// A copy of indef in a folder of its own, and the only folder of its `PATH`.
fn installed() -> (ForAnybody, PathBuf) {
    let place = ForAnybody::new();
    let path = place.dir.path().join("path");
    fs::create_dir(&path).unwrap();
    (place, path)
}

fn demo(place: &ForAnybody, path: &Path) -> Ran {
    Command::new(&place.binary)
        .args(["demo", "--zns", "--size", "16MiB"])
        .env("PATH", path)
        .env("LC_ALL", "C")
        .ran()
}

#[test]
fn without_indef_lab_it_says_how_to_install_it() {
    let (place, path) = installed();
    let ran = demo(&place, &path);
    assert_eq!(ran.status, 1, "{ran:?}");
    let line = ran.error_line("the program indef-lab is missing");
    assert!(line.contains("make install-lab"), "{line}");
    assert!(line.contains(place.binary.to_str().unwrap()), "{line}");
}

#[test]
fn it_is_found_on_the_path_and_beside_indef_first() {
    let (place, path) = installed();
    let says = |what: &str| format!("echo '{{\"failed\":\"{what} '\"$4 $5\"'\"}}'");
    lab(&path, &says("path"));
    let ran = demo(&place, &path);
    assert_eq!(ran.status, 1, "{ran:?}");
    ran.error_line("path --size 16777216");
    lab(place.dir.path(), &says("beside"));
    demo(&place, &path).error_line("beside --size 16777216");
}

#[test]
fn what_it_says_is_shown() {
    let (place, path) = installed();
    let said =
        r#"echo '{"note":"a step"}'; echo '{"output":"a result"}'; echo '{"failed":"no luck"}'"#;
    lab(&path, said);
    let ran = demo(&place, &path);
    assert_eq!((ran.status, &*ran.out), (1, "a result\n"), "{ran:?}");
    assert_eq!(ran.err, "indef: a step\nindef: no luck\n");
}

#[test]
fn one_of_another_version_or_that_ends_early_is_an_error() {
    let (place, path) = installed();
    lab(&path, "echo '{\"sung\":\"la\"}'");
    demo(&place, &path).error_line("both of one version");
    lab(&path, "exit 7");
    let ran = demo(&place, &path);
    assert_eq!(ran.status, 1, "{ran:?}");
    ran.error_line("exit status: 7");
}
