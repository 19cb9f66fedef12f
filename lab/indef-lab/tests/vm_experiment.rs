//! An experiment in the small: every part of it, on files that are too few for a figure.

use std::{fs, process::Command};

use guest::{Cache, Guest, Patched, Release, require};
use serde_json::Value;

#[test]
fn vm_varmail_is_aged_migrated_and_replayed() {
    let cache = Cache::of_project();
    let guest = Guest::with(Release::Linux6_12).and_then(|guest| guest.with_patched(Patched::F2fs));
    if require(guest).is_none()
        || !["mkfs.f2fs", "fsck.f2fs", "f2fs_io"]
            .iter()
            .all(|program| scratch_fs::require_program(program))
    {
        return;
    }
    let ran = Command::new(env!("CARGO_BIN_EXE_indef-lab"))
        .args([
            "experiment",
            "indef-varmail",
            "--trial",
            "--rounds",
            "0.1",
            "--no-sweep",
        ])
        .args(["--only", "indef", "--only", "copy", "--time-scale", "1"])
        .arg("--indef")
        .arg(source_tree::binary_for_test("indef").unwrap())
        .env("INDEF_LAB", cache.folder())
        .output()
        .unwrap();
    assert!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    let result = fs::read(cache.folder().join("experiments/indef-varmail-trial.json")).unwrap();
    let result: Value = serde_json::from_slice(&result).unwrap();
    println!("{}", String::from_utf8_lossy(&ran.stdout));

    let before = &result["before"];
    // All of it was appended, 16 KiB at most at a time.
    assert!(
        before["contiguous_pct"].as_f64().unwrap() < 20.0,
        "{before}"
    );
    let [indef, copy] = &result["ways"].as_array().unwrap()[..] else {
        panic!("{result}");
    };
    let number = |of: &Value, name: &str| of[name].as_f64().unwrap();
    for way in [indef, copy] {
        for name in ["read_ns", "extents"] {
            assert!(number(&way["after"], name) < number(before, name), "{way}");
        }
        assert_eq!(way["engine"], "f2fs-offload");
        let cost = &way["cost"];
        assert!(
            number(cost, "migrated_bytes") >= number(way, "moved_bytes"),
            "{way}"
        );
        assert!(number(way, "moved_bytes") > 0.0, "{way}");
        assert!(
            number(cost, "elapsed_ns") > number(cost, "bound_ns"),
            "{way}"
        );
        assert!(number(cost, "beside_ns") > 0.0, "{way}");
        let busy = number(cost, "busy_pct");
        assert!(0.0 < busy && busy < 100.0, "{way}");
    }
    // The vendor's command where there is one, and the standard's for all where there is none. (How many there
    // are depends on how the host's time lets ranges meet.)
    let moves = |way: &Value| {
        let moves = &way["cost"]["moves"];
        (number(moves, "copies"), number(moves, "commands"))
    };
    let ((none, some), (copies, all)) = (moves(indef), moves(copy));
    assert!(none == 0.0 && some > 0.0, "{indef}");
    assert!(copies == all && all > 0.0, "{copy}");
}
