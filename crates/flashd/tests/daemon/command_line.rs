//! The commands that need no device: their output, and their refusals.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use flash_model::{NamespaceKind, Placement, Profile};
use flashd::device::{Device, DeviceOptions, NamespaceOptions, Request};
use units::Bytes;

const BLOCK: usize = 4096;

fn flashd(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flashd"))
        .args(arguments)
        .current_dir(folder)
        .env("XDG_RUNTIME_DIR", folder)
        .output()
        .unwrap()
}

fn json(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", stderr(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A recording with two flushes, a name, and an entry after them.
fn recording(folder: &Path) -> PathBuf {
    let namespace = NamespaceOptions {
        kind: NamespaceKind::Conventional,
        size: Bytes::mib(8),
    };
    let profile = Profile::builtin("zero").unwrap();
    let mut options = DeviceOptions::in_memory(profile, &[namespace]);
    let path = folder.join("log");
    options.record = Some(path.clone());
    let device = Device::open(&options).unwrap();
    for step in 1..=3u8 {
        let write = Request::Write {
            offset: 0,
            data: &[step; BLOCK],
            fua: false,
            placement: Placement::RoundRobin,
        };
        device.account(0, &write).unwrap();
        match step {
            1 => device.account(0, &Request::Flush).map(drop).unwrap(),
            2 => device.recording().mark("here").unwrap(),
            _ => {}
        }
    }
    device.recording().end().unwrap();
    path
}

#[test]
fn profiles_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let document = json(&flashd(folder.path(), &["profiles", "--json"]));
    assert_eq!(document["schema"], 1);
    let listed = document["profiles"].as_array().unwrap();
    let names: Vec<&str> = listed.iter().map(|p| p["name"].as_str().unwrap()).collect();
    assert_eq!(names, flash_model::BUILTIN);
    let text = flashd(folder.path(), &["profiles"]);
    assert!(String::from_utf8_lossy(&text.stdout).contains("zn540"));
}

#[test]
fn a_profile_is_printed_as_toml_to_start_from() {
    let folder = tempfile::tempdir().unwrap();
    for name in flash_model::BUILTIN {
        let output = flashd(folder.path(), &["profiles", name, "--toml"]);
        let text = String::from_utf8(output.stdout).unwrap();
        let read = Profile::parse("printed", &text).unwrap();
        assert_eq!(Some(read), Profile::builtin(name));
    }
    let one = json(&flashd(folder.path(), &["profiles", "zn540", "--json"]));
    assert_eq!(one["profiles"].as_array().unwrap().len(), 1);
    for (arguments, reason) in [
        (&["profiles", "--toml"][..], "<NAME>"),
        (&["profiles", "zn450", "--toml"], "zn540"),
    ] {
        let refused = flashd(folder.path(), arguments);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&refused).contains(reason), "{}", stderr(&refused));
    }
}

#[test]
fn a_recording_becomes_an_image_or_a_store() {
    let folder = tempfile::tempdir().unwrap();
    recording(folder.path());
    let run = |arguments: &[&str]| flashd(folder.path(), &[&["replay", "log"], arguments].concat());
    let marks = json(&run(&["--list", "--json"]));
    let marks: Vec<&str> = marks["marks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|mark| mark["mark"].as_str().unwrap())
        .collect();
    assert_eq!(marks, ["mark:start", "flush:1", "mark:here"]);
    for (arguments, first) in [
        (&["--until", "flush:1"][..], 1),
        (&["--until", "mark:here"], 2),
        (&["--until", "mark:here", "--durable-only"], 1),
        (&["--until", "flush:0"], 0),
        (&[], 3),
    ] {
        let output = run(&[arguments, &["--output", "image", "--json"]].concat());
        let document = json(&output);
        let image = fs::read(folder.path().join("image")).unwrap();
        assert_eq!(
            (image.len(), image[0]),
            (8 << 20, first),
            "{arguments:?} {document}"
        );
        fs::remove_file(folder.path().join("image")).unwrap();
    }
    assert!(run(&["--store", "new"]).status.success());
    let kinds = flashd::store::Store::describe(&folder.path().join("new")).unwrap();
    assert_eq!(kinds[0].size_bytes, 8 << 20);

    for (arguments, status, reason) in [
        (&["--store", "new"][..], 1, "exists"),
        (
            &["--output", "image", "--until", "flush:2"],
            1,
            "there is no flush:2",
        ),
        (
            &["--output", "image", "--namespace", "2"],
            1,
            "no namespace 2",
        ),
        (
            &["--output", "image", "--until", "soon"],
            2,
            "write flush:N",
        ),
        (&[], 2, "required"),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}");
        assert!(stderr(&output).contains(reason), "{}", stderr(&output));
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("dir")).unwrap();
    fs::write(folder.path().join("bad.toml"), "[device]\nname = 3\n").unwrap();
    fs::write(folder.path().join("letter"), "Dear reader, ".repeat(20_000)).unwrap();
    let mount = |arguments: &[&str]| {
        flashd(
            folder.path(),
            &[&["mount", "dir", "--size", "8MiB"], arguments].concat(),
        )
    };
    for (arguments, status, reason) in [
        (
            &["--profile", "none"][..],
            1,
            "no built-in profile and no file",
        ),
        (&["--profile", "bad.toml"], 1, "bad.toml:2"),
        (
            &["--profile", "zero", "--time-scale", "0"],
            1,
            "no positive number",
        ),
        (
            &["--profile", "zero", "--block-size", "1000"],
            1,
            "512 or 4096",
        ),
        (
            &["--profile", "zero", "--store", "letter"],
            1,
            "no flashd store",
        ),
        (
            &["--profile", "zero", "--max-lateness", "soon"],
            2,
            "like 100us",
        ),
        (
            &["--profile", "zero", "--name", "../x"],
            1,
            "no name for a daemon",
        ),
        (
            &["--profile", "zero", "--metrics", "0.0.0.0:0"],
            1,
            "loopback",
        ),
        (&["--profile", "zero", "--sparse"], 2, "--store"),
    ] {
        let output = mount(arguments);
        assert_eq!(
            output.status.code(),
            Some(status),
            "{arguments:?}: {}",
            stderr(&output)
        );
        assert!(
            stderr(&output).contains(reason),
            "{arguments:?}: {}",
            stderr(&output)
        );
    }
    let nobody = flashd(folder.path(), &["status"]);
    assert_eq!(nobody.status.code(), Some(1));
    assert!(
        stderr(&nobody).contains("no flashd runs here"),
        "{}",
        stderr(&nobody)
    );
    let occupied = flashd(
        folder.path(),
        &["mount", ".", "--profile", "zero", "--size", "8MiB"],
    );
    assert!(
        stderr(&occupied).contains("not empty"),
        "{}",
        stderr(&occupied)
    );
}
