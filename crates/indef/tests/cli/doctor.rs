//! `indef doctor`: the same answers as the commands themselves would give, wherever it runs.

use std::{fs, process::Command};

use rustix::fs::{FlockOperation, flock};
use serde_json::Value;

use crate::common::{
    ForAnybody, Ran, Run, documented::assert_documented, indef, indef_with_state, is_root, run,
    scratch,
};

/// The entry of the file system that is mounted there.
fn mounted_at<'a>(document: &'a Value, point: &str) -> &'a Value {
    let all = document["file_systems"].as_array().unwrap();
    all.iter()
        .find(|one| one["path"] == point)
        .unwrap_or_else(|| panic!("{point}: {document}"))
}

/// What is missing must come with a way to get it.
fn missing(document: &Value) -> Vec<&str> {
    let all = document["missing"].as_array().unwrap();
    all.iter()
        .map(|one| {
            assert!(!one["how"].as_str().unwrap().is_empty(), "{document}");
            one["what"].as_str().unwrap()
        })
        .collect()
}

#[test]
fn every_field_is_documented() {
    let ran = indef().args(["doctor", "--json"]).ran();
    assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{ran:?}");
    let document = ran.json();
    let layer = &document["trace"]["layers"][0];
    // In a chroot there may be none.
    let file_systems = document["file_systems"].as_array().unwrap();
    let mut objects: Vec<_> = file_systems.iter().take(1).collect();
    objects.extend([
        &document,
        &document["capabilities"][0],
        &document["trace"],
        layer,
        &document["state"],
    ]);
    assert_documented("doctor", &objects);
    missing(&document);
}

#[test]
fn a_person_sees_each_part_and_quiet_nothing() {
    let ran = run(["doctor"]);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{ran:?}");
    for part in [
        "Linux",
        "File systems",
        "Rights of this process",
        "CAP_BPF",
        "Tracing",
        "Laboratory",
        "State",
    ] {
        assert!(ran.out.contains(part), "{part}: {ran:?}");
    }
    assert!(!ran.out.contains('\x1b'));
    assert_eq!(run(["doctor", "--quiet"]).out, "");
    assert_eq!(run(["doctor", "/tmp"]).status, 2);
}

#[test]
fn stopped_and_running_runs_are_counted_and_left_alone() {
    let state = tempfile::tempdir().unwrap();
    let of = |state: &std::path::Path| {
        let ran = indef_with_state(state).args(["doctor", "--json"]).ran();
        assert_eq!(ran.status, 0, "{ran:?}");
        ran.json()["state"].clone()
    };
    let found = of(&state.path().join("no"));
    assert_eq!(
        (&found["exists"], &found["size_bytes"]),
        (&false.into(), &0.into())
    );
    for name in ["1-1", "2-1"] {
        fs::write(
            state.path().join(name).with_extension("journal"),
            [b'x'; 10],
        )
        .unwrap();
        fs::write(state.path().join(name).with_extension("plan"), [b'x'; 30]).unwrap();
    }
    let running = fs::File::open(state.path().join("2-1.journal")).unwrap();
    flock(&running, FlockOperation::NonBlockingLockExclusive).unwrap();
    let found = of(state.path());
    assert_eq!(found["runs_stopped"], 1, "{found}");
    assert_eq!(found["runs_running"], 1, "{found}");
    assert_eq!(found["size_bytes"], 80, "{found}");
    assert_eq!(fs::read_dir(state.path()).unwrap().count(), 4);
}

#[test]
fn loop_each_file_system_has_the_engine_that_a_run_would_use() {
    for (kind, engines) in [
        ("ext4", &["ext4-move-extent"][..]),
        ("btrfs", &["btrfs-defrag-range"]),
        (
            "xfs",
            &["xfs-commit-range", "xfs-dedupe-range", "xfs-swap-extents"],
        ),
    ] {
        let Some(fs) = scratch(kind) else { return };
        let document = run(["doctor", "--json"]).json();
        let one = mounted_at(&document, fs.path().to_str().unwrap());
        assert_eq!(
            (&one["fs"], &one["works"]),
            (&kind.into(), &true.into()),
            "{one}"
        );
        assert!(engines.contains(&one["engine"].as_str().unwrap()), "{one}");
        assert!(
            one["free_bytes"].as_u64() <= one["size_bytes"].as_u64(),
            "{one}"
        );
        let line = run(["doctor"]).out;
        assert!(line.contains(fs.path().to_str().unwrap()), "{line}");
        assert!(
            !missing(&document)
                .iter()
                .any(|what| what.contains("a mounted file system"))
        );
    }
}

#[test]
fn a_user_learns_what_root_would_add() {
    if !is_root() {
        return;
    }
    let anybody = ForAnybody::new();
    let ran = anybody.indef().args(["doctor", "--json"]).ran();
    assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{ran:?}");
    let document = ran.json();
    assert_eq!(document["root"], false);
    assert!(
        document["capabilities"]
            .as_array()
            .unwrap()
            .iter()
            .all(|one| one["held"] == false)
    );
    let missing = missing(&document);
    assert!(
        missing.iter().any(|what| what.contains("CAP_SYS_ADMIN")),
        "{missing:?}"
    );
    assert!(
        missing
            .iter()
            .any(|what| what.contains("tracing of layer fs")),
        "{missing:?}"
    );
    assert!(
        anybody
            .indef()
            .arg("doctor")
            .ran()
            .out
            .contains("run as root")
    );
}

#[test]
fn a_container_without_proc_and_sys_gets_an_answer() {
    if !is_root() {
        return;
    }
    let allowed = Command::new("unshare").args(["--mount", "true"]).ran();
    if allowed.status != 0 {
        return scratch_fs::skip("mounts cannot be unshared here");
    }
    let inside = |hide: &str| -> Ran {
        let script = format!("{hide}; exec \"$0\" doctor --json");
        Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", &script])
            .arg(env!("CARGO_BIN_EXE_indef"))
            .env("STATE_DIRECTORY", "/nowhere/indef")
            .ran()
    };
    let ran = inside("mount -t tmpfs none /sys");
    assert_eq!(ran.status, 0, "{ran:?}");
    let document = ran.json();
    assert_eq!(document["trace"]["btf"], false);
    assert_eq!(document["trace"]["layers"][0]["works"], false);
    assert!(missing(&document).iter().any(|what| what.contains("types")));
    let ran = inside("mount -t tmpfs none /sys; mount -t tmpfs none /proc");
    assert_eq!(ran.status, 0, "{ran:?}");
    let document = ran.json();
    assert_eq!(document["file_systems"], Value::Array(Vec::new()));
    assert!(document["file_systems_error"].is_string());
    assert!(
        missing(&document)
            .iter()
            .any(|what| what.contains("mount table"))
    );
    assert_eq!(document["state"]["exists"], false);
}
