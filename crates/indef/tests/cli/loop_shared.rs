//! Files that share their data with reflinks and snapshots, by the command line.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use crate::common::{ForAnybody, NOBODY, Run, fragments, hashes, indef, make, scratch};
use scratch_fs::reflink;
use units::Bytes;

/// It is never chosen by itself.
const ENGINE: [&str; 2] = ["--engine", "btrfs-share-range"];

fn btrfs(arguments: &[&str], paths: &[&Path]) {
    let output = Command::new("btrfs")
        .args(arguments)
        .args(paths)
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
}

/// Bytes of the files below that they have alone (`btrfs filesystem du`).
fn exclusive(path: &Path) -> u64 {
    let output = Command::new("btrfs")
        .args(["filesystem", "du", "--raw", "-s"])
        .arg(path)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let numbers = text.lines().last().unwrap();
    numbers.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Two files of a tree share their data with each other and with a snapshot: workers that want both at the same time
/// move it once.
#[test]
fn loop_what_files_of_btrfs_share_moves_once_and_stays_shared() {
    let Some(mut scratch) = scratch("btrfs") else {
        return;
    };
    let (dir, snap) = (scratch.path().join("sub"), scratch.path().join("snap"));
    btrfs(&["-q", "subvolume", "create"], &[&dir]);
    let files = ["a", "b"].map(|name| dir.join(name));
    make(&files[0], Bytes::mib(24), Bytes::kib(8));
    reflink(&files[0], &files[1]).unwrap();
    make(&dir.join("alone"), Bytes::mib(2), Bytes::kib(8));
    btrfs(&["-q", "subvolume", "snapshot", "-r"], &[&dir, &snap]);
    make(&dir.join("later"), Bytes::mib(2), Bytes::kib(8));
    scratch.remount().unwrap();
    let contents = hashes(scratch.path());
    let free = scratch.free().unwrap().get();

    let scanned = indef().args(["scan", "--json"]).arg(&dir).ran().json();
    assert_eq!(scanned["verdict"]["kind"], "worth-moving", "{scanned}");
    let foreseen = indef()
        .args(["run", "--json", "--dry-run"])
        .args(ENGINE)
        .arg(&dir)
        .ran()
        .json();
    let foreseen_files = foreseen["files"].as_array().unwrap().iter();
    let cost: u64 = foreseen_files
        .map(|file| file["bytes_planned"].as_u64().unwrap())
        .sum();
    let ran = indef().args(["run", "--json"]).args(ENGINE).arg(&dir).ran();
    assert_eq!(ran.status, 0, "{ran:?}");
    let document = ran.json();
    let of = |name: &str| {
        let files = document["files"].as_array().unwrap();
        let found = files.iter().find(|file| {
            let path = file["path"].as_str().unwrap();
            path.ends_with(name)
        });
        found.unwrap_or_else(|| panic!("{name}: {document}"))
    };
    assert_eq!(of("/alone")["engine"], "btrfs-share-range");
    assert_eq!(of("/alone")["holders"], 1);
    assert_eq!(of("/later")["engine"], "btrfs-share-range");
    let moved = document["totals"]["bytes_relocated"].as_u64().unwrap();
    assert_eq!(
        moved,
        28 << 20,
        "what two files share moves once: {document}"
    );
    assert!(moved <= cost, "{foreseen}");

    scratch.remount().unwrap();
    assert_eq!(hashes(scratch.path()), contents);
    assert!(scratch.free().unwrap().get() + (1 << 20) >= free);
    assert_eq!(exclusive(&snap), 0);
    for file in [&files[0], &files[1], &snap.join("a"), &snap.join("b")] {
        assert!(fragments(file) <= 24, "{}", fragments(file));
    }
    let again = indef()
        .args(["run", "--json"])
        .args(ENGINE)
        .arg(&dir)
        .ran()
        .json();
    assert_eq!(again["totals"]["bytes_relocated"], 0, "{again}");
    scratch.fsck().unwrap();
}

/// Each holder is read to be compared, which counts like what is written.
#[test]
fn loop_what_is_read_of_holders_counts_in_budget_and_rate() {
    let Some(scratch) = scratch("btrfs") else {
        return;
    };
    let dir = scratch.path().join("data");
    fs::create_dir(&dir).unwrap();
    let path = dir.join("file");
    make(&path, Bytes::mib(8), Bytes::kib(8));
    for n in 0..9 {
        reflink(&path, &scratch.path().join(format!("clone{n}"))).unwrap();
    }
    scratch.sync().unwrap();
    let run = |limit: [&str; 2]| {
        let ran = indef()
            .args(["run", "--json"])
            .args(ENGINE)
            .args(limit)
            .arg(&dir)
            .ran();
        assert_eq!(ran.status, 0, "{ran:?}");
        ran.json()
    };
    let limited = run(["--budget", "48MiB"]);
    let moved = limited["totals"]["bytes_relocated"].as_u64().unwrap();
    // 8 MiB for the copy, nine times what moves for the holders.
    assert!((2 << 20..=40 << 20).contains(&(9 * moved)), "{limited}");
    assert_eq!(limited["files"][0]["reason"], "over-budget", "{limited}");
    let begun = Instant::now();
    let paced = run(["--rate", "16MiB"]);
    let rest = paced["totals"]["bytes_relocated"].as_u64().unwrap();
    assert_eq!(rest + moved, 8 << 20, "{paced}");
    let least = Duration::from_secs_f64(10.0 * rest as f64 / f64::from(16 << 20) * 0.8);
    assert!(
        begun.elapsed() > least,
        "{:?} for {rest} B",
        begun.elapsed()
    );
}

#[test]
fn loop_without_root_what_is_shared_stays() {
    let Some(scratch) = scratch("btrfs") else {
        return;
    };
    let (file, clone) = (scratch.path().join("file"), scratch.path().join("clone"));
    make(&file, Bytes::mib(2), Bytes::kib(4));
    reflink(&file, &clone).unwrap();
    for path in [&file, &clone, scratch.path()] {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let above = scratch.path().parent().unwrap();
    fs::set_permissions(above, fs::Permissions::from_mode(0o755)).unwrap();
    scratch.sync().unwrap();
    let many = fragments(&file);
    let ran = ForAnybody::new()
        .indef()
        .args(["run", "--json"])
        .arg(&file)
        .ran();
    assert_eq!(ran.status, 0, "{ran:?}");
    let document = ran.json();
    assert_eq!(document["files"][0]["status"], "skipped", "{document}");
    assert_eq!(document["files"][0]["reason"], "shared", "{document}");
    assert_eq!(fragments(&file), many);
}
