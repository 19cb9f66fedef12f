//! Concurrent and successive runs: one at a time on a file system, and the rest of a stopped one.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use crate::common::{
    ForAnybody, NOBODY, Ran, Run, ended, fragments, has_begun, indef, indef_with_state, is_root,
    left_in, make, make_several, scratch, signal, spawn,
};
use rustix::process::Signal;
use scratch_fs::most_left_by_btrfs;
use units::Bytes;

fn relocated(ran: &Ran) -> u64 {
    ran.json()["totals"]["bytes_relocated"].as_u64().unwrap()
}

/// More than a minute's work at 1 MiB a second: nothing here has to be quick.
fn make_large(path: &Path) {
    make(path, Bytes::mib(64), Bytes::kib(32));
}

#[test]
fn loop_a_second_run_says_who_is_first_and_moves_nothing() {
    if !is_root() {
        return;
    }
    let (Some(scratch), Some(other)) = (scratch("ext4"), scratch("ext4")) else {
        return;
    };
    let (slow, quick) = (scratch.path().join("a/file"), scratch.path().join("b/file"));
    for file in [&slow, &quick] {
        fs::create_dir(file.parent().unwrap()).unwrap();
        make_large(file);
    }
    make(&other.path().join("file"), Bytes::mib(1), Bytes::kib(16));
    let (before, untouched) = (fragments(&slow), fragments(&quick));
    let first = spawn(
        indef()
            .args(["run", "--json", "--rate", "1MiB", "--jobs", "1"])
            .arg(slow.parent().unwrap()),
    );
    has_begun(&[&slow], before);
    let plan = other.path().join("plan");
    let planned = indef()
        .arg("plan")
        .arg(&quick)
        .arg("-o")
        .arg(&plan)
        .output();
    assert!(planned.unwrap().status.success());
    // Other directories, and another way to select the work: the same file system.
    for arguments in [
        [quick.as_os_str(), "--quiet".as_ref()],
        ["--plan".as_ref(), plan.as_os_str()],
    ] {
        let ran = indef().arg("run").args(arguments).ran();
        assert_eq!(ran.status, 1, "{ran:?}");
        let line = ran.error_line(&format!("process {}", first.id()));
        assert!(line.contains("run --json --rate 1MiB"), "{line}");
        assert!(line.contains(&*scratch.path().to_string_lossy()), "{line}");
    }
    let json = indef().args(["run", "--json"]).arg(&quick).ran();
    assert_eq!((json.status, relocated(&json)), (1, 0), "{json:?}");
    assert_eq!(fragments(&quick), untouched);
    // A dry run is no work, and neither is a run on another file system.
    let dry = indef().args(["run", "--dry-run"]).arg(&quick).ran();
    assert_eq!(dry.status, 0, "{dry:?}");
    let elsewhere = indef().args(["run", "--json"]).arg(other.path()).ran();
    assert_eq!(elsewhere.status, 0, "{elsewhere:?}");
    assert_eq!(relocated(&elsewhere), 1 << 20);
    signal(&first, Signal::INT);
    assert_eq!(ended(first).status, 3);
    let now = indef().args(["run", "--json"]).arg(&quick).ran();
    assert_eq!((now.status, relocated(&now)), (0, 64 << 20), "{now:?}");
}

#[test]
fn loop_root_goes_ahead_of_a_user_and_a_user_waits_for_nobody() {
    if !is_root() {
        return;
    }
    let Some(scratch) = scratch("ext4") else {
        return;
    };
    let anybody = ForAnybody::new();
    let (theirs, ours) = (scratch.path().join("theirs"), scratch.path().join("ours"));
    for file in [&theirs, &ours] {
        make_large(file);
    }
    std::os::unix::fs::chown(&theirs, Some(NOBODY), Some(NOBODY)).unwrap();
    // The user can make donors here.
    std::os::unix::fs::chown(scratch.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let before = (fragments(&theirs), fragments(&ours));
    let of_user = spawn(
        anybody
            .indef()
            .args(["run", "--json", "--rate", "1MiB", "--jobs", "1"])
            .arg(&theirs),
    );
    has_begun(&[&theirs], before.0);
    let of_root = spawn(
        indef()
            .args(["run", "--json", "--rate", "1MiB", "--jobs", "1"])
            .arg(&ours),
    );
    let asked = Instant::now();
    let of_user = ended(of_user);
    assert!(
        asked.elapsed() < Duration::from_secs(30),
        "{:?}",
        asked.elapsed()
    );
    assert_eq!(of_user.status, 3, "{of_user:?}");
    assert!(
        of_user.err.contains(&format!("process {}", of_root.id())),
        "{of_user:?}"
    );
    has_begun(&[&ours], before.1);
    let again = anybody.indef().arg("run").arg(&theirs).ran();
    assert_eq!(again.status, 1, "{again:?}");
    again.error_line(&format!("process {}", of_root.id()));
    signal(&of_root, Signal::INT);
    assert_eq!(ended(of_root).status, 3);
    let rest = anybody
        .indef()
        .args(["run", "--json", "--resume", "--rate", "1GiB"])
        .ran();
    assert_eq!(rest.status, 0, "{rest:?}");
    assert!(fragments(&theirs) < 16);
}

#[test]
fn loop_a_resumed_run_is_as_slow_as_it_was_told_to_be() {
    let Some(scratch) = scratch("ext4") else {
        return;
    };
    let file = scratch.path().join("file");
    make_large(&file);
    let state = tempfile::tempdir().unwrap();
    let indef = || indef_with_state(state.path());
    let first = indef()
        .args([
            "run",
            "--json",
            "--rate",
            "1MiB",
            "--jobs",
            "1",
            "--time-limit",
            "500ms",
        ])
        .arg(&file)
        .ran();
    assert_eq!(first.status, 3, "{first:?}");
    // It continues at this rate.
    let (resumed, left) = (Instant::now(), fragments(&file));
    let child = spawn(indef().args(["run", "--json", "--resume"]));
    has_begun(&[&file], left);
    signal(&child, Signal::INT);
    let second = ended(child);
    assert_eq!(second.status, 3, "{second:?}");
    // A MiB each second, and what was under way.
    let most = (resumed.elapsed().as_secs() + 7) << 20;
    assert!(
        relocated(&second) < most,
        "{} of {most}",
        relocated(&second)
    );
    // Unless another rate is given.
    let begun = Instant::now();
    let third = indef()
        .args(["run", "--json", "--resume", "--rate", "1GiB"])
        .ran();
    assert_eq!(third.status, 0, "{third:?}");
    assert!(
        begun.elapsed() < Duration::from_secs(50),
        "{:?}",
        begun.elapsed()
    );
    assert!(fragments(&file) < 16);
}

#[test]
fn loop_stopped_runs_do_not_pile_up() {
    let Some(scratch) = scratch("ext4") else {
        return;
    };
    let place = |name: &str| scratch.path().join(name);
    for name in ["a", "b"] {
        fs::create_dir(place(name)).unwrap();
        make(&place(name).join("file"), Bytes::mib(8), Bytes::kib(16));
    }
    let state = tempfile::tempdir().unwrap();
    let stopped = |path: &Path| stop(state.path(), path);
    // A plan and a journal.
    let stored = || left_in(state.path()) / 2;
    for _ in 0..3 {
        stopped(&place("a"));
        assert_eq!(stored(), 1);
    }
    // A run on another path: both have work left.
    stopped(&place("b"));
    assert_eq!(stored(), 2);
    // A run on a path that contains both.
    stopped(scratch.path());
    assert_eq!(stored(), 1);
    let done = indef_with_state(state.path())
        .args(["run"])
        .arg(scratch.path())
        .ran();
    assert_eq!((done.status, stored()), (0, 0), "{done:?}");
    stopped_and_nothing_left(state.path(), &place("a"));
}

/// A run that is stopped with work left.
#[track_caller]
fn stop(state: &Path, path: &Path) {
    let slow = ["run", "--rate", "1MiB", "--jobs", "1"];
    let ran = indef_with_state(state)
        .args(slow)
        .args(["--time-limit", "200ms"])
        .arg(path)
        .ran();
    assert_eq!(ran.status, 3, "{ran:?}");
}

/// A run that finds nothing to do has examined everything that an earlier one left.
fn stopped_and_nothing_left(state: &Path, dir: &Path) {
    make(&dir.join("more"), Bytes::mib(4), Bytes::kib(16));
    stop(state, dir);
    fs::remove_file(dir.join("more")).unwrap();
    let ran = indef_with_state(state).arg("run").arg(dir).ran();
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(left_in(state), 0);
}

/// A mount.
struct Mounted(PathBuf);

impl Mounted {
    fn new(how: &[&str], what: &Path, at: &Path) -> Self {
        fs::create_dir_all(at).unwrap();
        let ran = Command::new("mount").args(how).args([what, at]).ran();
        assert_eq!(ran.status, 0, "{ran:?}");
        Self(at.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// A run does not enter mounts below its path, so what another one has left there is not done by it.
#[test]
fn loop_what_is_left_below_a_mount_outlives_a_run_above_it() {
    if !is_root() {
        return;
    }
    let (Some(above), Some(other)) = (scratch("ext4"), scratch("ext4")) else {
        return;
    };
    let top = above.path().join("top");
    let same = above.path().join("same");
    fs::create_dir(&same).unwrap();
    let _mounts = [
        Mounted::new(&["--bind"], other.path(), &top.join("other")),
        Mounted::new(&["--bind"], &same, &top.join("same")),
    ];
    for name in ["other", "same"] {
        let file = top.join(name).join("file");
        make(&file, Bytes::mib(8), Bytes::kib(16));
        let state = tempfile::tempdir().unwrap();
        stop(state.path(), &top.join(name));
        let done = indef_with_state(state.path()).arg("run").arg(&top).ran();
        assert_eq!((done.status, left_in(state.path())), (0, 2), "{name}");
        let resumed = indef_with_state(state.path())
            .args(["run", "--resume", "--rate", "1GiB"])
            .ran();
        assert_eq!(resumed.status, 0, "{resumed:?}");
        assert!(fragments(&file) < 16, "{name}");
    }
}

/// Those of Btrfs are given anew with each mount, those of others with each boot.
#[test]
fn loop_what_was_planned_is_known_again_on_a_device_with_another_number() {
    if !is_root() {
        return;
    }
    let Some(mut scratch) = scratch("btrfs") else {
        return;
    };
    // Of which the first moves at once.
    make_several(scratch.path(), 3, Bytes::mib(8), Bytes::kib(16));
    let files = [0, 1, 2].map(|n| scratch.path().join(format!("file {n}")));
    let (state, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let indef = || indef_with_state(state.path());
    let plan = dir.path().join("plan");
    let planned = indef()
        .args(["plan", "-o"])
        .args([&plan, scratch.path()])
        .ran();
    assert_eq!(planned.status, 0, "{planned:?}");
    stop(state.path(), scratch.path());
    let number = || fs::metadata(&files[0]).unwrap().dev();
    let (before, mut others) = (number(), Vec::new());
    while number() == before {
        assert!(others.len() < 10, "it keeps its number");
        scratch.unmount().unwrap();
        let at = dir.path().join(others.len().to_string());
        others.push(Mounted::new(&["-t", "tmpfs"], Path::new("none"), &at));
        scratch.mount().unwrap();
    }
    let looked = indef()
        .args(["run", "--dry-run", "--json", "--plan"])
        .arg(&plan)
        .ran();
    assert!(!looked.out.contains("changed"), "{looked:?}");
    assert!(looked.out.contains("dry-run"), "{looked:?}");
    let resumed = indef()
        .args(["run", "--json", "--resume", "--rate", "1GiB"])
        .ran();
    assert_eq!(resumed.status, 0, "{resumed:?}");
    assert!(relocated(&resumed) > 0, "{resumed:?}");
    for file in &files {
        let left = fragments(file);
        assert!(left <= most_left_by_btrfs(Bytes::mib(8), 16), "{left}");
    }
    // Another file in the place of one of them is not taken for it.
    fs::rename(&files[1], scratch.path().join("old")).unwrap();
    make(&files[1], Bytes::mib(8), Bytes::kib(16));
    let other = indef().args(["run", "--json", "--plan"]).arg(&plan).ran();
    let other = other.json();
    let mut told = other["files"].as_array().unwrap().iter();
    let told = told.find(|file| file["path"] == files[1].to_str().unwrap());
    assert_eq!(told.unwrap()["reason"], "changed", "{other}");
}

/// A file system on which every write waits.
pub(crate) struct Frozen(pub(crate) PathBuf);

impl Frozen {
    fn new(path: &Path) -> Self {
        let status = Command::new("fsfreeze").arg("-f").arg(path).status();
        assert!(status.unwrap().success());
        Self(path.to_owned())
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = Command::new("fsfreeze").arg("-u").arg(&self.0).status();
    }
}

#[test]
fn loop_a_run_is_resumed_as_soon_as_it_is_killed() {
    if !is_root() {
        return;
    }
    let Some(mut scratch) = scratch("ext4") else {
        return;
    };
    let file = scratch.path().join("file");
    make_large(&file);
    let before = fragments(&file);
    let state = tempfile::tempdir().unwrap();
    let mut first = spawn(
        indef_with_state(state.path())
            .args(["run", "--rate", "1MiB", "--jobs", "1"])
            .arg(&file),
    );
    has_begun(&[&file], before);
    // A step that takes long: a killed process has to end it first.
    let frozen = Frozen::new(scratch.path());
    thread::sleep(Duration::from_millis(1500));
    first.kill().unwrap();
    let resumed =
        spawn(indef_with_state(state.path()).args(["run", "--json", "--resume", "--rate", "1GiB"]));
    thread::sleep(Duration::from_millis(500));
    drop(frozen);
    let resumed = ended(resumed);
    first.wait().unwrap();
    assert_eq!(resumed.status, 0, "{resumed:?}");
    assert!(relocated(&resumed) > 0);
    assert!(fragments(&file) < 16);
    scratch.fsck().unwrap();

    // A run that is alive is not resumed, and is named.
    let more = file.with_extension("more");
    make_large(&more);
    let before = fragments(&more);
    let living = spawn(
        indef_with_state(state.path())
            .args(["run", "--rate", "1MiB", "--jobs", "1"])
            .arg(scratch.path()),
    );
    has_begun(&[&more], before);
    let ran = indef_with_state(state.path())
        .args(["run", "--resume"])
        .ran();
    assert_eq!(ran.status, 1, "{ran:?}");
    ran.error_line(&format!("process {}", living.id()));
    signal(&living, Signal::INT);
    assert_eq!(ended(living).status, 3);
}

/// Users look there for root's runs.
#[test]
fn loop_what_root_claims_is_seen_by_all_whatever_its_mask_is() {
    if !is_root() {
        return;
    }
    let Some(scratch) = scratch("ext4") else {
        return;
    };
    let file = scratch.path().join("file");
    make(&file, Bytes::mib(1), Bytes::kib(16));
    let state = tempfile::tempdir().unwrap();
    // A /run in which nothing is yet.
    let script = r#"
        mount -t tmpfs -o mode=755 tmpfs /run
        umask 077
        "$@" && stat --format %a /run/indef
    "#;
    let ran: Ran = Command::new("unshare")
        .args(["--mount", "sh", "-ec", script, "sh"])
        .args([env!("CARGO_BIN_EXE_indef"), "run", "--quiet"])
        .arg(&file)
        .env("STATE_DIRECTORY", state.path())
        .output()
        .expect("unshare is there (util-linux)")
        .into();
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(ran.out.lines().last(), Some("755"), "{ran:?}");
}
