//! The demo: proof on each file system, with and without root, and no leftovers.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command, thread, time::Duration};

use crate::common::{
    ForAnybody, NOBODY, Ran, Run, ended, indef, is_root, listens, proven, scratch, signal, spawn,
};
use rustix::process::Signal;

/// The demo in a temporary directory of its own, so that leftovers would be seen.
fn demo(temporary: &Path, size: &str, arguments: &[&str]) -> Command {
    let mut command = indef();
    command
        .args(["demo", "--size", size])
        .args(arguments)
        .env("TMPDIR", temporary);
    command
}

fn assert_nothing_left(temporary: &Path) {
    let left: Vec<_> = fs::read_dir(temporary)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(left.is_empty(), "{left:?}");
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    assert!(!mounts.contains(temporary.to_str().unwrap()), "{mounts}");
    let output = Command::new("losetup").arg("-a").output().unwrap();
    let loops = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!loops.contains(temporary.to_str().unwrap()), "{loops}");
}

/// On a file system without an engine it ends before it makes files that nothing could move.
#[test]
fn a_demo_where_nothing_moves_ends_before_it_begins() {
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else {
        return scratch_fs::skip("no /dev/shm");
    };
    let temporary = tempfile::tempdir().unwrap();
    let dir = memory.path().to_str().unwrap();
    let ran = demo(temporary.path(), "16MiB", &["--dir", dir]).ran();
    assert_eq!(ran.status, 1, "{ran:?}");
    assert!(ran.err.contains("has no engine"), "{ran:?}");
    assert!(!ran.err.contains("ageing"), "{ran:?}");
    assert_eq!(fs::read_dir(memory.path()).unwrap().count(), 0);
    assert_nothing_left(temporary.path());
}

fn proves_itself(kind: &str) {
    // A machine that cannot make this file system cannot show it, either.
    if scratch(kind).is_none() {
        return;
    }
    let temporary = tempfile::tempdir().unwrap();
    let ran = demo(temporary.path(), "24MiB", &["--json", "--fs", kind]).ran();
    let counted = [
        "read_ns_before",
        "read_ns_after",
        "device_reads_before",
        "device_reads_after",
    ];
    let document = proven(&ran, &counted);
    let requests = |when: &str| document[format!("requests_{when}")].as_u64().unwrap();
    assert!(requests("after") * 3 < requests("before"), "{document}");
    let files = document["files"].as_array().unwrap();
    assert!(
        files
            .iter()
            .all(|f| f["extents_after"].as_u64() <= f["extents_before"].as_u64())
    );
    assert_nothing_left(temporary.path());
    // `report` reads the demo's output.
    let saved = temporary.path().join("demo.json");
    fs::write(&saved, &ran.out).unwrap();
    let report = indef().arg("report").arg(&saved).ran();
    assert!(
        report.status == 0 && report.out.contains("Contents"),
        "{report:?}"
    );
}

#[test]
fn loop_the_demo_proves_itself_on_ext4() {
    proves_itself("ext4");
}

#[test]
fn loop_the_demo_proves_itself_on_xfs() {
    proves_itself("xfs");
}

#[test]
fn loop_the_demo_proves_itself_on_btrfs() {
    proves_itself("btrfs");
}

#[test]
fn loop_the_demo_cleans_up_after_a_signal() {
    if !is_root() || scratch("ext4").is_none() {
        return;
    }
    for delay in [100, 700, 1500] {
        let temporary = tempfile::tempdir().unwrap();
        let child = spawn(&mut demo(temporary.path(), "64MiB", &["--json"]));
        listens(&child);
        thread::sleep(Duration::from_millis(delay));
        signal(&child, Signal::INT);
        let ran = ended(child);
        assert!(matches!(ran.status, 0 | 3), "after {delay} ms: {ran:?}");
        if ran.status == 3 {
            assert_eq!(ran.json()["error"], "stopped", "{ran:?}");
        }
        assert_nothing_left(temporary.path());
    }
}

#[test]
fn loop_the_demo_works_without_root_in_a_directory_of_the_user() {
    if !is_root() {
        return;
    }
    let Some(scratch) = scratch("ext4") else {
        return;
    };
    let above = scratch.path().parent().unwrap();
    fs::set_permissions(above, fs::Permissions::from_mode(0o755)).unwrap();
    let dir = scratch.path().join("home of nobody");
    fs::create_dir(&dir).unwrap();
    std::os::unix::fs::chown(&dir, Some(NOBODY), Some(NOBODY)).unwrap();
    let anybody = ForAnybody::new();
    let demo = |arguments: &[&str]| -> Ran {
        anybody
            .indef()
            .args(["demo", "--size", "24MiB"])
            .args(arguments)
            .current_dir(&dir)
            .ran()
    };
    // The current directory is on ext4, so no option is needed.
    let ran = demo(&["--json"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    let document = ran.json();
    assert_eq!(
        (&document["contents_equal"], &document["fsck_clean"]),
        (&true.into(), &serde_json::Value::Null)
    );
    assert!(
        document["totals"]["files_moved"].as_u64().unwrap() >= 3,
        "{document}"
    );
    let ran = demo(&["--dir", dir.to_str().unwrap()]);
    assert!(ran.status == 0 && ran.out.contains("with root"), "{ran:?}");
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    // An impossible request is answered in one line.
    let ran = demo(&["--fs", "xfs"]);
    assert_eq!(ran.status, 1, "{ran:?}");
    assert!(ran.err.lines().last().unwrap().contains("root"), "{ran:?}");
    let ran = demo(&["--dir", "/dev/shm"]);
    assert_eq!(ran.status, 1, "{ran:?}");
    ran.error_line("/dev/shm");
}
