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
            "0.25",
            "--no-sweep",
        ])
        .args([
            "--only",
            "conventional",
            "--only",
            "indef",
            "--time-scale",
            "1",
        ])
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
    let [conventional, indef] = &result["ways"].as_array().unwrap()[..] else {
        panic!("{result}");
    };
    let number = |of: &Value, name: &str| of[name].as_f64().unwrap();
    for way in [conventional, indef] {
        assert!(
            number(&way["after"], "read_ns") < number(before, "read_ns"),
            "{way}"
        );
        assert!(
            number(&way["after"], "extents") < number(before, "extents"),
            "{way}"
        );
        assert!(number(way, "moved_bytes") > 0.0, "{way}");
    }
    assert_eq!(indef["engine"], "f2fs-offload");
    assert!(number(indef, "moved_bytes") < number(conventional, "moved_bytes"));
    let (host, inside) = (&conventional["cost"], &indef["cost"]);
    assert_eq!(number(host, "migrated_bytes"), 0.0);
    assert!(number(inside, "migrated_bytes") > 0.0);
    assert!(number(inside, "elapsed_ns") < number(host, "elapsed_ns"));
    assert!(number(inside, "bus_bytes") < number(host, "bus_bytes") / 4.0);
}
