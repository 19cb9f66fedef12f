//! `made`: where a document comes from.

use std::fs;

use serde_json::Value;

use crate::common::{Run, documented::assert_documented, indef, make, run, scratch};
use units::Bytes;

/// What is true of every document of this machine.
#[track_caller]
fn assert_ours(made: &Value, first: &str) {
    let text = |field: &str| {
        made[field]
            .as_str()
            .unwrap_or_else(|| panic!("{field}: {made}"))
    };
    assert!(!text("host").is_empty() && !text("kernel").is_empty() && !text("machine").is_empty());
    assert!(
        text("time").starts_with("20") && text("time").ends_with('Z'),
        "{made}"
    );
    assert!(
        made["time_ns"].as_u64().unwrap() > 1_700_000_000_000_000_000,
        "{made}"
    );
    assert!(
        text("version").starts_with(env!("CARGO_PKG_VERSION")),
        "{made}"
    );
    assert_eq!(made["command"][1], first, "{made}");
}

#[test]
fn every_document_says_where_it_comes_from() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "x").unwrap();
    let profile = dir.path().join("lines");
    fs::write(&profile, "").unwrap();
    let path = dir.path().to_str().unwrap();
    for arguments in [
        &["scan", path][..],
        &["plan", path],
        &["run", path],
        &["run", "--dry-run", path],
        &["doctor"],
        &[
            "top",
            "--once",
            "--profile",
            profile.to_str().unwrap(),
            path,
        ],
    ] {
        let ran = indef().args(arguments).arg("--json").ran();
        if arguments[0] == "top" && ran.status != 0 {
            // An empty profile is refused there.
            continue;
        }
        let document = ran.json();
        assert_ours(&document["made"], arguments[0]);
    }
}

#[test]
fn relative_paths_become_absolute_and_their_directory_is_told() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "x").unwrap();
    let ran = indef()
        .args(["scan", "--json", "file"])
        .current_dir(dir.path())
        .ran();
    let document = ran.json();
    let made = &document["made"];
    let directory = made["directory"]["path"].as_str().unwrap();
    assert_eq!(
        fs::canonicalize(directory).unwrap(),
        fs::canonicalize(dir.path()).unwrap()
    );
    assert_eq!(made["paths"][0]["path"], format!("{directory}/file"));
    assert_eq!(document["files"][0]["path"], "file");
    assert_eq!(made["file_systems"].as_array().unwrap().len(), 1, "{made}");
}

#[test]
fn every_field_of_it_is_documented() {
    let document = run(["scan", "--json", "/tmp"]).json();
    let made = &document["made"];
    assert_documented("made", &[made, &made["file_systems"][0]]);
}

#[test]
fn loop_every_field_of_scan_plan_and_run_is_documented() {
    let Some(fs) = scratch("ext4") else { return };
    make(&fs.path().join("in pieces"), Bytes::mib(2), Bytes::kib(64));
    let path = fs.path().to_str().unwrap();
    let scan = run(["scan", "--json", path]).json();
    let (totals, space) = (&scan["totals"], &scan["free_space"]);
    let parts = [
        &scan["files"][0],
        &scan["verdict"],
        totals,
        &totals["histogram"][0],
    ];
    assert_documented("scan", &[&scan, space, &space["histogram"][0]]);
    assert_documented("scan", &parts);
    let plan = run(["plan", "--json", "--budget", "1GiB", path]).json();
    let parts = [&plan["chunks"][0], &plan["totals"], &plan["prediction"]];
    assert_documented("plan", &[&plan]);
    assert_documented("plan", &parts);
    let done = run(["run", "--json", path]).json();
    assert_documented("run", &[&done, &done["files"][0], &done["totals"]]);
    let map = &done["maps"][0];
    assert_documented("Maps", &[map, &map["device"]]);
}

#[test]
fn loop_only_fragmented_files_are_listed_where_that_is_asked_for() {
    let Some(fs) = scratch("ext4") else { return };
    make(&fs.path().join("in pieces"), Bytes::mib(2), Bytes::kib(64));
    for n in 0..20 {
        fs::write(fs.path().join(format!("whole-{n}")), [7; 4096]).unwrap();
    }
    let path = fs.path().to_str().unwrap();
    let all = run(["scan", "--json", path]).json();
    let few = run(["scan", "--json", "--only-fragmented", path]).json();
    assert!(all["files"].as_array().unwrap().len() > 20, "{all}");
    let listed = few["files"].as_array().unwrap();
    assert_eq!(listed.len(), 1, "{few}");
    assert!(listed[0]["path"].as_str().unwrap().ends_with("in pieces"));
    assert_eq!(all["totals"], few["totals"]);
    let on = &few["made"]["file_systems"][0];
    assert_eq!(
        (&on["fs"], &on["mounted_at"]),
        (&"ext4".into(), &path.into()),
        "{on}"
    );
    assert_eq!(run(["scan", "--only-fragmented", path]).status, 2);
}
