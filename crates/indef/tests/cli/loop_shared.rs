//! Files that share their data with reflinks and snapshots, by the command line.

use std::{
    fs,
    io::Write,
    os::unix::fs::{PermissionsExt, chown},
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use crate::common::{
    ForAnybody, NOBODY, Run, btrfs_progs, fragments, hashes, indef, make, scratch,
};
use scratch_fs::{ScratchFs, reflink, require};
use units::Bytes;

/// It is never chosen by itself.
const ENGINE: [&str; 2] = ["--engine", "btrfs-share-range"];

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
    btrfs_progs(&["-q", "subvolume", "create"], &[&dir]);
    let files = ["a", "b"].map(|name| dir.join(name));
    make(&files[0], Bytes::mib(24), Bytes::kib(8));
    reflink(&files[0], &files[1]).unwrap();
    make(&dir.join("alone"), Bytes::mib(2), Bytes::kib(8));
    btrfs_progs(&["-q", "subvolume", "snapshot", "-r"], &[&dir, &snap]);
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

/// Used bytes of metadata, with all copies, after a commit.
fn metadata(root: &Path) -> u64 {
    btrfs_progs(&["filesystem", "sync"], &[root]);
    let usage = Command::new("btrfs")
        .args(["filesystem", "usage", "-b"])
        .arg(root)
        .output()
        .unwrap();
    let text = String::from_utf8(usage.stdout).unwrap();
    let line = text
        .lines()
        .find(|line| line.starts_with("Metadata,"))
        .unwrap();
    let used = line.split("Used:").nth(1).unwrap();
    let used: u64 = used.split_whitespace().next().unwrap().parse().unwrap();
    used * if line.starts_with("Metadata,DUP") {
        2
    } else {
        1
    }
}

/// Small files of which each snapshot would get leaves of its own stay: that would take many times what moves.
#[test]
fn loop_snapshots_of_many_small_files_get_no_metadata_of_their_own() {
    const FILES: u64 = 1000;
    const SNAPSHOTS: u64 = 50;
    let made = ScratchFs::builder("btrfs", Bytes::gib(2)).build();
    let Some(scratch) = require(made) else {
        return;
    };
    let dir = scratch.path().join("sub");
    btrfs_progs(&["-q", "subvolume", "create"], &[&dir]);
    let open = |n: u64| {
        let mut options = fs::OpenOptions::new();
        options
            .create(true)
            .append(true)
            .open(dir.join(format!("{n}")))
            .unwrap()
    };
    // The second half of each file is written after the first halves of all.
    for half in 0..2 {
        (0..FILES).for_each(|n| open(n).write_all(&[half; 8 << 10]).unwrap());
        scratch.sync().unwrap();
    }
    make(&dir.join("large"), Bytes::mib(8), Bytes::kib(8));
    for n in 0..SNAPSHOTS {
        let snap = scratch.path().join(format!("snap{n}"));
        btrfs_progs(&["-q", "subvolume", "snapshot", "-r"], &[&dir, &snap]);
    }
    let before = metadata(scratch.path());
    let ran = indef()
        .args(["run", "--json", "--policy", "whole"])
        .args(ENGINE)
        .arg(&dir)
        .ran();
    assert_eq!(ran.status, 0, "{ran:?}");
    let document = ran.json();
    let files = document["files"].as_array().unwrap();
    let stayed = files
        .iter()
        .filter(|file| file["reason"] == "metadata-cost");
    let (stayed, after) = (stayed.count() as u64, metadata(scratch.path()));
    eprintln!("{stayed} of {FILES} stayed, {before} B of metadata before, {after} B after");
    assert!(stayed > FILES * 9 / 10, "{stayed}: {document}");
    let large = files
        .iter()
        .find(|file| file["path"].as_str().unwrap().ends_with("large"));
    assert_eq!(large.unwrap()["status"], "moved");
    // Less than the large file has.
    assert!(after < before + (8 << 20), "{before}, then {after}");
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
