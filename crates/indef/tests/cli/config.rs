//! The configuration: shown, checked, and what a run takes from it.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{Run, documented::assert_documented, indef, run};

/// A configuration in a folder of its own.
fn written(text: &str) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("indef.toml");
    fs::write(&file, text).unwrap();
    (dir, file)
}

fn setting<'a>(document: &'a Value, key: &str) -> &'a Value {
    let settings = document["settings"].as_array().unwrap();
    let found = settings.iter().find(|setting| setting["key"] == key);
    found.unwrap_or_else(|| panic!("no {key}: {document}"))
}

#[test]
fn what_holds_is_shown_with_its_origin() {
    let (dir, file) = written("[limits]\nrate = \"50MiB\"\n");
    fs::create_dir(dir.path().join("indef.toml.d")).unwrap();
    let drop_in = dir.path().join("indef.toml.d/1.toml");
    fs::write(&drop_in, "\n[run]\nstrict = true\n").unwrap();
    let show = |options: &[&str]| {
        let ran = indef()
            .args(["config", "show"])
            .args(options)
            .arg(&file)
            .ran();
        assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{ran:?}");
        ran
    };
    let document = show(&["--json"]).json();
    let rate = setting(&document, "limits.rate");
    assert_eq!(
        (&rate["value"], &rate["line"]),
        (&"50MiB".into(), &2.into())
    );
    assert_eq!(rate["file"]["path"], file.to_str().unwrap());
    let strict = setting(&document, "run.strict");
    assert_eq!(
        (&strict["value"], &strict["line"]),
        (&true.into(), &3.into())
    );
    assert_eq!(strict["file"]["path"], drop_in.to_str().unwrap());
    let stall = setting(&document, "limits.max-stall");
    assert_eq!(
        (&stall["value"], &stall["file"]),
        (&50.into(), &Value::Null)
    );
    assert_eq!(document["files"].as_array().unwrap().len(), 2);
    // The text is a configuration that says the same.
    let text = show(&[]).out;
    assert!(text.contains(&format!("# {}:2", file.display())), "{text}");
    let (_dir, again) = written(&text);
    let again = indef()
        .args(["config", "show", "--json"])
        .arg(again)
        .ran()
        .json();
    for one in document["settings"].as_array().unwrap() {
        let key = one["key"].as_str().unwrap();
        assert_eq!(setting(&again, key)["value"], one["value"], "{key}");
    }
}

#[test]
fn a_link_to_nothing_is_a_mistake() {
    let (dir, file) = written("");
    let name = file.to_str().unwrap();
    let folder = dir.path().join("indef.toml.d");
    fs::create_dir(&folder).unwrap();
    symlink("/no/such/file", folder.join("exclude.toml")).unwrap();
    let ran = run(["config", "check", name]);
    assert_eq!((ran.status, ran.out.as_str()), (1, ""), "{ran:?}");
    ran.error_line("exclude.toml: is a link to a file that is not there");
    let config = format!("--config={name}");
    let ran = run(["run", &config, "/no/such/path"]);
    assert_eq!(ran.status, 1, "{ran:?}");
    assert!(ran.err.contains("nothing was done"), "{ran:?}");
    fs::remove_dir_all(&folder).unwrap();
    symlink("/no/such/folder", &folder).unwrap();
    let ran = run(["config", "check", name]);
    assert_eq!(ran.status, 1, "{ran:?}");
    ran.error_line("indef.toml.d: is a link to a folder that is not there");
}

#[test]
fn mistakes_are_told_by_check_and_keep_a_run_from_beginning() {
    let (_dir, file) = written("[limits]\nrat = 5\n[run]\njobs = 0\n");
    let name = file.to_str().unwrap();
    let ran = run(["config", "check", name]);
    assert_eq!((ran.status, ran.out.as_str()), (1, ""), "{ran:?}");
    let lines: Vec<&str> = ran.err.lines().collect();
    assert_eq!(lines.len(), 2, "{ran:?}");
    assert!(
        lines[0].contains(&format!("{name}:2: limits.rat: ")),
        "{ran:?}"
    );
    assert!(lines[0].contains("did you mean limits.rate?"), "{ran:?}");
    assert!(lines[1].contains("from 1 to 1024"), "{ran:?}");
    let ran = run(["config", "check", "--json", name]);
    assert_eq!(ran.status, 1, "{ran:?}");
    let errors = &ran.json()["errors"];
    assert_eq!(
        (&errors[0]["key"], &errors[0]["line"]),
        (&"limits.rat".into(), &2.into())
    );

    let ran = run([
        "run",
        "--json",
        &format!("--config={name}"),
        "/no/such/path",
    ]);
    assert_eq!(ran.status, 1, "{ran:?}");
    let document = ran.json();
    assert!(document["files"].is_null(), "{document}");
    let error = document["error"].as_str().unwrap();
    assert!(error.contains("nothing was done"), "{document}");
    assert!(
        ran.err.contains("nothing was done") && !ran.err.contains("/no/such/path"),
        "{ran:?}"
    );

    fs::write(&file, "").unwrap();
    let ran = run(["config", "check", name]);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{ran:?}");
    assert!(ran.out.contains("no mistakes"), "{ran:?}");
    let ran = run(["config", "check", "/no/such/file"]);
    assert_eq!(ran.status, 1);
    ran.error_line("/no/such/file: there is no such file");
    for arguments in [
        &["config"][..],
        &["config", "show", "a", "b"],
        &["config", "bury"],
    ] {
        assert_eq!(run(arguments).status, 2, "{arguments:?}");
    }
}

#[test]
fn a_run_without_a_configuration_says_what_holds() {
    let there = ["/etc/indef/indef.toml", "/etc/indef/indef.toml.d"];
    if there.iter().any(|path| Path::new(path).exists()) {
        return scratch_fs::skip("this machine has a configuration");
    }
    let files = tempfile::tempdir().unwrap();
    let folder = files.path().to_str().unwrap();
    let ran = run(["run", "--config", "--dry-run", folder]);
    assert_eq!(ran.status, 0, "{ran:?}");
    ran.error_line("/etc/indef/indef.toml: there is none, the defaults hold");
    // Nobody has said that all that is mounted is meant.
    for words in [
        &["run", "--config", "--dry-run"][..],
        &["watch", "--config", "--once", "--dry-run"],
    ] {
        let ran = run(words);
        assert_eq!((ran.status, ran.out.as_str()), (1, ""), "{ran:?}");
        ran.error_line("/etc/indef/indef.toml: there is no configuration");
        assert!(
            ran.err
                .contains("mkdir -p /etc/indef && indef config example >/etc/indef/indef.toml"),
            "{ran:?}"
        );
    }
}

#[test]
fn a_run_takes_what_is_not_typed_from_the_configuration() {
    let files = tempfile::tempdir().unwrap();
    for name in ["a.log", "b.db", "c.iso"] {
        fs::write(files.path().join(name), [7; 5000]).unwrap();
    }
    let text = format!(
        "paths = [\"{}\"]\n[select]\nexclude = [\"*.log\"]\n",
        files.path().display()
    );
    let (_dir, file) = written(&text);
    let config = format!("--config={}", file.display());
    let of = |options: &[&str]| {
        let ran = indef()
            .args(["run", "--json", "--dry-run", &config])
            .args(options)
            .ran();
        assert_eq!(ran.status, 0, "{ran:?}");
        ran.json()
    };
    let document = of(&[]);
    assert_eq!(document["totals"]["files_excluded"], 1);
    assert_eq!(document["files"].as_array().unwrap().len(), 2, "{document}");
    // What is typed is left out in addition, and a path in the place of the others.
    assert_eq!(of(&["--exclude", "*.iso"])["totals"]["files_excluded"], 2);
    let document = of(&[files.path().join("b.db").to_str().unwrap()]);
    assert_eq!(document["files"].as_array().unwrap().len(), 1, "{document}");
    // Nothing else reads it, and neither a plan nor a stopped run is changed by it.
    for arguments in [
        &["run", &config, "--plan", "p"][..],
        &["run", &config, "--resume"],
        &["scan", &config, "/tmp"],
    ] {
        assert_eq!(run(arguments).status, 2, "{arguments:?}");
    }
}

#[test]
fn every_field_of_the_documents_is_documented() {
    let (_dir, file) = written("[run]\nx = 1\n");
    for verb in ["show", "check"] {
        let ran = indef().args(["config", verb, "--json"]).arg(&file).ran();
        let document = ran.json();
        let objects = [&document, &document["settings"][0], &document["errors"][0]];
        let there: Vec<_> = objects.into_iter().filter(|it| it.is_object()).collect();
        assert_documented("config", &there);
    }
}
