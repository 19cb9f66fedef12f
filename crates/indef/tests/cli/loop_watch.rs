//! `indef watch` on a real file system: what is read is found and repaired, a second round does nothing and says why,
//! and where others need the machine nothing moves.

use std::{ffi::OsStr, fs, path::Path, process::Command};

use crate::common::{
    Run, aside::Aside, ended, fragments, hashes, indef_with_state, is_root, make, make_several,
    reader::Reader, scratch, signal, spawn,
};
use rustix::process::Signal;
use scratch_fs::reflink;
use tempfile::TempDir;
use units::Bytes;

/// A machine with this pressure of I/O, in percent, which tells nothing else.
pub(crate) fn machine(io_pressure: f64) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let pressure = root.path().join("proc/pressure");
    fs::create_dir_all(&pressure).unwrap();
    for (name, percent) in [("io", io_pressure), ("cpu", 0.0)] {
        let text = format!("some avg10={percent:.2} avg60=0.00 avg300=0.00 total=0\n");
        fs::write(pressure.join(name), text).unwrap();
    }
    root
}

fn watch(state: &Path, machine: &TempDir, path: &Path) -> Command {
    watch_after(
        if state.join("watch/profile").exists() {
            "0s"
        } else {
            "4s"
        },
        state,
        machine,
        path,
    )
}

/// A round after it has learned for so long.
fn watch_after(learning: &str, state: &Path, machine: &TempDir, path: &Path) -> Command {
    let mut command = indef_with_state(state);
    command
        .env("INDEF_WATCH_ROOT", machine.path())
        .args(["watch", "--once", "--json", "--learn", learning])
        .arg(path);
    command
}

#[test]
fn loop_a_hot_file_is_found_and_repaired_unless_others_need_the_machine() {
    if !is_root() {
        return;
    }
    let check = crate::common::run(["trace", "--check"]);
    if check.status != 0 {
        return scratch_fs::skip(&check.err);
    }
    let Some(mut scratch) = scratch("ext4") else {
        return;
    };
    let dir = scratch.path().join("data");
    fs::create_dir(&dir).unwrap();
    let (hot, cold) = (dir.join("hot"), dir.join("cold"));
    make(&hot, Bytes::mib(1), Bytes::kib(4));
    make(&cold, Bytes::mib(1), Bytes::kib(4));
    scratch.sync().unwrap();
    let contents = hashes(&dir);
    let (calm, busy) = (machine(0.0), machine(80.0));
    let state = tempfile::tempdir().unwrap();

    // Nothing is known of reads: nothing is moved, and nothing made.
    let dry = |options: &[&str]| {
        let mut command = watch(state.path(), &calm, &dir);
        command.arg("--dry-run").args(options).ran()
    };
    let ran = dry(&[]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(ran.json()["file_systems"][0]["decision"], "no-profile");
    assert_eq!(fs::read_dir(state.path()).unwrap().count(), 0);

    // It learns while the machine is busy, and moves nothing.
    let reader = Reader::of(&hot);
    let mut learned = None;
    for _ in 0..6 {
        let ran = watch_after("4s", state.path(), &busy, &dir).ran();
        assert_eq!(ran.status, 3, "{ran:?}");
        let document = ran.json();
        let place = &document["file_systems"][0];
        assert_eq!(place["held"], "readings", "{document}");
        assert!(
            ran.err
                .contains("others wait for I/O (80.0 % of the time, the limit is 10)"),
            "{ran:?}"
        );
        assert_eq!(document["totals"]["bytes_written"], 0, "{document}");
        assert_eq!(fragments(&hot), 256);
        let ran = dry(&[]);
        let decision = ran.json()["file_systems"][0]["decision"].clone();
        learned = Some((decision.clone(), ran));
        if decision == "move" {
            break;
        }
        // Where this machine is busy indeed, of few reads none may have been chosen.
    }
    drop(reader);
    let (decision, ran) = learned.unwrap();
    assert_eq!(decision, "move", "{ran:?}");
    assert!(ran.err.contains("worth moving"), "{ran:?}");
    let prices = ["--requests-price", "1e15", "--wear-price", "1e12"];
    let ran = dry(&prices);
    let place = &ran.json()["file_systems"][0];
    assert_eq!(place["decision"], "pays-too-late", "{ran:?}");
    assert_eq!(fragments(&hot), 256);

    let ran = watch(state.path(), &calm, &dir).ran();
    assert_eq!(ran.status, 0, "{ran:?}");
    let document = ran.json();
    // The part that is read, and no more.
    assert_eq!(
        document["totals"]["bytes_relocated"],
        128 << 10,
        "{document}"
    );
    assert_eq!(document["totals"]["files_moved"], 1, "{document}");
    assert_eq!(document["work_left"], false, "{document}");
    assert_eq!(fragments(&hot), 256 - 31, "{document}");
    assert_eq!(fragments(&cold), 256, "nobody reads it");
    let left = document["budget_left_day_bytes"].as_u64().unwrap();
    let written = document["totals"]["bytes_written"].as_u64().unwrap();
    assert_eq!(left + written, 10 << 30, "{document}");

    // A second round does nothing, and says why.
    let ran = watch(state.path(), &calm, &dir).ran();
    assert_eq!(ran.status, 0, "{ran:?}");
    let document = ran.json();
    let place = &document["file_systems"][0];
    assert_eq!(place["decision"], "nothing-to-join", "{document}");
    assert!(ran.err.contains("no read meets fragments"), "{ran:?}");
    assert_eq!(document["totals"]["bytes_written"], 0, "{document}");

    assert_eq!(hashes(&dir), contents);
    scratch.fsck().unwrap();
    assert_eq!(hashes(&dir), contents);
}

/// Without a profile, with everything of the service around it: budget, portions, XFS.
#[test]
fn loop_without_a_profile_files_move_in_portions_within_the_budget() {
    if !is_root() {
        return;
    }
    let Some(mut scratch) = scratch("xfs") else {
        return;
    };
    make_several(scratch.path(), 4, Bytes::mib(4), Bytes::kib(16));
    let contents = hashes(scratch.path());
    let (calm, state) = (machine(0.0), tempfile::tempdir().unwrap());
    let once = |budget: &str| {
        indef_with_state(state.path())
            .env("INDEF_WATCH_ROOT", calm.path())
            .args(["watch", "--once", "--json", "--learn", "0s"])
            .args(["--without-profile", "--portion", "4MiB", "--budget", budget])
            .arg(scratch.path())
            .ran()
    };
    let ran = once("8MiB");
    assert_eq!(ran.status, 3, "{ran:?}");
    let document = ran.json();
    let first = document["totals"]["bytes_written"].as_u64().unwrap();
    assert!((1..=8 << 20).contains(&first), "{document}");
    assert_eq!(document["file_systems"][0]["held"], "budget", "{document}");
    // The next process knows what this one wrote.
    let ran = once("8MiB");
    assert_eq!(ran.status, 3, "{ran:?}");
    assert_eq!(ran.json()["totals"]["bytes_written"], 0, "{ran:?}");
    let ran = once("none");
    assert_eq!(ran.status, 0, "{ran:?}");
    for n in 0..4 {
        let left = fragments(&scratch.path().join(format!("file {n}")));
        assert!(left < 8, "file {n}: {left}: {ran:?}");
    }
    scratch.fsck().unwrap();
    assert_eq!(hashes(scratch.path()), contents);
}

/// What traces gives way to all others, whoever started the service.
#[test]
fn loop_a_trace_of_the_service_gives_way() {
    if !is_root() {
        return;
    }
    let check = crate::common::run(["trace", "--check"]);
    if check.status != 0 {
        return scratch_fs::skip(&check.err);
    }
    let Some(scratch) = scratch("ext4") else {
        return;
    };
    let (calm, state) = (machine(0.0), tempfile::tempdir().unwrap());
    // A session of its own, as a service manager gives it.
    let child = spawn(
        Command::new("setsid")
            .arg(env!("CARGO_BIN_EXE_indef"))
            .args(["watch", "--learn", "10m"])
            .arg(scratch.path())
            .env("STATE_DIRECTORY", state.path())
            .env("INDEF_WATCH_ROOT", calm.path()),
    );
    let found = Aside::wait_for(child.id());
    signal(&child, Signal::TERM);
    let ran = ended(child);
    assert_eq!(ran.status, 0, "{ran:?}");
    found.assert_gives_way();
}

/// Two files of Btrfs that share 4 MiB move in such portions. Returns the sums.
fn shared_in_portions(portion: &str) -> Option<serde_json::Value> {
    if !is_root() {
        return None;
    }
    let mut scratch = scratch("btrfs")?;
    let files = ["a", "b"].map(|name| scratch.path().join(name));
    make(&files[0], Bytes::mib(4), Bytes::kib(8));
    reflink(&files[0], &files[1]).unwrap();
    scratch.remount().unwrap();
    let contents = hashes(scratch.path());
    let (calm, state) = (machine(0.0), tempfile::tempdir().unwrap());
    let ran = indef_with_state(state.path())
        .env("INDEF_WATCH_ROOT", calm.path())
        .args(["watch", "--once", "--json", "--learn", "0s"])
        .args(["--without-profile", "--budget", "64MiB", "--portion"])
        .args([OsStr::new(portion), scratch.path().as_os_str()])
        .ran();
    assert_eq!(ran.status, 0, "{ran:?}");
    for file in &files {
        assert!(fragments(file) < 8, "{ran:?}");
    }
    scratch.fsck().unwrap();
    assert_eq!(hashes(scratch.path()), contents);
    Some(ran.json()["totals"].clone())
}

/// A file that got its new blocks together with one of an earlier portion says so.
#[test]
fn loop_what_moved_along_in_an_earlier_portion_says_so() {
    let Some(totals) = shared_in_portions("6MiB") else {
        return;
    };
    assert_eq!(totals["files_moved"], 1, "{totals}");
    let skipped = serde_json::json!({ "moved-along": 1 });
    assert_eq!(totals["skipped"], skipped, "{totals}");
}

/// What moves with others takes more than the portion has: nothing of it moves, so the next portion is larger.
#[test]
fn loop_a_portion_in_vain_is_not_repeated() {
    let Some(totals) = shared_in_portions("4MiB") else {
        return;
    };
    assert_eq!(totals["bytes_relocated"], 4 << 20, "{totals}");
    let written = totals["bytes_written"].as_u64().unwrap();
    assert!(written <= 12 << 20, "{totals}");
}

/// What the configuration or the command line excludes is never moved, and the limits of the configuration hold.
#[test]
fn loop_a_service_keeps_to_its_configuration() {
    if !is_root() {
        return;
    }
    let Some(mut scratch) = scratch("ext4") else {
        return;
    };
    let names = ["moves", "stays.iso", "also stays", "protected/file"];
    fs::create_dir(scratch.path().join("protected")).unwrap();
    for name in names {
        make(&scratch.path().join(name), Bytes::mib(1), Bytes::kib(4));
    }
    let small = scratch.path().join("small");
    make(&small, Bytes::kib(64), Bytes::kib(4));
    let contents = hashes(scratch.path());
    let before: Vec<u64> = (names.iter())
        .map(|name| fragments(&scratch.path().join(name)))
        .collect();
    let fragments_of_small = fragments(&small);
    let (calm, state) = (machine(0.0), tempfile::tempdir().unwrap());
    let file = state.path().join("indef.toml");
    let once = |budget: &str| {
        let text = format!(
            "paths = [\"{0}\"]\n[select]\nexclude = [\"*.iso\", \"{0}/protected\"]\nmin-size = \"128KiB\"\n\
             [limits]\nbudget = \"{budget}\"\n[watch]\nlearn = \"0s\"\nwithout-profile = true\n",
            scratch.path().display()
        );
        fs::write(&file, text).unwrap();
        indef_with_state(state.path())
            .env("INDEF_WATCH_ROOT", calm.path())
            .args(["watch", "--once", "--json", "--exclude", "also*"])
            .arg(format!("--config={}", file.display()))
            .ran()
    };
    let ran = once("4KiB");
    assert_eq!(ran.status, 0, "no range is that small: {ran:?}");
    assert_eq!(ran.json()["totals"]["bytes_written"], 0, "{ran:?}");
    let ran = once("1GiB");
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(ran.json()["totals"]["files_moved"], 1, "{ran:?}");
    for (name, before) in names.iter().zip(before) {
        let after = fragments(&scratch.path().join(name));
        match *name {
            "moves" => assert!(after < 8, "{after}: {ran:?}"),
            _ => assert_eq!(after, before, "{name}: {ran:?}"),
        }
    }
    assert_eq!(fragments(&small), fragments_of_small);
    // The history tells of it.
    let ran = indef_with_state(state.path())
        .args(["history", "--json", "--last", "1"])
        .ran();
    let run = &ran.json()["runs"][0];
    assert_eq!(
        (&run["verb"], &run["ended"]),
        (&"watch".into(), &"done".into()),
        "{run}"
    );
    assert_eq!(run["files_moved"], 1, "{run}");
    assert!(run["requests_saved"].as_u64().unwrap() > 240, "{run}");
    let mounted_at = scratch.path().to_str().unwrap();
    assert_eq!(run["file_systems"][0]["mounted_at"], mounted_at, "{run}");
    assert_eq!(hashes(scratch.path()), contents);
    scratch.fsck().unwrap();
}
